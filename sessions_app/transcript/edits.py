"""Clearing on the API's side, in its two dialects: results are sent whole, and edits say what the model shall not see.

`context_management` is the public beta (facts: Anthropic API, section 6). `cache_edits` is what the source document
names; no public endpoint takes it, so it is off unless switched on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sessions_app.transcript.messages import Role
from sessions_app.transcript.request import MessagesRequest
from sessions_app.transcript.view import ContextView

CONTEXT_MANAGEMENT = "context_management"
CACHE_EDITS = "cache_edits"
CONTEXT_MANAGEMENT_BETA = "context-management-2025-06-27"
CLEAR_TOOL_USES = "clear_tool_uses_20250919"


def context_management(
    *, messages: Sequence[Mapping[str, Any]], edited: Sequence[str], least_tokens: int, freed_tokens: int
) -> dict[str, Any]:
    """The `context_management` that makes the API clear the results `edited`, {} when there are none.

    The API clears all but the newest `keep` tool uses each time it is asked, so `keep` is counted from the last one
    that we have cleared: the cleared part stays the same from request to request, and its cache with it, until a next
    batch is decided. Tools with nothing to clear in that part are excluded by name; other results of the same tools in
    it, too short for us, go along. `least_tokens`: below it the API shall leave everything as it is. It counts for
    itself, so no more than half of our own estimate of what goes (`freed_tokens`) is asked for: what was decided must
    happen.
    """
    if not edited:
        return {}
    uses = _tool_uses(messages)
    wanted = set(edited)
    last = max((number for number, (use_id, _) in enumerate(uses) if use_id in wanted), default=-1)
    if last < 0:
        return {}
    keep = len(uses) - last - 1
    cleared_names = {name for use_id, name in uses if use_id in wanted}
    edit: dict[str, Any] = {
        "type": CLEAR_TOOL_USES,
        "trigger": {"type": "tool_uses", "value": max(keep, 1)},
        "keep": {"type": "tool_uses", "value": keep},
    }
    at_least = min(least_tokens, freed_tokens // 2)
    if at_least:
        edit["clear_at_least"] = {"type": "input_tokens", "value": at_least}
    excluded = sorted({name for _, name in uses[: last + 1]} - cleared_names)
    if excluded:
        edit["exclude_tools"] = excluded
    return {"edits": [edit]}


def managed(*, view: ContextView, request: MessagesRequest, least_tokens: int) -> dict[str, Any]:
    """The `context_management` of the request that shows `view` with its edited results whole, {} without any."""
    return context_management(
        messages=request.messages,
        edited=request.edited,
        least_tokens=least_tokens,
        freed_tokens=sum(item.message.tokens - item.tokens for item in view.items if item.edited and item.message),
    )


def cache_edits(*, edited: Sequence[str]) -> dict[str, Any]:
    """The `cache_edits` block that deletes the results `edited` from the cached prefix, {} when there are none."""
    if not edited:
        return {}
    return {"type": CACHE_EDITS, "edits": [{"type": "delete", "cache_reference": use_id} for use_id in edited]}


def _tool_uses(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(id, name) of every tool_use block of the request, in order."""
    return [
        (block["id"], block["name"])
        for message in messages
        if message["role"] == Role.ASSISTANT
        for block in message["content"]
        if block.get("type") == "tool_use"
    ]
