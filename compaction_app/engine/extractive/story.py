"""One pass over the stored messages: what the human said, what the agent said, what it called and what came back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from compaction_app.engine.extractive.text import bounded, clean, plain, without_blobs
from sessions_app.policy import Policy
from sessions_app.transcript.messages import Message, MessageKind, Role, human_text, result_text, text_of

# Of a longer command the rest is data that it carries; the patterns for files are only run over this much.
_COMMAND_CHARS = 8_000
_PATH_KEYS = ("file_path", "notebook_path", "path", "filePath")


@dataclass(frozen=True, slots=True)
class Said:
    """A text and where it stands: `at` counts messages from 0, `position` is the stored one."""

    at: int
    position: int
    text: str


@dataclass(slots=True)
class Call:
    """One tool call; `result` is bounded plain text, None while none came. A result without its call has no name.

    `styled` are the result's lines that held terminal control sequences: their words are not safe to quote as names.
    """

    at: int
    name: str
    input: Mapping[str, Any]
    result: str | None = None
    is_error: bool = False
    styled: frozenset[str] = frozenset()

    def value(self, *keys: str) -> str:
        """The first of these inputs that is a text, else ""."""
        for key in keys:
            value = self.input.get(key)
            if isinstance(value, str):
                return clean(value)
        return ""

    @property
    def path(self) -> str:
        return " ".join(self.value(*_PATH_KEYS).split())

    @property
    def command(self) -> str:
        """The shell command, "" for other tools. Some clients give it as a list of words."""
        value = self.input.get("command", self.input.get("cmd"))
        if isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(word, str) for word in value):
            value = value[-1] if len(value) == 3 and value[1] in ("-c", "-lc") else " ".join(value)
        if not isinstance(value, str):
            return ""
        return without_blobs(clean(bounded(value, head=_COMMAND_CHARS, tail=0))).strip()


@dataclass(slots=True)
class Story:
    """What happened, oldest first. Sizes: `users` whole texts, everything else bounded by the policy."""

    length: int = 0
    users: list[Said] = field(default_factory=list)
    agent: list[Said] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)


def tell(*, messages: Sequence[Message], policy: Policy) -> Story:
    """The story of these messages. Summaries, API errors, side chains and injected texts are not part of it."""
    story = Story(length=len(messages))
    open_calls: dict[str, Call] = {}
    for at, message in enumerate(messages):
        if message.kind != MessageKind.NORMAL or message.is_sidechain:
            continue
        message = _with_readable_blocks(message)
        if message.role == Role.ASSISTANT:
            _add_assistant(story, at, message, open_calls, policy)
        elif message.role == Role.USER:
            _add_user(story, at, message, open_calls, policy)
    return story


def _with_readable_blocks(message: Message) -> Message:
    """The message without blocks that are no objects; clients do send such shapes."""
    content: object = message.content
    if isinstance(content, str):
        return message
    blocks = content if isinstance(content, Sequence) else ()
    readable = tuple(block for block in blocks if isinstance(block, Mapping))
    return replace(message, content=readable)


def _add_assistant(story: Story, at: int, message: Message, open_calls: dict[str, Call], policy: Policy) -> None:
    text = _limited(text_of(message.content), policy).strip()
    if text:
        story.agent.append(Said(at=at, position=message.position, text=text))
    for block in message.blocks:
        if block.get("type") not in ("tool_use", "server_tool_use"):
            continue
        name, given = block.get("name"), block.get("input")
        call = Call(
            at=at,
            name=clean(name) if isinstance(name, str) else "",
            input=given if isinstance(given, Mapping) else {},
        )
        story.calls.append(call)
        if isinstance(block.get("id"), str):
            open_calls[block["id"]] = call


def _add_user(story: Story, at: int, message: Message, open_calls: dict[str, Call], policy: Policy) -> None:
    for block in message.blocks:
        if block.get("type") != "tool_result":
            continue
        use_id = block.get("tool_use_id")
        call = open_calls.pop(use_id, None) if isinstance(use_id, str) else None
        if call is None:
            call = Call(at=at, name="", input={})
            story.calls.append(call)
        raw = bounded(result_text(block), head=policy.extract_result_head_chars, tail=policy.extract_result_tail_chars)
        call.result = without_blobs(plain(raw))
        if "\x1b" in raw:
            call.styled = frozenset(plain(line).strip() for line in raw.split("\n") if "\x1b" in line)
        call.is_error = block.get("is_error") is True
    text, mark = clean(human_text(message)), _media_mark(message)
    text = f"{text} {mark}" if text and mark else text or mark
    if text.strip():
        story.users.append(Said(at=at, position=message.position, text=text))


def _media_mark(message: Message) -> str:
    """What the human showed besides words: it can't stand in a text, but that it was there can."""
    kinds = dict.fromkeys(block.get("type") for block in message.blocks if block.get("type") in ("image", "document"))
    return f"[with {' and '.join(str(kind) for kind in kinds)}]" if kinds and not message.is_meta else ""


def _limited(text: str, policy: Policy) -> str:
    short = bounded(text, head=policy.extract_result_head_chars, tail=policy.extract_result_tail_chars)
    return without_blobs(plain(short))


def written_texts(call: Call, *, policy: Policy) -> Iterator[str]:
    """What the agent wrote in a call: every text among its inputs, bounded; nested lists and objects included."""
    stack: list[tuple[object, int]] = [(call.input, 0)]
    while stack:
        value, depth = stack.pop()
        if isinstance(value, str):
            yield _limited(value, policy)
        elif depth < 6 and isinstance(value, Mapping):
            stack.extend((item, depth + 1) for item in reversed(list(value.values())))
        elif depth < 6 and isinstance(value, Sequence):
            stack.extend((item, depth + 1) for item in reversed(value))
