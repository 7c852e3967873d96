"""`clear_tool_uses_20250919` as the API applies it: on its own side, before it counts and caches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from tests.stub_api.prefix import block_tokens

PLACEHOLDER = "[cleared to save context]"
DEFAULT_TRIGGER: dict[str, Any] = {"type": "input_tokens", "value": 100_000}
DEFAULT_KEEP: dict[str, Any] = {"type": "tool_uses", "value": 3}


def apply_edits(
    *, body: Mapping[str, Any], count: Callable[[dict[str, Any]], int]
) -> tuple[dict[str, Any], list[dict[str, Any]] | None]:
    """(the body that the model sees, applied_edits); None in place of the list where no edits were asked for."""
    management = body.get("context_management")
    if not management:
        return dict(body), None
    seen, applied = copy.deepcopy(dict(body)), []
    for edit in management.get("edits") or ():
        if edit["type"] == "clear_tool_uses_20250919":
            applied += _clear_uses(seen, edit, count)
    return seen, applied


def _clear_uses(body: dict[str, Any], edit: Mapping[str, Any], count: Callable[..., int]) -> list[dict[str, Any]]:
    uses = [b for m in body["messages"] for b in _blocks(m) if b.get("type") == "tool_use"]
    trigger = edit.get("trigger") or DEFAULT_TRIGGER
    reached = count(body) if trigger["type"] == "input_tokens" else len(uses)
    if reached <= trigger["value"]:
        return []
    kept = (edit.get("keep") or DEFAULT_KEEP)["value"]
    excluded = set(edit.get("exclude_tools") or ())
    chosen = [b for b in uses[: max(0, len(uses) - kept)] if b["name"] not in excluded]
    ids = {b["id"] for b in chosen}
    results = [b for m in body["messages"] for b in _blocks(m) if b.get("tool_use_id") in ids]
    results = [b for b in results if b.get("content") != PLACEHOLDER]
    freed = sum(max(0, block_tokens(b) - block_tokens({**b, "content": PLACEHOLDER})) for b in results)
    inputs = _inputs(chosen, edit.get("clear_tool_inputs") or False)
    freed += sum(max(0, block_tokens(b) - block_tokens({**b, "input": {}})) for b in inputs)
    if not results or freed < (edit.get("clear_at_least") or {"value": 0})["value"]:
        return []
    for block in results:
        block["content"] = PLACEHOLDER
    for block in inputs:
        block["input"] = {}
    return [{"type": edit["type"], "cleared_tool_uses": len(results), "cleared_input_tokens": freed}]


def _inputs(chosen: list[dict[str, Any]], which: bool | list[str]) -> list[dict[str, Any]]:
    if isinstance(which, bool):
        return chosen if which else []
    return [b for b in chosen if b["name"] in which]


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []
