"""The history in an export of ours: the session, and its messages, side entries and boundaries as JSON, item by item.

A chat document (`formats/anthropic.py`, `formats/openai.py`) shows the context of now and has no place for what lies
behind it; so all of that stands in one field of ours beside it. What is read back is checked field by field, because
such a file may come from anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from sessions_app.transcript.entries import (
    LineProblem,
    ParsedLine,
    TranscriptBoundary,
    TranscriptMessage,
    TranscriptNote,
    TranscriptRevert,
)
from sessions_app.transcript.exported import BadMark, read_boundary
from sessions_app.transcript.messages import Content, MessageKind, Role

VERSION = 1
HISTORY = "history"
# Longest text of each short column; such a text is no place for odd characters.
ID, KEY, MESSAGE_ID, MODEL, TYPE, TITLE, EXTERNAL_ID, SOURCE = 128, 200, 255, 200, 60, 300, 255, 30
LARGEST = 2_000_000_000  # what a 32-bit column holds
THREADS = ("main", "subagent")
_UNUSABLE = re.compile("[\x00\ud800-\udfff]")
_SOURCE = re.compile(r"[a-z0-9-]+")


class BadItem(ValueError):
    """What stands there is none of ours; the message says why, without quoting it."""


# Writing


def session_item(*, id: str, external_id: str | None, columns: Mapping[str, Any]) -> dict[str, Any]:
    """The session for the head of an export. `columns`: title, model, system, tools, metadata, thread, source."""
    return {"id": id, "external_id": external_id, **columns}


def message_item(*, message: TranscriptMessage) -> dict[str, Any]:
    """A message with all that the history holds of it."""
    item: dict[str, Any] = {"type": "message", "uuid": message.uuid, "parent_uuid": message.parent_uuid or ""}
    if message.path_parent != "":
        item["path_parent"] = message.path_parent
    return {
        **item,
        "role": str(message.role),
        "content": message.content,
        "kind": str(message.kind),
        "message_id": message.message_id,
        "model": message.model,
        "usage": message.usage,
        "is_meta": message.is_meta,
        "is_sidechain": message.is_sidechain,
        "sent_at": _written_moment(message.sent_at),
        "envelope": message.envelope,
    }


def entry_item(*, note: TranscriptNote) -> dict[str, Any]:
    """A line of an imported transcript that is no message."""
    item: dict[str, Any] = {"type": "entry", "key": note.key}
    if note.path_parent != "":
        item["path_parent"] = note.path_parent
    return {**item, "line": note.line_number, "kind": note.type, "subtype": note.subtype, "raw": note.raw}


def boundary_item(*, key: str, written: Mapping[str, Any], restores: str | None) -> dict[str, Any]:
    """A boundary, where it was written. `written`: as `exported.boundary_as_json` tells it."""
    return {"type": "boundary", "uuid": key, "restores": restores, **written}


def revert_item(*, revert: TranscriptRevert) -> dict[str, Any]:
    """That a boundary was taken back, where that was done."""
    moment = _written_moment(revert.reverted_at)
    return {"type": "revert", "boundary": revert.key, "fell_with": revert.fell_with, "reverted_at": moment}


def _written_moment(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z") if moment else None


# Reading


def read_session(*, value: object) -> tuple[str, dict[str, Any]]:
    """The id by which the session is known (its client's own, else ours) and its columns. Raises BadItem."""
    told = _mapping(value, "session")
    given = told.get("external_id")
    known_as = _short(told.get("id") if given is None else given, EXTERNAL_ID, "id")
    if not known_as:
        raise BadItem("id is empty")
    return known_as, read_columns(value=told)


def read_columns(*, value: object) -> dict[str, Any]:
    """The columns that a session item tells; one that it does not tell is left out. Raises BadItem."""
    told = _mapping(value, "session")
    return {name: read(told[name]) for name, read in _COLUMNS.items() if name in told}


def read_item(*, value: object, line_number: int) -> ParsedLine:
    """One item of a history; a LineProblem where it is none."""
    try:
        told = _mapping(value, "an item")
        kind = told.get("type")
        reader = _ITEMS.get(kind) if isinstance(kind, str) else None
        if reader is None:
            raise BadItem("an unknown type")
        return reader(told, line_number)
    except (BadItem, BadMark) as bad:
        return LineProblem(line_number=line_number, reason=f"an item of an export: {bad}")


def _message(told: Mapping[str, Any], line_number: int) -> TranscriptMessage:
    usage, envelope, sent_at = told.get("usage"), told.get("envelope"), told.get("sent_at")
    message_id = told.get("message_id")
    return TranscriptMessage(
        line_number=line_number,
        uuid=_filled(told.get("uuid"), ID, "uuid"),
        parent_uuid=_short(told.get("parent_uuid", ""), ID, "parent_uuid"),
        path_parent=_path_parent(told),
        role=Role(_one_of(told.get("role"), tuple(Role), "role")),
        content=_content(told.get("content")),
        kind=MessageKind(_one_of(told.get("kind", MessageKind.NORMAL), tuple(MessageKind), "kind")),
        message_id=None if message_id is None else _short(message_id, MESSAGE_ID, "message_id"),
        model=_short(told.get("model", ""), MODEL, "model"),
        usage=None if usage is None else _mapping(usage, "usage"),
        is_meta=_switch(told.get("is_meta", False), "is_meta"),
        is_sidechain=_switch(told.get("is_sidechain", False), "is_sidechain"),
        sent_at=None if sent_at is None else _moment(sent_at, "sent_at"),
        envelope=None if envelope is None else _mapping(envelope, "envelope"),
    )


def _entry(told: Mapping[str, Any], line_number: int) -> TranscriptNote:
    number = told.get("line", line_number)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= LARGEST:
        raise BadItem("line is no count")
    return TranscriptNote(
        line_number=number,
        key=_filled(told.get("key"), KEY, "key"),
        uuid="",
        parent_uuid="",
        path_parent=_path_parent(told),
        type=_short(told.get("kind"), TYPE, "kind"),
        subtype=_short(told.get("subtype", ""), TYPE, "subtype"),
        raw=_mapping(told.get("raw"), "raw"),
    )


def _boundary(told: Mapping[str, Any], line_number: int) -> TranscriptBoundary:
    return TranscriptBoundary(
        line_number=line_number,
        key=_filled(told.get("uuid"), KEY, "uuid"),
        written=read_boundary(told),
        restores=_name(told.get("restores"), "restores"),
    )


def _revert(told: Mapping[str, Any], line_number: int) -> TranscriptRevert:
    return TranscriptRevert(
        line_number=line_number,
        key=_filled(told.get("boundary"), KEY, "boundary"),
        reverted_at=_moment(told.get("reverted_at"), "reverted_at"),
        fell_with=_name(told.get("fell_with"), "fell_with"),
    )


def _name(value: object, name: str) -> str | None:
    return None if value is None else _filled(value, KEY, name)


_ITEMS: dict[str, Callable[[Mapping[str, Any], int], ParsedLine]] = {
    "message": _message,
    "entry": _entry,
    "boundary": _boundary,
    "revert": _revert,
}


def _path_parent(told: Mapping[str, Any]) -> str | None:
    if "path_parent" not in told:
        return ""
    parent = told["path_parent"]
    return None if parent is None else _filled(parent, ID, "path_parent")


def _content(value: object, name: str = "content") -> Content:
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not all(isinstance(b, Mapping) and isinstance(b.get("type"), str) for b in value):
        raise BadItem(f"{name} is neither text nor content blocks")
    return value


def _moment(value: object, name: str) -> datetime:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
        if moment is None or moment.tzinfo is None:
            raise BadItem(f"{name} is no moment")
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadItem(f"{name} is no moment") from None


def _mapping(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadItem(f"{name} is no object")
    return value


def _switch(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise BadItem(f"{name} is neither true nor false")
    return value


def _short(value: object, most: int, name: str) -> str:
    if not isinstance(value, str) or len(value) > most or _UNUSABLE.search(value):
        raise BadItem(f"{name} is no text, too long, or holds what no name does")
    return value


def _filled(value: object, most: int, name: str) -> str:
    text = _short(value, most, name)
    if not text:
        raise BadItem(f"{name} is empty")
    return text


def _one_of(value: object, known: tuple[str, ...], name: str) -> str:
    if not isinstance(value, str) or value not in known:
        raise BadItem(f"an unknown {name}")
    return value


def _system(value: object) -> Any:
    return value if value is None else _content(value, "system")


def _tools(value: object) -> Any:
    if value is not None and not (isinstance(value, list) and all(isinstance(one, Mapping) for one in value)):
        raise BadItem("tools are no list of objects")
    return value


def _source(value: object) -> str:
    source = _short(value, SOURCE, "source")
    if not _SOURCE.fullmatch(source):
        raise BadItem("source is no name of a format")
    return source


_COLUMNS: dict[str, Callable[[Any], Any]] = {
    "title": lambda value: _short(value, TITLE, "title"),
    "model": lambda value: _short(value, MODEL, "model"),
    "system": _system,
    "tools": _tools,
    "metadata": lambda value: dict(_mapping(value, "metadata")),
    "thread": lambda value: _one_of(value, THREADS, "thread"),
    "source": _source,
}
