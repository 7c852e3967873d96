"""What the chat formats share: the shapes in which a chat is kept, and how one of its messages becomes ours.

A chat is an array of messages; a request body that holds one; an exchange, `{request, response}`; or a log of a call,
which is the body with a `response` beside its messages.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sessions_app.transcript.entries import LineProblem, NotThisFormat, TranscriptMessage
from sessions_app.transcript.messages import Content, Role, content_blocks

CHAT_ROLES = frozenset({"user", "assistant", "system", "developer", "tool", "function"})
# Parts of the Responses API and of Codex: their items have a role and a content too, but are no chat.
_NO_CHAT_PARTS = frozenset({"input_text", "output_text", "input_image", "input_file", "summary_text"})
_DIGEST_LENGTH = 32  # hexadecimal digits of a digest that a uuid carries: 128 bits


@dataclass(frozen=True, slots=True)
class Chat:
    """A value that is a chat. `body`: what stands beside the messages in the request; `response`: the answer to them,
    whatever stands there; None where there is none."""

    messages: Sequence[Any]
    body: Mapping[str, Any]
    response: object = None

    @property
    def mappings(self) -> Iterator[Mapping[str, Any]]:
        return (one for one in self.messages if isinstance(one, Mapping))


def chat_in(*, value: object) -> Chat | None:
    """The chat that the value is, by its shape alone; None for anything else."""
    if isinstance(value, list):
        return Chat(messages=value, body={}) if value and _are_messages(value) else None
    if not isinstance(value, Mapping):
        return None
    exchange = isinstance(value.get("request"), Mapping)
    body = value["request"] if exchange else value
    messages = body.get("messages")
    if not isinstance(messages, list) or (messages and not _are_messages(messages)):
        return None
    return Chat(messages=messages, body=body, response=value.get("response"))


def is_chat_message(*, value: object) -> bool:
    """Whether it has a role and a content of a chat, whichever format's."""
    if not isinstance(value, Mapping) or not isinstance(value.get("role"), str) or value["role"] not in CHAT_ROLES:
        return False
    content = value.get("content")
    if isinstance(content, list):
        return not any(isinstance(part, Mapping) and _kind(part) in _NO_CHAT_PARTS for part in content)
    return isinstance(content, str) or (content is None and (has_calls(value=value) or "content" in value))


def has_calls(*, value: Mapping[str, Any]) -> bool:
    """Whether calls stand beside the content, as OpenAI has them."""
    return value.get("tool_calls") is not None or value.get("function_call") is not None


def _are_messages(values: Sequence[object]) -> bool:
    """More than half: one that is damaged is told, and makes no other format of the rest."""
    return sum(is_chat_message(value=value) for value in values) * 2 > len(values)


def _kind(part: Mapping[str, Any]) -> str:
    kind = part.get("type")
    return kind if isinstance(kind, str) else ""


# Which of the two it is


_ANTHROPIC_PARTS = frozenset(
    """tool_use tool_result thinking redacted_thinking server_tool_use mcp_tool_use compaction document search_result
    container_upload""".split()  # noqa: SIM905
)
_OPENAI_PARTS = frozenset({"image_url", "input_audio", "file", "refusal"})
_OPENAI_ROLES = frozenset({"developer", "tool", "function"})


def tells_openai(*, chat: Chat) -> bool:
    """Whether anything in it is OpenAI's alone."""
    response = chat.response
    return (
        (isinstance(response, Mapping) and isinstance(response.get("choices"), list))
        or any(isinstance(tool.get("function"), Mapping) for tool in _tools(chat))
        or isinstance(chat.body.get("functions"), list)
        or any(isinstance(one.get("role"), str) and one["role"] in _OPENAI_ROLES for one in chat.mappings)
        or any(has_calls(value=one) for one in chat.mappings)
        or any(_kind(part) in _OPENAI_PARTS for part in _parts(chat))
    )


def tells_anthropic(*, chat: Chat) -> bool:
    """Whether anything in it is Anthropic's alone."""
    response = chat.response
    return (
        (isinstance(response, Mapping) and response.get("type") == "message")
        or "system" in chat.body
        or any("input_schema" in tool for tool in _tools(chat))
        or any(_kind(part) in _ANTHROPIC_PARTS or "source" in part for part in _parts(chat))
    )


def is_openai(*, chat: Chat) -> bool:
    """Which of the two reads it. A chat that tells nothing is Anthropic's; a system message among others is OpenAI's
    (Anthropic knows one too, but rarely)."""
    if tells_openai(chat=chat):
        return True
    return not tells_anthropic(chat=chat) and any(one.get("role") == "system" for one in chat.mappings)


def _tools(chat: Chat) -> Iterator[Mapping[str, Any]]:
    tools = chat.body.get("tools")
    return (tool for tool in tools if isinstance(tool, Mapping)) if isinstance(tools, list) else iter(())


def _parts(chat: Chat) -> Iterator[Mapping[str, Any]]:
    for one in chat.mappings:
        content = one.get("content")
        if isinstance(content, list):
            yield from (part for part in content if isinstance(part, Mapping))


# Messages


def no_chat(*, format_name: str) -> NotThisFormat:
    return NotThisFormat(f"no conversation as {format_name} has it: messages, or a request that holds them")


def are_blocks(*, value: object) -> bool:
    """Whether it is a list of content blocks."""
    return isinstance(value, list) and all(isinstance(b, Mapping) and isinstance(b.get("type"), str) for b in value)


def message(
    *,
    role: Role,
    content: Content,
    line_number: int,
    ordinal: int,
    envelope: Mapping[str, Any],
    message_id: str | None = None,
    model: str = "",
    sent_at: datetime | None = None,
    usage: Mapping[str, Any] | None = None,
) -> TranscriptMessage:
    """A message of a chat, its parent not told. `ordinal`: its place among the chat's messages, from 1."""
    return TranscriptMessage(
        line_number=line_number,
        uuid=_uuid(ordinal, role, content),
        parent_uuid="",
        role=role,
        content=content,
        message_id=message_id,
        model=model,
        sent_at=sent_at,
        usage=usage,
        envelope=envelope or None,
    )


def _uuid(ordinal: int, role: Role, content: Content) -> str:
    """Chats give no uuids: by place and content, so that the same chat is known when it comes again, longer."""
    canonical = json.dumps([role.value, content], sort_keys=True, separators=(",", ":"))
    return f"msg-{ordinal}-{hashlib.sha256(canonical.encode()).hexdigest()[:_DIGEST_LENGTH]}"


def joined_prompts(*, prompts: Sequence[Content]) -> Content | None:
    """Several system prompts as the one that a session has; a single one as it is, None for none."""
    if len(prompts) <= 1:
        return prompts[0] if prompts else None
    return [block for prompt in prompts for block in content_blocks(prompt)]


def left_out(*, line_number: int, what: str) -> LineProblem:
    return LineProblem(line_number=line_number, reason=f"{what}; left out")


def text(*, value: object) -> str:
    """The value where it is a text, else ""."""
    return value if isinstance(value, str) else ""
