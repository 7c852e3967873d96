"""A strict reader of requests: what the Messages API would refuse, as a list of problems.

Used before a boundary is committed (nothing is stored that would make a session unusable) and in tests.
Rules: facts page on the Anthropic API, sections 5, 7, 8 and 12, and the refusals in the known failures.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sessions_app.transcript.native import COMPACTION, is_signed
from sessions_app.transcript.request import (
    ASSISTANT_BLOCKS,
    BLOCK_KEYS,
    RESULT_PARTS,
    SERVER_CALLS,
    THINKING,
    TOOL_NAME,
    USER_BLOCKS,
)

MOST_CACHE_MARKERS = 4
MOST_MESSAGES = 100_000
USE_ID = re.compile(r"^[A-Za-z0-9_-]+$")


def validate_messages(*, messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Problems in words, each beginning with its place (`messages.3.content.0: …`); an empty list when all is well."""
    problems: list[str] = []
    if not messages:
        return ["messages: at least one message is required"]
    if len(messages) > MOST_MESSAGES:
        problems.append(f"messages: {len(messages)} are more than {MOST_MESSAGES}")
    problems += _roles(messages)
    for index, message in enumerate(messages):
        problems += _content(index, message)
    problems += _pairs(messages)
    problems += _unique_ids(messages)
    markers = sum("cache_control" in block for message in messages for block in _with_parts(message))
    if markers > MOST_CACHE_MARKERS:
        problems.append(f"messages: {markers} cache_control markers, at most {MOST_CACHE_MARKERS} are allowed")
    return problems


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [b for b in content if isinstance(b, Mapping)] if isinstance(content, list) else []


def _with_parts(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for block in _blocks(message):
        yield block
        content = block.get("content") if block.get("type") == "tool_result" else None
        yield from (part for part in content if isinstance(part, Mapping)) if isinstance(content, list) else ()


def _roles(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    problems = []
    first = messages[0]
    compaction_first = bool(_blocks(first)) and _blocks(first)[0].get("type") == COMPACTION
    if first.get("role") != "user" and not compaction_first:
        problems.append("messages.0: the first message must be the user's")
    for index, message in enumerate(messages):
        if set(message) != {"role", "content"}:
            problems.append(
                f"messages.{index}: extra inputs are not permitted: {sorted(set(message) - {'role', 'content'})}"
            )
        if message.get("role") not in ("user", "assistant", "system"):
            problems.append(f"messages.{index}: role {message.get('role')!r}")
        if index and message.get("role") == messages[index - 1].get("role"):
            problems.append(f"messages.{index}: two {message.get('role')} messages in a row")
    return problems


def _content(index: int, message: Mapping[str, Any]) -> list[str]:
    blocks = _blocks(message)
    if not blocks:
        return [f"messages.{index}: content is empty"]
    problems = []
    content = message.get("content")
    if isinstance(content, list) and len(content) != len(blocks):
        problems.append(f"messages.{index}: content holds something that is no block")
    for number, block in enumerate(blocks):
        fault = _block_fault(str(message.get("role")), block)
        if fault:
            problems.append(f"messages.{index}.content.{number}: {fault}")
        if block.get("type") == COMPACTION and (index or number):
            problems.append(f"messages.{index}.content.{number}: a compaction block that is not the first block")
    if message.get("role") == "assistant" and blocks[-1].get("type") in THINKING:
        problems.append(f"messages.{index}: an assistant message may not end in thinking")
    return problems


ALLOWED = {"user": USER_BLOCKS, "assistant": ASSISTANT_BLOCKS, "system": frozenset({"text"})}


def _block_fault(role: str, block: Mapping[str, Any]) -> str:
    kind = str(block.get("type"))
    if kind not in ALLOWED.get(role, ()) and not (role == "assistant" and kind.endswith("_tool_result")):
        return f"a {kind} block is not allowed in a {role} message"
    extra = set(block) - BLOCK_KEYS.get(kind, set(block))
    if extra:
        return f"extra inputs are not permitted: {', '.join(sorted(extra))}"
    if kind == "text":
        if role == "user" and block.get("citations"):
            return "citations on a user text"
        return "" if isinstance(block.get("text"), str) and block["text"].strip() else "text is blank"
    fault = FAULTS.get(kind)
    return fault(block) if fault else ""


def _call_fault(block: Mapping[str, Any]) -> str:
    if not isinstance(block.get("id"), str) or not USE_ID.match(block["id"]):
        return "an id that is none"
    if not isinstance(block.get("name"), str) or not TOOL_NAME.match(block["name"]):
        return "a tool name that is none"
    return "" if isinstance(block.get("input"), Mapping) else "a call without input object"


def _thinking_fault(block: Mapping[str, Any]) -> str:
    return "" if block.get("signature") and isinstance(block.get("thinking"), str) else "thinking without signature"


def _redacted_fault(block: Mapping[str, Any]) -> str:
    return "" if block.get("data") else "redacted thinking without data"


def _source_fault(block: Mapping[str, Any]) -> str:
    return "" if isinstance(block.get("source"), Mapping) else f"{block.get('type')} without source"


def _compaction_fault(block: Mapping[str, Any]) -> str:
    return "" if is_signed(block) else "a compaction block without signature or content"


def _result_fault(block: Mapping[str, Any]) -> str:
    if "is_error" in block and not isinstance(block["is_error"], bool):
        return "is_error is neither true nor false"
    content = block.get("content")
    if content is None or isinstance(content, str):
        return ""
    if not isinstance(content, list):
        return "tool_result content is neither text nor a list of blocks"
    for part in content:
        if not isinstance(part, Mapping) or part.get("type") not in RESULT_PARTS:
            return "tool_result holds what is not allowed there"
        if part["type"] == "text" and not str(part.get("text") or "").strip():
            return "tool_result holds a blank text"
    return ""


FAULTS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "tool_use": _call_fault,
    "server_tool_use": _call_fault,
    "mcp_tool_use": _call_fault,
    "thinking": _thinking_fault,
    "redacted_thinking": _redacted_fault,
    "image": _source_fault,
    "document": _source_fault,
    "tool_result": _result_fault,
    COMPACTION: _compaction_fault,
}


def _pairs(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    problems = []
    for index, message in enumerate(messages):
        blocks = _blocks(message)
        uses = [b.get("id") for b in blocks if b.get("type") == "tool_use"]
        following = _blocks(messages[index + 1]) if index + 1 < len(messages) else []
        answers = Counter(b.get("tool_use_id") for b in following if b.get("type") == "tool_result")
        for use in uses:
            if answers[use] != 1:
                problems.append(f"messages.{index}: tool_use {use!r} has {answers[use]} results in the next message")
        before = _blocks(messages[index - 1]) if index else []
        calls = {b.get("id") for b in before if b.get("type") == "tool_use"}
        seen_other = False
        for block in blocks:
            if block.get("type") != "tool_result":
                seen_other = True
                continue
            if block.get("tool_use_id") not in calls:
                problems.append(
                    f"messages.{index}: tool_result {block.get('tool_use_id')!r} without its tool_use before it"
                )
            if seen_other:
                problems.append(f"messages.{index}: a tool_result after other content")
        problems += _server_pairs(index, blocks)
    return problems


def _server_pairs(index: int, blocks: Sequence[Mapping[str, Any]]) -> list[str]:
    calls = [b.get("id") for b in blocks if b.get("type") in SERVER_CALLS]
    results = [b.get("tool_use_id") for b in blocks if str(b.get("type")).endswith("_tool_result")]
    called, answered = set(calls), set(results)
    problems = [f"messages.{index}: server call {call!r} without its result" for call in calls if call not in answered]
    problems += [f"messages.{index}: server result {r!r} without its call" for r in results if r not in called]
    return problems


def _unique_ids(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    kinds = {"tool_use", *SERVER_CALLS}
    counts = Counter(str(b.get("id")) for message in messages for b in _blocks(message) if b.get("type") in kinds)
    repeated = sorted(use_id for use_id, count in counts.items() if count > 1)
    return [f"messages: tool_use ids must be unique: {', '.join(repeated[:10])}"] if repeated else []
