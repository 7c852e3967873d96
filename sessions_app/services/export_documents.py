"""A session as a chat document: its context as a request of the format, and its whole history in a field of ours.

One valid JSON document, written line by line, so that whoever reads the history needs one item at a time:

    {"model":…,"system":…,"tools":…,"messages":[…],
    "compactionService":{"version":1,"session":{…},"history":[
    {"type":"message",…},
    {"type":"boundary",…}
    ]}}
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from sessions_app import selectors
from sessions_app.models import CompactBoundary, Message, Session, TranscriptEntry
from sessions_app.policy import Policy
from sessions_app.services.export_boundaries import CHUNK, draft_of, unnamed_sources
from sessions_app.services.export_rows import ExportRows
from sessions_app.transcript.entries import TranscriptMessage, TranscriptNote, TranscriptRevert
from sessions_app.transcript.exported import MARK, boundary_as_json
from sessions_app.transcript.history_items import (
    HISTORY,
    VERSION,
    boundary_item,
    entry_item,
    message_item,
    revert_item,
    session_item,
)
from sessions_app.transcript.json_values import dump_line
from sessions_app.transcript.messages import MessageKind, Role
from sessions_app.transcript.request import build_request

COLUMNS = ("title", "model", "system", "tools", "metadata", "thread", "source")


def document_chunks(*, session: Session, writer: ModuleType, policy: Policy) -> Iterator[bytes]:
    """The lines of the document, read as they are asked for; the context is that of the call."""
    view = selectors.context_view(session=session)
    request = build_request(view=view, system=session.system, tools=session.tools)
    document = writer.document(
        model=session.model, system=request.system, tools=request.tools, messages=request.messages
    )
    # What came while the view was read is in it; so it is in the history too.
    last = max([session.last_position, *(item.position for item in view.items)])
    rows = ExportRows(session=session, batch=policy.import_batch_lines, last=last)
    items = _items(rows=rows, events=_Events(session=session))
    return _lines(document, _head(session), items)


def _head(session: Session) -> dict[str, Any]:
    columns = {name: getattr(session, name) for name in COLUMNS}
    columns["metadata"] = columns["metadata"] or {}
    told = session_item(id=str(session.uuid), external_id=session.external_id, columns=columns)
    return {"version": VERSION, "session": told}


def _lines(document: dict[str, Any], head: dict[str, Any], items: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    yield dump_line(value=document)[:-2] + b",\n"
    yield b'"%s":%s,"%s":[\n' % (MARK.encode(), dump_line(value=head)[:-2], HISTORY.encode())
    waiting = b""
    for item in items:
        if waiting:
            yield waiting[:-1] + b",\n"
        waiting = dump_line(value=item)
    yield waiting
    yield b"]}}\n"


def _items(*, rows: ExportRows, events: _Events) -> Iterator[dict[str, Any]]:
    """Messages in order; behind each the side entries that came after it, and what was done about boundaries then."""
    for leading in rows.entries(first=0, last=0):
        yield _entry(leading, rows)
    for batch in rows.batches():
        entries = rows.entries(first=batch[0].position, last=batch[-1].position)
        entry = next(entries, None)
        for row in batch:
            yield _message(row, rows)
            while entry is not None and entry.after_position == row.position:
                yield _entry(entry, rows)
                entry = next(entries, None)
            yield from events.up_to(position=row.position, rows=rows)


def _message(row: Message, rows: ExportRows) -> dict[str, Any]:
    value = TranscriptMessage(
        line_number=0,
        uuid=row.uuid,
        parent_uuid=row.parent_uuid,
        path_parent=_told_parent(row.path_parent, rows),
        role=Role(row.role),
        content=row.content,
        kind=MessageKind(row.kind),
        message_id=row.message_id,
        model=row.model,
        sent_at=row.sent_at,
        usage=row.usage,
        is_meta=row.is_meta,
        is_sidechain=row.is_sidechain,
        envelope=row.envelope,
    )
    return message_item(message=value)


def _entry(row: TranscriptEntry, rows: ExportRows) -> dict[str, Any]:
    note = TranscriptNote(
        line_number=row.line_number,
        key=row.key,
        uuid="",
        parent_uuid="",
        path_parent=_told_parent(row.anchor_position, rows),
        type=row.type,
        subtype=row.subtype,
        raw=row.raw,
    )
    return entry_item(note=note)


def _told_parent(position: int | None, rows: ExportRows) -> str | None:
    """Uuid of the message there, None for none (0), "" where it is not known."""
    return "" if position is None else rows.uuid_at(position)


class _Events:
    """What was done about boundaries, in order: each was written, and some were taken back later."""

    def __init__(self, *, session: Session) -> None:
        self._rows = CompactBoundary.objects.filter(session=session)
        self._unnamed = unnamed_sources(session)
        self._next = 0
        # (position, key of the newest boundary then, whether one was taken back, its key)
        self._events: list[tuple[int, int, bool, int]] = []
        names = ("pk", "committed_at_position", "reverted_at", "reverted_position", "reverted_after")
        for pk, written_at, reverted_at, position, newest in self._rows.values_list(*names).iterator(chunk_size=CHUNK):
            self._events.append((written_at, pk, False, pk))
            if reverted_at is not None:
                # Where the place is not known, nothing is shown that was made through it.
                self._events.append((max(position or 0, written_at), max(newest or 0, pk), True, pk))
        self._events.sort()

    def up_to(self, *, position: int, rows: ExportRows) -> Iterator[dict[str, Any]]:
        """The items of what was done up to the position, each once."""
        while self._next < len(self._events) and self._events[self._next][0] <= position:
            *_, is_revert, pk = self._events[self._next]
            self._next += 1
            related = self._rows.select_related("base", "restores", "reverted_with").prefetch_related("attachments")
            row = related.get(pk=pk)
            yield self._revert(row) if is_revert else self._boundary(row, rows)

    def _boundary(self, row: CompactBoundary, rows: ExportRows) -> dict[str, Any]:
        written = boundary_as_json(
            draft=draft_of(row),
            base=self._name(row.base),
            trigger=row.trigger,
            tokens_before=row.tokens_before,
            tokens_after=row.tokens_after,
            uuid_at=rows.uuid_at,
        )
        return boundary_item(key=self._key(row), written=written, restores=self._name(row.restores))

    def _revert(self, row: CompactBoundary) -> dict[str, Any]:
        moment = row.reverted_at or row.created_at
        fell_with = self._name(row.reverted_with)
        value = TranscriptRevert(line_number=0, key=self._key(row), reverted_at=moment, fell_with=fell_with)
        return revert_item(revert=value)

    def _name(self, row: CompactBoundary | None) -> str | None:
        return self._key(row) if row else None

    def _key(self, row: CompactBoundary) -> str:
        """What the boundary is known by wherever its history is: the uuid that it had where it was written."""
        return row.source_key or self._unnamed.get(row.pk) or str(row.uuid)
