"""Chats of the Anthropic Messages API: messages, request bodies, exchanges (facts: Anthropic API, section 5).

Contents come in to the letter; whether the API would take them is seen when a request is built.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from sessions_app.transcript.chat import (
    Chat,
    are_blocks,
    chat_in,
    has_calls,
    is_chat_message,
    is_openai,
    joined_prompts,
    left_out,
    message,
    no_chat,
    tells_anthropic,
    tells_openai,
    text,
)
from sessions_app.transcript.entries import Conversation, LineProblem, ParsedLine, TranscriptMessage
from sessions_app.transcript.messages import Role

NAME = "anthropic"
ROLES = frozenset(role.value for role in Role)
_TOLD = frozenset({"role", "content"})  # a message that holds more has an envelope


def recognizes_document(*, value: object) -> bool:
    """Whether the value is a chat of this format; one that tells nothing of its format is."""
    chat = chat_in(value=value)
    return chat is not None and not is_openai(chat=chat)


def is_message(*, value: object) -> bool:
    """Whether the value is a message of this format, for files that hold one a line."""
    if not isinstance(value, Mapping) or not is_chat_message(value=value):
        return False
    return value["role"] in ROLES and value.get("content") is not None and not has_calls(value=value)


def read_message(*, value: object, line_number: int, ordinal: int) -> ParsedLine:
    """One message. `ordinal`: its place in the conversation, from 1, a leading system prompt not counted.

    Its parent is "": whoever reads the lines in order knows it.
    """
    fault = _fault(value)
    if fault or not isinstance(value, Mapping):
        return LineProblem(line_number=line_number, reason=f"message {ordinal}: {fault}")
    # A message that was received carries these; one that was sent, none of them.
    is_response = value.get("type") == "message"
    usage = value.get("usage")
    return message(
        role=Role(value["role"]),
        content=value["content"],
        line_number=line_number,
        ordinal=ordinal,
        envelope={key: inner for key, inner in value.items() if key != "content"} if set(value) - _TOLD else {},
        message_id=(text(value=value.get("id")) or None) if is_response else None,
        model=text(value=value.get("model")) if is_response else "",
        usage=usage if isinstance(usage, Mapping) else None,
    )


def read_document(*, value: object, line_number: int) -> Conversation:
    """A whole conversation; an exchange's response is its last message. Raises NotThisFormat."""
    chat = chat_in(value=value)
    if chat is None or (tells_openai(chat=chat) and not tells_anthropic(chat=chat)):
        raise no_chat(format_name=NAME)
    session, problems = _session(chat, line_number)
    items = _items(chat, line_number, first=_leading(chat) if "system" not in chat.body else 0)
    return Conversation(line_number=line_number, session=session, items=(*problems, *items))


def _leading(chat: Chat) -> int:
    """How many messages in front are the system prompt."""
    count = 0
    for one in chat.messages:
        if not isinstance(one, Mapping) or one.get("role") != "system" or not _is_text(one.get("content")):
            break
        count += 1
    return count


def _is_text(content: Any) -> bool:
    return isinstance(content, str) or (are_blocks(value=content) and all(b["type"] == "text" for b in content))


def _session(chat: Chat, line_number: int) -> tuple[dict[str, Any], list[LineProblem]]:
    session: dict[str, Any] = {}
    problems = []
    response = chat.response if isinstance(chat.response, Mapping) else {}
    if model := text(value=chat.body.get("model")) or text(value=response.get("model")):
        session["model"] = model
    system, tools = chat.body.get("system"), chat.body.get("tools")
    if system is None:
        system = joined_prompts(prompts=[one["content"] for one in chat.messages[: _leading(chat)]])
    if system is not None:
        if isinstance(system, str) or are_blocks(value=system):
            session["system"] = system
        else:
            problems.append(
                left_out(line_number=line_number, what="a system prompt that is neither text nor content blocks")
            )
    if tools is not None:
        if isinstance(tools, list) and all(isinstance(tool, Mapping) for tool in tools):
            session["tools"] = tools
        else:
            problems.append(left_out(line_number=line_number, what="tools that are no list of objects"))
    return session, problems


def _items(chat: Chat, line_number: int, *, first: int) -> Iterator[ParsedLine]:
    """Each hangs on the one before."""
    given = list(chat.messages[first:])
    if chat.response is not None:
        given.append(chat.response)
    parent: str | None = None
    ordinal = 0
    for number, value in enumerate(given, start=1):
        if chat.response is not None and number == len(given) and not _is_response(value):
            # A stream as text, an error, or no answer at all.
            yield left_out(line_number=line_number, what="a response that is no message")
            continue
        if not is_message(value=value):
            reason = _fault(value) or "no message of this format"
            yield LineProblem(line_number=line_number, reason=f"message {number}: {reason}")
            continue
        ordinal += 1
        item = read_message(value=value, line_number=line_number, ordinal=ordinal)
        if isinstance(item, TranscriptMessage):
            item = replace(item, parent_uuid=parent)
            parent = item.uuid
        yield item


def _is_response(value: object) -> bool:
    return isinstance(value, Mapping) and value.get("role") == Role.ASSISTANT and is_message(value=value)


def _fault(value: object) -> str:
    if not isinstance(value, Mapping):
        return "no object"
    if not isinstance(value.get("role"), str) or value["role"] not in ROLES:
        return "an unknown role"
    content = value.get("content")
    if not isinstance(content, str) and not are_blocks(value=content):
        return "a content that is neither text nor content blocks"
    return ""
