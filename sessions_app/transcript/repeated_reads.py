"""Files that were read more than once, and what the older readings take of the context (S13)."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from sessions_app.transcript.messages import PATH_KEYS

READ_TOOLS = frozenset({"Read"})
LONGEST_PATH = 1_000  # characters; a longer one is cut, as in the index of tool calls
MOST_PARTS = 20  # parts of one file that are told apart; past these the oldest is forgotten

# First and last line, both included.
Lines = tuple[float, float]
WHOLE: Lines = (1, math.inf)


@dataclass(slots=True)
class RepeatedRead:
    """`reads`: readings of the file that are shown; `repeated`: those of them that a newer one covers.

    `wasted_tokens`: what these take.
    """

    path: str
    reads: int = 0
    repeated: int = 0
    wasted_tokens: int = 0


@dataclass(slots=True)
class _File:
    told: RepeatedRead
    standing: list[tuple[Lines, int]] = field(default_factory=list)


class ReadTracker:
    """Takes readings oldest first. Memory: `most_files` files, those read most recently.

    A reading is wasted once a newer one shows the same lines or more, whether or not the file changed in between: what
    is out of date is of even less use than a copy. Another part of the file is no repetition.
    """

    def __init__(self, *, most_files: int) -> None:
        self._most_files = most_files
        self._files: OrderedDict[str, _File] = OrderedDict()
        self.repeated = 0
        self.wasted_tokens = 0

    def add(self, *, path: str, lines: Lines, tokens: int) -> None:
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = _File(told=RepeatedRead(path=path))
            if len(self._files) > self._most_files:
                self._files.popitem(last=False)
        else:
            self._files.move_to_end(path)
        file.told.reads += 1
        standing = []
        for older in file.standing:
            if lines[0] <= older[0][0] and older[0][1] <= lines[1]:
                self._waste(file.told, older[1])
            else:
                standing.append(older)
        file.standing = [*standing, (lines, tokens)][-MOST_PARTS:]

    def _waste(self, told: RepeatedRead, tokens: int) -> None:
        told.repeated += 1
        told.wasted_tokens += tokens
        self.repeated += 1
        self.wasted_tokens += tokens

    def worst(self, *, most: int) -> list[RepeatedRead]:
        """The files that waste most, at most so many."""
        found = [file.told for file in self._files.values() if file.told.repeated]
        return sorted(found, key=lambda told: (-told.wasted_tokens, told.path))[:most]


def path_in(arguments: object) -> str:
    """The file that a call's arguments name, "" where they name none."""
    if not isinstance(arguments, Mapping):
        return ""
    for key in PATH_KEYS:
        path = arguments.get(key)
        if isinstance(path, str) and path:
            return path[:LONGEST_PATH]
    return ""


def lines_in(arguments: object) -> Lines:
    """The lines that a call of Read asks for: `limit` lines from line `offset` on; all where it does not say."""
    if not isinstance(arguments, Mapping):
        return WHOLE
    first, count = _line(arguments.get("offset")), _line(arguments.get("limit"))
    start = first or 1
    return (start, start + count - 1) if count else (start, math.inf)


def _line(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
