"""What a microcompact boundary cleared, in words and as a table. Boundaries of other kinds clear nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compaction_app.admin.cells import place_url
from compaction_app.admin.rendering.text import one_line
from compaction_app.engine.clearing import counted, tools_named
from sessions_app.models import CompactBoundary
from sessions_app.transcript.boundary import Clearing
from sessions_app.transcript.view import CLEARED_RESULT

MOST_ROWS = 500  # cleared results listed on a boundary's page
SHORT_HOW = {
    Clearing.PLACEHOLDER: "a placeholder is sent instead",
    Clearing.API_EDIT: "the API leaves it out on its side",
}
HOW = {
    Clearing.PLACEHOLDER: f"The model is sent “{CLEARED_RESULT}” in place of each.",
    Clearing.API_EDIT: "They are sent as they were, with edits by which the API leaves them out on its side.",
}


@dataclass(frozen=True, slots=True)
class ClearedRow:
    """One cleared result; `url` is empty where its position is not known."""

    tool: str
    tool_use_id: str
    position: int
    url: str
    tokens_freed: int
    reason: str


@dataclass(frozen=True, slots=True)
class Cleared:
    """All that a boundary cleared. `rows` are the first of them, `more` tells how many are left out."""

    count: int
    tools: str
    tokens_freed: int
    rows: tuple[ClearedRow, ...]
    more: int
    how: str

    @property
    def words(self) -> str:
        """ "12 results of Read, Bash cleared, about 24,000 tokens freed"."""
        of = f" of {self.tools}" if self.tools else ""
        freed = f", about {self.tokens_freed:,} tokens freed" if self.tokens_freed else ""
        return f"{counted(self.count)}{of} cleared{freed}"


def cleared_by(boundary: CompactBoundary) -> Cleared:
    """From the boundary's row alone. An imported one knows ids only."""
    known = [entry for entry in boundary.cleared_results if isinstance(entry, Mapping)]
    entries = known or [{"tool_use_id": one} for one in boundary.cleared_tool_use_ids]
    return Cleared(
        count=len(entries),
        tools=tools_named(tools=(one_line(str(entry.get("tool")), limit=40) for entry in known)),
        tokens_freed=sum(_whole(entry, "tokens_freed") for entry in known),
        rows=tuple(_row(entry, session_id=boundary.session_id) for entry in entries[:MOST_ROWS]),
        more=max(len(entries) - MOST_ROWS, 0),
        how=HOW[Clearing(boundary.clearing)],
    )


def _row(entry: Mapping[str, Any], *, session_id: int) -> ClearedRow:
    position = _whole(entry, "position")
    return ClearedRow(
        tool=one_line(str(entry.get("tool") or "–"), limit=100),
        tool_use_id=one_line(str(entry.get("tool_use_id")), limit=260),
        position=position,
        url=place_url(session_id=session_id, position=position) if position else "",
        tokens_freed=_whole(entry, "tokens_freed"),
        reason=one_line(str(entry.get("reason") or "–"), limit=300),
    )


def _whole(entry: Mapping[str, Any], name: str) -> int:
    value = entry.get(name)
    return value if isinstance(value, int) else 0
