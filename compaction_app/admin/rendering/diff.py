"""Edits as lines taken out and put in."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from compaction_app.admin.rendering.text import visible

MOST_LINES = 400  # of one edit on a page
MOST_COMPARED = 1_500  # lines a side; difflib's time grows with their product
MOST_LINE_CHARS = 1_000
_KINDS = {"-": "del", "+": "add", " ": "same", "@": "skip"}


@dataclass(frozen=True, slots=True)
class DiffLine:
    """`kind` is del, add, same or skip (lines left out)."""

    kind: str
    sign: str
    text: str


@dataclass(frozen=True, slots=True)
class Diff:
    lines: tuple[DiffLine, ...]
    more: int

    @property
    def added(self) -> int:
        return sum(line.kind == "add" for line in self.lines)

    @property
    def removed(self) -> int:
        return sum(line.kind == "del" for line in self.lines)


def diffs_of(tool_input: Mapping[str, Any]) -> tuple[Diff, ...]:
    """The edits of an Edit or MultiEdit call, by the shape of its input."""
    edits = tool_input.get("edits")
    candidates = edits if isinstance(edits, list) else [tool_input]
    return tuple(
        _diff(edit["old_string"], edit["new_string"])
        for edit in candidates
        if isinstance(edit, Mapping)
        and isinstance(edit.get("old_string"), str)
        and isinstance(edit.get("new_string"), str)
    )


def _diff(old: str, new: str) -> Diff:
    lines = [_line(raw) for raw in _raw_lines(old.splitlines(), new.splitlines())]
    return Diff(lines=tuple(lines[:MOST_LINES]), more=max(len(lines) - MOST_LINES, 0))


def _raw_lines(old: list[str], new: list[str]) -> Iterator[str]:
    if max(len(old), len(new)) > MOST_COMPARED:
        yield from (f"-{line}" for line in old)
        yield from (f"+{line}" for line in new)
        return
    # The first three lines are the two file names and the first hunk's place, which say nothing here.
    yield from list(difflib.unified_diff(old, new, lineterm="", n=3))[3:]


def _line(raw: str) -> DiffLine:
    kind = _KINDS.get(raw[:1], "same")
    text = "" if kind == "skip" else visible(raw[1 : MOST_LINE_CHARS + 1])
    return DiffLine(kind=kind, sign="⋯" if kind == "skip" else raw[:1], text=text)
