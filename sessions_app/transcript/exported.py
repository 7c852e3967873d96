"""What an export of ours adds to the lines of a transcript, so that importing it again restores everything exactly.

All of it stands in one field of a line, `MARK`, which other programs pass over. On a message, `given`: fields as the
history holds them, where the line must say something else for its client. On a boundary, `boundary`: the whole of it,
places told as uuids. On a line that only says once more what a boundary holds, `part` and `of`. On a line of its own,
`session`: system prompt and tools.
"""

from __future__ import annotations

import re
import uuid as uuids
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from sessions_app.transcript.boundary import BoundaryDraft, BoundaryKind, Clearing, Placement
from sessions_app.transcript.boundary_json import draft_as_json, draft_from_json
from sessions_app.transcript.native import is_signed

MARK = "compactionService"
# A client's own boundary that was taken back here: no loader may stop at it any more.
REVERTED = "compact_boundary_reverted"
# The type of a line that tells only of the session; its client passes over types that it does not know.
SESSION_LINE = "compaction-service"

LARGEST = 2_000_000_000  # what a 32-bit column holds
MOST_GENERATIONS = 30_000  # a 16-bit one
MOST_ATTACHMENTS = 1_000
_UNUSABLE = re.compile("[\x00\ud800-\udfff]")
# Longest text of each short column; such a text is no place for odd characters.
SHORT = {"summarizer": 40, "model": 200, "prompt_version": 20, "response_id": 128}
_Known = TypeVar("_Known", BoundaryKind, Clearing, Placement)


class BadMark(ValueError):
    """What stands in the field is none of ours; the message says why, without quoting it."""


@dataclass(frozen=True, slots=True)
class Written:
    """A boundary as a line tells it. `payload`: its draft as JSON, places as uuids; `base`: the uuid of the line of the
    boundary below; the rest as `CompactBoundary` has it."""

    payload: Mapping[str, Any]
    trigger: str
    tokens_before: int
    tokens_after: int | None

    @property
    def base(self) -> str | None:
        base: str | None = self.payload["base"]
        return base

    @property
    def uuids(self) -> set[str]:
        """The messages that it names."""
        kept = self.payload["preserved"]
        named = {one["position"] for one in self.payload["cleared_results"]} | {self.payload["covers_to"]}
        return {uuid for uuid in named | ({kept["first"], kept["last"]} if kept else set()) if uuid}


def mark_of(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """What we wrote into a line; empty where it is not ours."""
    mark = entry.get(MARK)
    return mark if isinstance(mark, Mapping) else {}


def copy_uuid(*, boundary_line: str, uuid: str) -> str:
    """The uuid of the line that says a kept message once more."""
    return str(uuids.uuid5(uuids.NAMESPACE_OID, f"{boundary_line} {uuid}"))


def boundary_as_json(
    *,
    draft: BoundaryDraft,
    base: str | None,
    trigger: str,
    tokens_before: int,
    tokens_after: int | None,
    uuid_at: Callable[[int], str | None],
) -> dict[str, Any]:
    """The boundary for a line. `base`: uuid of the line of the boundary below; `uuid_at`: of a message, by position."""
    payload = _with_places(draft_as_json(draft=draft), uuid_at) | {"base": base}
    return {**payload, "trigger": trigger, "tokens_before": tokens_before, "tokens_after": tokens_after}


def _with_places(payload: Mapping[str, Any], place: Callable[[Any], Any]) -> dict[str, Any]:
    kept = payload["preserved"]
    return {
        **payload,
        "covers_to": place(payload["covers_to"]),
        "preserved": {**kept, "first": place(kept["first"]), "last": place(kept["last"])} if kept else None,
        "cleared_results": [{**one, "position": place(one["position"])} for one in payload["cleared_results"]],
    }


def read_boundary(value: object) -> Written:
    """The boundary that a line tells, every field of it checked: a file may come from anywhere. Raises BadMark."""
    told = _mapping(value, "boundary")
    kind = _one_of(BoundaryKind, told.get("kind"), "kind")
    summary = told.get("summary")
    if kind.summarizes != (isinstance(summary, str) and bool(summary.strip())):
        raise BadMark("a boundary of this kind with, or without, a summary")
    payload: dict[str, Any] = {
        "kind": kind.value,
        "covers_to": _uuid(told.get("covers_to")) if kind.summarizes or told.get("covers_to") is not None else None,
        "summary": summary if kind.summarizes else None,
        "summary_tokens": _count(told.get("summary_tokens")),
        **{name: _short(told.get(name), most) for name, most in SHORT.items()},
        "instructions": _text(told.get("instructions")),
        "why": _text(told.get("why")),
        "generation": _count(told.get("generation"), most=MOST_GENERATIONS),
        "preserved": _preserved(told.get("preserved")),
        "attachments": [_attachment(one) for one in _list(told.get("attachments"), "attachments")],
        "cleared_tool_use_ids": [_text(one) for one in _list(told.get("cleared_tool_use_ids"), "cleared ids")],
        "cleared_results": [_cleared(one) for one in _list(told.get("cleared_results"), "cleared results")],
        "clearing": _one_of(Clearing, told.get("clearing"), "clearing").value,
        "summary_blocks": [_signed(one) for one in _list(told.get("summary_blocks"), "summary blocks")],
        "base": None if told.get("base") is None else _uuid(told.get("base")),
        "facts": dict(_mapping(told.get("facts"), "facts")),
        "usage": dict(_mapping(told.get("usage"), "usage")),
    }
    if len(payload["attachments"]) > MOST_ATTACHMENTS or len(payload["summary_blocks"]) > 1:
        raise BadMark("more attachments or blocks than a boundary has")
    after = told.get("tokens_after")
    return Written(
        payload=payload,
        trigger=_text(told.get("trigger")),
        tokens_before=_count(told.get("tokens_before")),
        tokens_after=None if after is None else _count(after),
    )


def draft_of(*, written: Written, position_of: Callable[[str], int | None], base: Any) -> BoundaryDraft:
    """The draft, its places found again. `base`: the boundary that `written.base` names. Raises BadMark where a message
    that it needs is not stored."""

    def place(uuid: str | None) -> int:
        position = 0 if uuid is None else position_of(uuid)
        if position is None:
            raise BadMark("it names a message that is not in the history before it")
        return position

    stored = _with_places(written.payload, place)
    kept = stored["preserved"]
    if kept and kept["first"] > kept["last"]:
        raise BadMark("what it keeps ends before it begins")
    return draft_from_json(stored=stored, base=base)


def _mapping(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadMark(f"{name} is no object")
    return value


def _list(value: object, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise BadMark(f"{name} is no list")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise BadMark("a text is missing")
    return value


def _short(value: object, most: int) -> str:
    text = _text(value)
    if len(text) > most or _UNUSABLE.search(text):
        raise BadMark("a name is too long, or holds what no name does")
    return text


def _uuid(value: object) -> str:
    text = _short(value, 200)
    if not text:
        raise BadMark("a uuid is missing")
    return text


def _count(value: object, *, most: int = LARGEST) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise BadMark("a count is none")
    return value


def _one_of(known: type[_Known], value: object, name: str) -> _Known:
    try:
        return known(_text(value))
    except ValueError:
        raise BadMark(f"an unknown {name}") from None


def _preserved(value: object) -> dict[str, Any] | None:
    if value is None:
        return None
    told = _mapping(value, "preserved")
    placement = _one_of(Placement, told.get("placement"), "placement")
    return {"first": _uuid(told.get("first")), "last": _uuid(told.get("last")), "placement": placement.value}


def _attachment(value: object) -> dict[str, Any]:
    told = _mapping(value, "attachment")
    return {
        "kind": _short(told.get("kind"), 40),
        "text": _text(told.get("text")),
        "payload": dict(_mapping(told.get("payload"), "payload")),
        "tokens": _count(told.get("tokens")),
    }


def _cleared(value: object) -> dict[str, Any]:
    told = _mapping(value, "cleared result")
    return {
        "tool_use_id": _text(told.get("tool_use_id")),
        "tool": _text(told.get("tool")),
        "position": _uuid(told.get("position")),
        "tokens_freed": _count(told.get("tokens_freed")),
        "reason": _text(told.get("reason")),
    }


def _signed(value: object) -> dict[str, Any]:
    block = dict(_mapping(value, "summary block"))
    if not is_signed(block):
        raise BadMark("a summary block without signature")
    return block
