"""What an audit found in a candidate's summary (engine/audit.py), in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from compaction_app.admin import cells
from compaction_app.admin.rendering.text import one_line

MOST_ROWS, TEXT_CHARS = 20, 200  # of each finding


@dataclass(frozen=True, slots=True)
class Row:
    """`url`: where it stands in the history, "" where it stands nowhere."""

    text: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """`good`: nothing is to be looked at."""

    title: str
    good: bool
    rows: tuple[Row, ...] = ()


def findings_of(*, audit: Any, session_id: int) -> list[Finding]:
    """The stored audit, finding by finding; one that an older audit did not look for is not told."""
    told = audit if isinstance(audit, Mapping) else {}
    found = []
    if "missing_sections" in told:
        missing = _rows(told["missing_sections"])
        found.append(_finding(bad="Sections that are missing", good="No section is missing.", rows=missing))
    if "unknown_count" in told:
        title = f"Names that the history does not hold: {told['unknown_count']} of {told.get('names', '?')}"
        if told.get("whole") is False:
            title += ", as far as it was read"
        names = _rows(told.get("unknown_names"))
        found.append(_finding(bad=title, good="All names, paths and numbers in it are from the history.", rows=names))
    if "unquoted_count" in told:
        title = (
            f"Prompts that are not in it word for word: {told['unquoted_count']} of {told.get('user_messages', '?')}"
        )
        prompts = tuple(_prompt(one, session_id) for one in _listed(told.get("unquoted")) if isinstance(one, Mapping))
        found.append(_finding(bad=title, good="All prompts are in it word for word.", rows=prompts))
    if "lost" in told:
        found.append(_finding(bad="Facts that it does not hold", good="No fact is lost.", rows=_rows(told["lost"])))
    return found


def _finding(*, bad: str, good: str, rows: tuple[Row, ...]) -> Finding:
    return Finding(title=bad, good=False, rows=rows[:MOST_ROWS]) if rows else Finding(title=good, good=True)


def _prompt(one: Mapping[str, Any], session_id: int) -> Row:
    position = one.get("position")
    text = one_line(str(one.get("begins") or ""), limit=TEXT_CHARS)
    if not isinstance(position, int):
        return Row(text=text)
    return Row(text=f"#{position} {text}", url=cells.place_url(session_id=session_id, position=position))


def _rows(value: Any) -> tuple[Row, ...]:
    return tuple(Row(text=one_line(str(one), limit=TEXT_CHARS)) for one in _listed(value))


def _listed(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else ()
