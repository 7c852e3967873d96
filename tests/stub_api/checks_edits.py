"""What the API refuses about `context_management` (facts, section 6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

from tests.stub_api.state import invalid

EDITING, COMPACT_EDIT, COMPACTION = "context-management-2025-06-27", "compact-2026-01-12", "compact-2026-09-04"
LEAST_COMPACT_TRIGGER = 50_000


USES, TOKENS = frozenset({"tool_uses"}), frozenset({"input_tokens"})
EDIT_SHAPES: dict[str, dict[str, Callable[[Any], bool]]] = {
    "clear_tool_uses_20250919": {
        "trigger": lambda v: _amount(v, USES | TOKENS),
        "keep": lambda v: _amount(v, USES),
        "clear_at_least": lambda v: v is None or _amount(v, TOKENS),
        "exclude_tools": lambda v: v is None or _names(v),
        "clear_tool_inputs": lambda v: v is None or isinstance(v, bool) or _names(v),
    },
    "clear_thinking_20251015": {
        "keep": lambda v: (
            v in ("all", {"type": "all"}) or (_amount(v, frozenset({"thinking_turns"})) and v["value"] > 0)
        ),
    },
    "compact_20260112": {
        "trigger": lambda v: v is None or (_amount(v, TOKENS) and v["value"] >= LEAST_COMPACT_TRIGGER),
        "pause_after_compaction": lambda v: isinstance(v, bool),
        "instructions": lambda v: v is None or isinstance(v, str),
    },
}


def check_edits(given: Any, betas: set[str]) -> None:
    """Raises Refusal."""
    if given is None:
        return
    if not isinstance(given, dict) or set(given) - {"edits"} or not isinstance(given.get("edits", []), list):
        raise invalid("context_management: Input should hold a list of edits")
    kinds: list[str] = []
    for number, edit in enumerate(given.get("edits", [])):
        place = f"context_management.edits.{number}"
        shape = EDIT_SHAPES.get(str(edit.get("type"))) if isinstance(edit, dict) else None
        if shape is None:
            raise invalid(f"{place}: Input tag does not match any of the expected tags")
        if (COMPACT_EDIT if edit["type"].startswith("compact") else EDITING) not in betas:
            raise invalid(f"{place}: {edit['type']} needs its beta header")
        for key, value in edit.items():
            if key != "type" and key not in shape:
                raise invalid(f"{place}.{key}: Extra inputs are not permitted")
            if key != "type" and not shape[key](value):
                raise invalid(f"{place}.{key}: Input is not valid")
        kinds.append(edit["type"])
    if len(set(kinds)) < len(kinds):
        raise invalid("context_management.edits: each type may stand once")
    if "clear_thinking_20251015" in kinds[1:]:
        raise invalid("context_management.edits: clear_thinking_20251015 must be the first edit")


def is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _amount(value: Any, kinds: frozenset[str]) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == {"type", "value"}
        and value["type"] in kinds
        and is_whole(value["value"])
    )


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
