"""What a conversation is made of: frozen values, with no framework and no database.

A `Message` is one entry as its client gave it (for Claude Code: one line of the transcript; several lines of
one API response share a `message_id`). Its content is the Messages API's own shape: a string, or a list of
content blocks, each a JSON object with a `type`. Blocks are passed on untouched, unknown keys included.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

ContentBlock = Mapping[str, Any]
Content = str | Sequence[ContentBlock]

# Claude Code wraps what the human did not type as a prompt in these tags (facts: transcript formats, section 2).
_TAGS = (
    "command-name|command-message|command-args|local-command-stdout|local-command-stderr|local-command-caveat"
    "|bash-input|bash-stdout|bash-stderr|system-reminder|task-notification"
)
_WRAPPED = re.compile(rf"\s*<({_TAGS})>.*?(?:</\1>|\Z)\s*", re.DOTALL)
_INTERRUPT = re.compile(r"^\s*\[Request interrupted by user[^\]]*\]\s*$")


# Arguments by which a tool's call names a file.
PATH_KEYS = ("file_path", "notebook_path", "path")
# Claude Code's own mark of text that no model wrote; a usage beside it says nothing.
SYNTHETIC_MODEL = "<synthetic>"


class Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"


class MessageKind(StrEnum):
    """What an entry is, beyond its role.

    NORMAL: part of the conversation. COMPACT_SUMMARY: the summary that a client's own compaction wrote into its
    transcript; the boundary carries it, so the entry itself is never rendered. API_ERROR: text that no model
    wrote (`isApiErrorMessage`, model `<synthetic>`); shown to people, never sent.
    """

    NORMAL = "normal"
    COMPACT_SUMMARY = "compact_summary"
    API_ERROR = "api_error"


@dataclass(frozen=True, slots=True)
class Usage:
    """The `usage` of one API response, in tokens. `input_tokens` is the uncached part only."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0

    @property
    def prompt_tokens(self) -> int:
        """Size of the prompt that was sent: the three input buckets, each once."""
        return self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens

    @property
    def context_tokens(self) -> int:
        """Size of the context once the reply has joined it."""
        return self.prompt_tokens + self.output_tokens

    @classmethod
    def from_json(cls, raw: object) -> Usage | None:
        """Read a `usage` object. Fields may be missing or null; None when nothing in it is a positive count."""
        if not isinstance(raw, Mapping):
            return None
        names = cls.__slots__
        counts = {name: _count(raw.get(name)) for name in names}
        return cls(**counts) if any(counts.values()) else None

    def as_json(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}


# No context is anywhere near; a count beyond it is a client's mistake, and would not fit its column.
LARGEST_USAGE = 100_000_000


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST_USAGE else 0


@dataclass(frozen=True, slots=True)
class Message:
    """One stored entry.

    `position` counts from 1 without gaps; `tokens` is the stored estimate, `content_bytes` the content's size as JSON.
    """

    position: int
    uuid: str
    role: Role
    content: Content
    tokens: int = 0
    content_bytes: int = 0
    message_id: str | None = None
    kind: MessageKind = MessageKind.NORMAL
    is_meta: bool = False
    is_sidechain: bool = False
    model: str | None = None
    sent_at: datetime | None = None
    usage: Usage | None = None
    # Position of the message that moved the conversation to another branch; None while on the live path.
    left_path_at: int | None = None

    @property
    def blocks(self) -> Sequence[ContentBlock]:
        return content_blocks(self.content)


def content_blocks(content: Content) -> Sequence[ContentBlock]:
    """The content as a list of blocks; a string becomes one text block."""
    if isinstance(content, str):
        return ({"type": "text", "text": content},) if content else ()
    return content


def tool_uses(content: Content) -> Iterator[ContentBlock]:
    """The client-side `tool_use` blocks that carry a usable id."""
    for block in content_blocks(content):
        if block.get("type") == "tool_use" and isinstance(block.get("id"), str):
            yield block


def tool_results(content: Content) -> Iterator[ContentBlock]:
    for block in content_blocks(content):
        if block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str):
            yield block


def text_of(content: Content) -> str:
    """The text blocks, joined by newlines; tool calls, results, thinking and media left out."""
    if isinstance(content, str):
        return content
    parts = (block.get("text") for block in content if block.get("type") == "text")
    return "\n".join(part for part in parts if isinstance(part, str))


def result_text(block: ContentBlock) -> str:
    """The text of one `tool_result` block (its content is a string, a list of blocks, or absent)."""
    content = block.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "\n".join(
            item["text"]
            for item in content
            if isinstance(item, Mapping) and item.get("type") == "text" and isinstance(item.get("text"), str)
        )
    return ""


def human_text(message: Message) -> str:
    """What the human typed in this message, "" when nothing.

    Injected (`is_meta`) text, tool results, local command output, interrupt marks and summaries are not the human's
    words; what stands beside a wrapper, and what was typed after a slash command, is.
    """
    if message.role != Role.USER or message.is_meta or message.is_sidechain or message.kind != MessageKind.NORMAL:
        return ""
    texts = (block.get("text") for block in message.blocks if block.get("type") == "text")
    typed = (_typed(text) for text in texts if isinstance(text, str))
    return "\n".join(text for text in typed if text.strip() and not _INTERRUPT.match(text))


def _typed(text: str) -> str:
    """A text without the wrappers that it begins with; a slash command that was given arguments, with these."""
    arguments = _between(text, "command-args") if text.lstrip().startswith("<command-") else ""
    if arguments:
        command = _between(text, "command-name")
        return f"{command} {arguments}" if command else arguments
    at = 0
    while wrapped := _WRAPPED.match(text, at):
        at = wrapped.end()
    return text[at:]


def _between(text: str, tag: str) -> str:
    """What stands in the first element of that name; "" where there is none that ends."""
    _, begun, rest = text.partition(f"<{tag}>")
    inner, ended, _ = rest.partition(f"</{tag}>")
    return inner.strip() if begun and ended else ""


def is_human_prompt(message: Message) -> bool:
    return bool(human_text(message))
