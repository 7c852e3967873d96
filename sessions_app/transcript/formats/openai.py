"""Chats of OpenAI's Chat Completions: messages, request bodies, exchanges (facts: transcript formats, section 10).

What our messages have no place for stays in the message's envelope: names, refusals, a model's reasoning (which no
provider signed, so that it is no thinking), the parts that a content block can't tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sessions_app.transcript.call_arguments import input_of
from sessions_app.transcript.chat import (
    Chat,
    chat_in,
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
from sessions_app.transcript.messages import Content, ContentBlock, Role
from sessions_app.transcript.openai_parts import block_of

NAME = "openai"
ROLES = {
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "tool": Role.USER,
    "function": Role.USER,
}
PROMPTS = frozenset({"system", "developer"})
RESULTS = frozenset({"tool", "function"})
ODD_TOOLS = "openai_tools"  # in the session's metadata: tools that say more than ours can
NO_PARAMETERS = {"type": "object", "properties": {}}
# What the content tells of a message, by its role; null for any other field tells nothing.
_TOLD = {"tool": frozenset({"content", "tool_call_id"}), "assistant": frozenset({"content", "tool_calls"})}
_CONTENT = frozenset({"content"})
_PLAIN_CALL = ({"id", "type", "function"}, {"name", "arguments"})


def recognizes_document(*, value: object) -> bool:
    """Whether the value is a chat that tells that it is of this format."""
    chat = chat_in(value=value)
    return chat is not None and is_openai(chat=chat)


def is_message(*, value: object) -> bool:
    """Whether the value is a message of this format, for files that hold one a line."""
    return is_chat_message(value=value)


def read_message(*, value: object, line_number: int, ordinal: int) -> ParsedLine:
    """One message. `ordinal`: its place in the conversation, from 1, a leading system prompt not counted.

    Its parent is "": whoever reads the lines in order knows it.
    """
    if not isinstance(value, Mapping) or not is_chat_message(value=value):
        return LineProblem(line_number=line_number, reason=f"message {ordinal}: no message of this format")
    content, odd = _content(value, ordinal)
    return message(
        role=ROLES[value["role"]],
        content=content,
        line_number=line_number,
        ordinal=ordinal,
        envelope=_envelope(value, odd),
    )


def read_document(*, value: object, line_number: int) -> Conversation:
    """A whole conversation; an exchange's response is its last message. Raises NotThisFormat."""
    chat = chat_in(value=value)
    if chat is None or (tells_anthropic(chat=chat) and not tells_openai(chat=chat)):
        raise no_chat(format_name=NAME)
    prompts = _prompts(chat.messages)
    session, problems = _session(chat, prompts, line_number)
    items = _items(chat, line_number, first=len(prompts))
    return Conversation(line_number=line_number, session=session, items=(*problems, *items))


# A message's content


def _content(value: Mapping[str, Any], ordinal: int) -> tuple[Content, dict[str, Any]]:
    """As content blocks, a text as a text; and what of it they don't tell, for the envelope."""
    content, odd = _parts(value.get("content"))
    if value["role"] in RESULTS:
        return [_result(value, content, ordinal)], odd
    if value["role"] != "assistant":
        return content, odd
    calls, odd_calls = _calls(value, ordinal)
    odd |= odd_calls
    refusal = value.get("refusal")
    if not content and not calls and isinstance(refusal, str):
        return refusal, odd
    if not calls:
        return content, odd
    said = ([{"type": "text", "text": content}] if content else []) if isinstance(content, str) else content
    return [*said, *calls], odd


def _parts(content: object) -> tuple[Content, dict[str, Any]]:
    if not isinstance(content, list):
        return text(value=content), {}
    found = [block_of(part=part) for part in content]
    odd = {str(place): part for place, (part, (_, whole)) in enumerate(zip(content, found, strict=True)) if not whole}
    return [block for block, _ in found], {"parts": odd} if odd else {}


def _result(value: Mapping[str, Any], content: Content, ordinal: int) -> ContentBlock:
    """What was answered to a call: to the one that it names, else to the first of the message before."""
    named = text(value=value.get("tool_call_id"))
    return {"type": "tool_result", "tool_use_id": named or _made_id(ordinal - 1, 1), "content": content}


def _made_id(ordinal: int, number: int) -> str:
    """For a call that came without an id."""
    return f"call-{ordinal}-{number}"


def _calls(value: Mapping[str, Any], ordinal: int) -> tuple[list[ContentBlock], dict[str, Any]]:
    given = value.get("tool_calls")
    calls = given if isinstance(given, list) else []
    blocks = [_call(one, ordinal, number) for number, one in enumerate(calls, start=1)]
    whole = (given is None or isinstance(given, list)) and all(map(_is_plain, calls))
    odd = {} if whole else {"tool_calls": given}
    legacy = value.get("function_call")
    if legacy is not None:
        blocks.append(_call({"function": legacy}, ordinal, len(calls) + 1))
    return blocks, odd


def _call(call: object, ordinal: int, number: int) -> ContentBlock:
    """A call as a block; one that names no tool as a text, because no result could follow it."""
    told = call if isinstance(call, Mapping) else {}
    function, custom = told.get("function"), told.get("custom")
    what = function if isinstance(function, Mapping) else custom if isinstance(custom, Mapping) else {}
    name = text(value=what.get("name"))
    if not name:
        return {"type": "text", "text": "[a tool call without a name: not shown]"}
    arguments = what.get("arguments") if what is function else what.get("input")
    made = text(value=told.get("id")) or _made_id(ordinal, number)
    return {"type": "tool_use", "id": made, "name": name, "input": input_of(arguments=arguments)}


def _is_plain(call: object) -> bool:
    """Whether the block tells all of it."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        return False
    of_call, of_function = _PLAIN_CALL
    known = set(call) <= of_call and set(function) <= of_function and call.get("type", "function") == "function"
    return known and isinstance(call.get("id"), str) and isinstance(function.get("name"), str)


def _envelope(value: Mapping[str, Any], odd: dict[str, Any]) -> dict[str, Any]:
    """The message without what its content tells; empty where that is all of it."""
    told = _TOLD.get(value["role"], _CONTENT)
    rest = {key: inner for key, inner in value.items() if key not in told and inner is not None and inner != []} | odd
    return {} if set(rest) == {"role"} and value["role"] not in ("developer", "function") else rest


# The conversation


def _prompts(messages: Sequence[Any]) -> list[Content]:
    """The system prompts in front of everything."""
    prompts: list[Content] = []
    for one in messages:
        if not is_chat_message(value=one) or one["role"] not in PROMPTS:
            break
        prompts.append(_parts(one.get("content"))[0])
    return prompts


def _session(chat: Chat, prompts: Sequence[Content], line_number: int) -> tuple[dict[str, Any], list[LineProblem]]:
    session: dict[str, Any] = {}
    problems = []
    response = chat.response if isinstance(chat.response, Mapping) else {}
    if model := text(value=chat.body.get("model")) or text(value=response.get("model")):
        session["model"] = model
    system = joined_prompts(prompts=prompts)
    if system is not None:
        session["system"] = system
    given = chat.body.get("tools")
    tools = chat.body.get("functions") if given is None else given
    if isinstance(tools, list):
        found = [_tool(one) for one in tools]
        session["tools"] = [tool for tool in found if tool]
        if odd := [one for one in tools if not _is_plain_tool(one)]:
            session["metadata"] = {ODD_TOOLS: odd}
        if not all(found):
            problems.append(left_out(line_number=line_number, what="a tool without a name"))
    elif tools is not None:
        problems.append(left_out(line_number=line_number, what="tools that are no list"))
    return session, problems


def _tool(given: object) -> dict[str, Any] | None:
    """A function as a tool; one of another kind as a tool too, which is given what it is given."""
    told = given if isinstance(given, Mapping) else {}
    kind = told.get("type")
    inner = told.get(kind) if isinstance(kind, str) else None
    function = inner if isinstance(inner, Mapping) else told.get("function", told)
    name = text(value=function.get("name")) if isinstance(function, Mapping) else ""
    if not name:
        return None
    description, parameters = function.get("description"), function.get("parameters")
    return {
        "name": name,
        **({"description": description} if isinstance(description, str) else {}),
        "input_schema": parameters if isinstance(parameters, Mapping) else NO_PARAMETERS,
        **({"strict": function["strict"]} if isinstance(function.get("strict"), bool) else {}),
    }


def _is_plain_tool(given: object) -> bool:
    """Whether the tool that it becomes tells all of it."""
    function = given.get("function", given) if isinstance(given, Mapping) else None
    known = {"type", "function", "name", "description", "parameters", "strict"}
    if not isinstance(given, Mapping) or not isinstance(function, Mapping):
        return False
    return set(given) <= known and set(function) <= known and given.get("type", "function") == "function"


def _items(chat: Chat, line_number: int, *, first: int) -> Iterator[ParsedLine]:
    """Each hangs on the one before."""
    parent: str | None = None
    ordinal = 0
    for number, value in enumerate(chat.messages[first:], start=1):
        if not is_message(value=value):
            yield LineProblem(line_number=line_number, reason=f"message {number}: no message of this format")
            continue
        ordinal += 1
        item = read_message(value=value, line_number=line_number, ordinal=ordinal)
        if isinstance(item, TranscriptMessage):
            item = replace(item, parent_uuid=parent)
            parent = item.uuid
        yield item
    if chat.response is not None:
        yield _response(chat.response, line_number, ordinal + 1, parent)


def _response(response: object, line_number: int, ordinal: int, parent: str | None) -> ParsedLine:
    """The first choice as a message; the whole response in its envelope, without what the content tells."""
    told = response if isinstance(response, Mapping) else {}
    choices = told.get("choices")
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) else {}
    value = first.get("message")
    item = read_message(value=value, line_number=line_number, ordinal=ordinal)
    if not isinstance(item, TranscriptMessage) or item.role != Role.ASSISTANT:
        # A stream as text, an error, or no answer at all.
        return left_out(line_number=line_number, what="a response that is no message")
    rest = {key: inner for key, inner in first.items() if key != "message"}
    others = choices[1:] if isinstance(choices, list) else []
    return replace(
        item,
        parent_uuid=parent,
        message_id=text(value=told.get("id")) or None,
        model=text(value=told.get("model")),
        sent_at=_moment(told.get("created")),
        usage=_usage(told.get("usage")),
        envelope={**(item.envelope or {}), "response": {**told, "choices": [rest, *others]}},
    )


def _moment(seconds: object) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, tz=UTC) if type(seconds) in (int, float) else None  # type: ignore[arg-type]
    except (ValueError, OverflowError, OSError):
        return None


def _usage(given: object) -> dict[str, Any] | None:
    """Tokens as the Messages API counts them: OpenAI's prompt tokens include the cached ones."""
    if not isinstance(given, Mapping):
        return None
    details = given.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, Mapping) else 0
    prompt = _count(given.get("prompt_tokens"))
    return {
        "input_tokens": max(prompt - cached, 0),
        "output_tokens": _count(given.get("completion_tokens")),
        "cache_read_input_tokens": min(cached, prompt),
    }


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
