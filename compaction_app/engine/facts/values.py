"""What must survive a compaction, as values, and as the JSON that a boundary keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

VERSION = 1


class FactKind(StrEnum):
    """What a fact is; the most worth first.

    REQUEST: the person's first message. RULE: a sentence of theirs that says how things have to be. TODO: an item of
    the last list that is not done. ERROR: what failed, and was not seen to work since. FILE: a path that was changed.
    SAID: any other sentence of the person.
    """

    REQUEST = "request"
    RULE = "rule"
    TODO = "todo"
    ERROR = "error"
    FILE = "file"
    SAID = "said"


class HeldBy(StrEnum):
    """Where a fact stands in the context after a compaction. CONTEXT: in what is kept verbatim, or restored."""

    NOBODY = ""
    SUMMARY = "summary"
    CONTEXT = "context"


LABELS = {
    FactKind.REQUEST: "The user's first request",
    FactKind.RULE: "The user said",
    FactKind.TODO: "Not done yet",
    FactKind.ERROR: "Failed, and was not seen to work since",
    FactKind.FILE: "Changed file",
    FactKind.SAID: "The user said",
}


@dataclass(frozen=True, slots=True)
class Fact:
    """`text`: to the letter, as the message at `position` has it. `key`: by which a later call may settle it: of a todo
    its task's id ("" for an item of a list), of an error what was tried."""

    kind: FactKind
    text: str
    uuid: str
    position: int
    key: str = ""
    held_by: HeldBy = HeldBy.NOBODY

    @property
    def told(self) -> str:
        """The fact with where it comes from, for whoever writes a summary."""
        return f"{LABELS[self.kind]}: {self.text}"

    def as_json(self) -> dict[str, Any]:
        row = {"kind": self.kind.value, "text": self.text, "uuid": self.uuid, "position": self.position}
        return row | {name: value for name, value in (("key", self.key), ("by", self.held_by.value)) if value}

    @classmethod
    def from_json(cls, row: object) -> Fact | None:
        """None for what is no fact."""
        if not isinstance(row, Mapping):
            return None
        try:
            return cls(
                kind=FactKind(row["kind"]),
                text=str(row["text"]),
                uuid=str(row["uuid"]),
                position=int(row["position"]),
                key=str(row.get("key", "")),
                held_by=HeldBy(row.get("by", "")),
            )
        except (KeyError, TypeError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is carried from one boundary to the next, the most worth first. `todos_at`: position of the call that wrote
    the list last, 0 where none did; `is_told`: False where nothing is known of the past, not even that it was empty."""

    facts: tuple[Fact, ...] = ()
    todos_at: int = 0
    is_told: bool = False

    @property
    def lost(self) -> tuple[Fact, ...]:
        """Those that neither the summary holds nor what stands beside it."""
        return tuple(fact for fact in self.facts if fact.held_by is HeldBy.NOBODY)

    def as_json(self) -> dict[str, Any]:
        """{"version", "todos_at", "held": [rows], "lost": [rows]}; {} where nothing is known."""
        if not self.is_told:
            return {}
        held = [fact.as_json() for fact in self.facts if fact.held_by is not HeldBy.NOBODY]
        lost = [fact.as_json() for fact in self.lost]
        return {"version": VERSION, "todos_at": self.todos_at, "held": held, "lost": lost}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Facts:
        """What `as_json` gave; rows that can't be read are left out."""
        if not raw:
            return cls()
        rows = [*_rows(raw.get("held")), *_rows(raw.get("lost"))]
        found = [fact for fact in map(Fact.from_json, rows) if fact is not None]
        at = raw.get("todos_at")
        return cls(facts=by_worth(found), todos_at=at if isinstance(at, int) else 0, is_told=True)


def _rows(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def by_worth(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """The facts by kind, within each the newest first; items of one todo list in its order."""
    order = {kind: number for number, kind in enumerate(FactKind)}
    return tuple(sorted(facts, key=lambda fact: (order[fact.kind], -fact.position)))
