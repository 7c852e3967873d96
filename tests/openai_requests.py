"""What OpenAI's Chat Completions would refuse of a request's messages, as a list of problems (facts: transcript
formats, section 10)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

KEYS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}
PARTS = {"text": {"type", "text"}, "image_url": {"type", "image_url"}, "file": {"type", "file"}}
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def validate_openai(messages: Sequence[dict[str, Any]]) -> list[str]:
    """Problems in words, each with the number of its message; an empty list when all is well."""
    problems: list[str] = []
    open_calls: list[str] = []
    for number, message in enumerate(messages):
        role = message.get("role")
        if role not in KEYS:
            problems.append(f"{number}: role {role!r}")
            continue
        if not {"role", "content"} <= set(message) <= KEYS[role]:
            problems.append(f"{number}: keys {sorted(message)}")
        problems += (f"{number}: {fault}" for fault in _content(role, message))
        if role == "tool":
            if message.get("tool_call_id") not in open_calls:
                problems.append(f"{number}: a result of no call directly before")
            else:
                open_calls.remove(message["tool_call_id"])
            continue
        if open_calls:
            problems.append(f"{number}: calls without a result before it: {open_calls}")
        open_calls = [call["id"] for call in message.get("tool_calls", ())]
        problems += (f"{number}: {fault}" for call in message.get("tool_calls", ()) for fault in _call(call))
        if len(set(open_calls)) != len(open_calls):
            problems.append(f"{number}: one id twice")
    return problems + ([f"the end: calls without a result: {open_calls}"] if open_calls else [])


def _content(role: str, message: dict[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if content is None:
        if role != "assistant" or not message.get("tool_calls"):
            yield "no content"
    elif isinstance(content, list):
        if not content:
            yield "an empty list of parts"
        for part in content:
            if set(part) != PARTS.get(part.get("type"), ()):
                yield f"part {part.get('type')}"
            elif role != "user" and part["type"] != "text":
                yield f"a {part['type']} part of {role}"
            elif part["type"] == "text" and not isinstance(part["text"], str):
                yield "a text that is none"
    elif not isinstance(content, str):
        yield "a content that is none"
    if "tool_calls" in message and not message["tool_calls"]:
        yield "an empty list of calls"


def _call(call: dict[str, Any]) -> Iterator[str]:
    if set(call) != {"id", "type", "function"} or set(call["function"]) != {"name", "arguments"}:
        yield "a call of other keys"
    elif not 0 < len(call["id"]) <= 40:
        yield "an id that is empty or too long"
    elif not NAME.fullmatch(call["function"]["name"]):
        yield f"a name {call['function']['name']!r}"
    elif not isinstance(call["function"]["arguments"], str):
        yield "arguments that are no text"
