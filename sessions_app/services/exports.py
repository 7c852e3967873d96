"""The way back out: a session as the transcript that its client resumes, with our compactions as its own.

History first, to the letter and in order; what is resumed is the context as it is now. So boundaries in force are
written at their places, those that were taken back are not. Read in batches: memory holds one batch, and of each
boundary what it kept. Chat documents have a module of their own: `services/export_documents.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sessions_app.models import CompactBoundary, Message, Session, TranscriptEntry
from sessions_app.policy import Policy
from sessions_app.services.export_boundaries import SUMMARY, Boundaries, Front, KeptRows, draft_of, live
from sessions_app.services.export_documents import document_chunks
from sessions_app.services.export_rows import ExportRows
from sessions_app.transcript.boundary import Boundary, summary_uuid
from sessions_app.transcript.exported import REVERTED, boundary_as_json, copy_uuid, mark_of
from sessions_app.transcript.formats import DOCUMENT_WRITERS, LINE_WRITERS, WRITERS
from sessions_app.transcript.formats import claude_code_export as lines
from sessions_app.transcript.formats.claude_code_export import Entry, Kept, Where
from sessions_app.transcript.json_values import dump_line
from sessions_app.transcript.messages import Role, human_text

PROMPT_LENGTH = 200  # characters of the last prompt in the line that names the leaf


class ExportRefused(Exception):
    """What is asked for can't be written: `code` for programs, the message is one line for a person."""

    def __init__(self, *, code: str, detail: str) -> None:
        self.code = code
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class Export:
    """A session on its way out. `chunks`: whole lines, read as they are asked for; `is_found_by_name`: whether its
    client looks for the file by this very name."""

    name: str
    media_type: str
    chunks: Iterator[bytes]
    is_found_by_name: bool = False


def export_session(*, session: Session, format_name: str, policy: Policy) -> Export:
    """The session as it stands now, in a transcript format; what is appended meanwhile is left out.

    Raises ExportRefused: an unknown format, or no messages.
    """
    writer = WRITERS.get(format_name)
    if writer is None:
        known = ", ".join(WRITERS)
        raise ExportRefused(
            code="unknown_format", detail=f"format {format_name[:60]!r} can not be written; known: {known}"
        )
    if not session.last_position:
        raise ExportRefused(code="nothing_to_export", detail="the session has no messages")
    if format_name in DOCUMENT_WRITERS:
        chunks = document_chunks(session=session, writer=writer, policy=policy)
    else:
        chunks = (dump_line(value=line) for line in _Export(session=session, batch=policy.import_batch_lines).lines())
    return Export(
        name=_session_id(session) + writer.SUFFIX,
        media_type=writer.MEDIA_TYPE,
        chunks=chunks,
        is_found_by_name=format_name in LINE_WRITERS,
    )


class _Export:
    """One session on its way out: where the lines that come hang, as far as they have been written."""

    def __init__(self, *, session: Session, batch: int) -> None:
        self.session = session
        self.batch = batch
        self.rows = ExportRows(session=session, batch=batch, last=session.last_position)
        self.where = Where(session_id=_session_id(session), cwd=_cwd(session))
        self.boundaries = Boundaries(session=session)
        self.fronts: list[Front] = []
        # Uuid of a line that is no part of the chain any more -> the line to hang on in its place.
        self.moved: dict[str, str | None] = {}
        self.last_main = 0
        self.prompt = ""
        self.names_leaf = False

    def lines(self) -> Iterator[dict[str, Any]]:
        told = {name: getattr(self.session, name) for name in ("system", "tools")}
        if any(told.values()):
            yield lines.session_line(columns=told, where=self.where)
        for entry in self.rows.entries(first=0, last=0):
            yield from self._note(0, entry)
        for batch in self.rows.batches():
            yield from self._batch(batch)
        if self.names_leaf and (leaf := self._leaf()):
            yield lines.leaf_line(leaf=leaf, prompt=self.prompt, where=self.where)

    def _batch(self, batch: list[Message]) -> Iterator[dict[str, Any]]:
        entries = self.rows.entries(first=batch[0].position, last=batch[-1].position)
        entry = next(entries, None)
        for row in batch:
            yield self._message(row)
            while entry is not None and entry.after_position == row.position:
                yield from self._note(row.position, entry)
                entry = next(entries, None)
            yield from self._ours(row.position)

    def _leaf(self) -> str | None:
        front = self.fronts[0] if self.fronts else None
        if front is None or front.tail is not None or front.upto < self.last_main:
            return self._living(self.rows.uuid_at(self.last_main))
        return front.leaf or front.line

    # Messages

    def _message(self, row: Message) -> dict[str, Any]:
        line = lines.message_line(entry=self._entry(row), where=self.where)
        if row.is_sidechain:
            return line
        self.last_main = row.position
        if row.kind == SUMMARY:
            self._clients_summary(row)
        elif row.left_path_at is None:
            # The conversation has gone on: a clearing is passed for good.
            self.fronts = [front for front in self.fronts if front.tail is None]
        if row.is_prompt:
            self.prompt = human_text(row.as_value())[:PROMPT_LENGTH]
        return line

    def _entry(self, row: Message) -> Entry:
        given = self._given_parent(row)
        dead = row.kind == SUMMARY and row.parent_uuid in self.moved
        parent = given if dead else self._parent(row, given)
        return Entry(
            uuid=row.uuid,
            role=row.role,
            content=row.content,
            parent=parent,
            sent_at=row.sent_at,
            kind=row.kind,
            message_id=row.message_id,
            model=row.model or (self.session.model if row.role == Role.ASSISTANT else ""),
            usage=row.usage,
            is_meta=row.is_meta,
            is_sidechain=row.is_sidechain,
            envelope=row.envelope,
            changed_parent=parent != given,
            given_parent=given,
            dead=dead,
        )

    def _given_parent(self, row: Message) -> str | None:
        """The parent that its line named when it came, else the message that it was taken to follow."""
        if row.envelope and "parentUuid" in row.envelope:
            parent = row.envelope["parentUuid"]
            return parent if isinstance(parent, str) else None
        return self.rows.uuid_at(self._path_parent(row))

    def _path_parent(self, row: Message) -> int:
        return self.last_main if row.path_parent is None else row.path_parent

    def _parent(self, row: Message, given: str | None) -> str | None:
        at = self._path_parent(row)
        follows = at > 0 and not row.is_sidechain and row.kind != SUMMARY
        front = next((one for one in reversed(self.fronts) if one.stands_for(at)), None) if follows else None
        instead = front.instead_of(at) if front else None
        return instead or self._living(given)

    def _living(self, uuid: str | None) -> str | None:
        return self.moved[uuid] if uuid is not None and uuid in self.moved else uuid

    def _clients_summary(self, row: Message) -> None:
        """The summary of a client's own boundary: the context begins with it, or goes past it if it was taken back."""
        if row.parent_uuid in self.moved:
            self.moved[row.uuid] = self.moved[row.parent_uuid]
        elif self.boundaries.is_in_force(row.parent_uuid):
            self.boundaries.begins_with(self.boundaries.told_by(row.parent_uuid), row.uuid)
            self.fronts = []

    # What stands between messages

    def _note(self, position: int, entry: TranscriptEntry) -> Iterator[dict[str, Any]]:
        order = self.boundaries.order_of(entry.key)
        if order is not None:
            yield from self._ours(position, before=order)
        yield self._raw(entry)

    def _raw(self, entry: TranscriptEntry) -> dict[str, Any]:
        """A side line as it came, but for what hangs on a boundary that was taken back."""
        raw: Mapping[str, Any] = entry.raw
        mark = mark_of(raw)
        of, parent = _text(mark.get("of")), _text(raw.get("parentUuid"))
        self.names_leaf = self.names_leaf or (entry.type == "last-prompt" and bool(raw.get("leafUuid")))
        if entry.subtype == REVERTED or self.boundaries.was_taken_back(entry.key):
            self.moved[entry.key] = self._living_leaf(entry.after_position)
            return lines.reverted_line(raw=raw)
        if of in self.moved:
            self.moved[entry.key] = self.moved[of]
            return lines.set_aside(raw)
        if mark.get("boundary") and self.boundaries.is_in_force(entry.key):
            self._stands_again(entry.key, raw=raw)
        elif mark.get("part") and self.boundaries.is_in_force(of):
            if mark["part"] == "summary":
                self._summary_again(of=of, line=entry.key)
            return lines.set_aside(raw) if self._is_passed_over(of) else dict(raw)
        if parent in self.moved:
            return lines.moved_line(raw=raw, parent=self._living(parent))
        return dict(raw)

    def _stands_again(self, line: str, *, raw: Mapping[str, Any]) -> None:
        """A boundary that came with an export of ours: its lines are as they came, and what follows hangs on them."""
        boundary = self.boundaries.told_by(line)
        if not boundary.kind.summarizes:
            self.fronts.append(Front(upto=boundary.committed_at, line=line, tail=self.boundaries.leaf(boundary)))
            return
        kept = self.boundaries.kept(boundary)
        metadata = raw.get("compactMetadata")
        has_segment = isinstance(metadata, Mapping) and "preservedMessages" in metadata
        copied = {} if has_segment and not kept.before else _copy_uuids(line, kept)
        self.fronts = [kept.front(boundary=boundary, line=line, copies=copied)]

    def _summary_again(self, *, of: str, line: str) -> None:
        self.boundaries.begins_with(self.boundaries.told_by(of), line)
        if self.fronts and self.fronts[0].line == of:
            self.fronts[0].line = line

    def _is_passed_over(self, line: str) -> bool:
        return self.boundaries.is_passed_over(self.boundaries.told_by(line))

    def _living_leaf(self, position: int) -> str | None:
        """The line that the conversation had come to at this position, past what was taken back."""
        rows = live(self.session).filter(position__lte=position).order_by("-position").values_list("position", "uuid")
        at, uuid = next(((at, uuid) for at, uuid in rows.iterator(chunk_size=10) if uuid not in self.moved), (0, None))
        front = next((one for one in reversed(self.fronts) if one.stands_for(at)), None) if at else None
        return (front.instead_of(at) if front else None) or uuid

    # Our own boundaries

    def _ours(self, position: int, *, before: int | None = None) -> Iterator[dict[str, Any]]:
        for row in self.boundaries.take(position=position, before=before):
            if row.as_value().kind.summarizes:
                yield from self._summarizing(row)
            else:
                yield self._clearing(row)

    def _written(self, row: CompactBoundary) -> dict[str, Any]:
        return boundary_as_json(
            draft=draft_of(row),
            base=self.boundaries.line_of(row.base) if row.base else None,
            trigger=row.trigger,
            tokens_before=row.tokens_before,
            tokens_after=row.tokens_after,
            uuid_at=self.rows.uuid_at,
        )

    def _clearing(self, row: CompactBoundary) -> dict[str, Any]:
        boundary = row.as_value()
        leaf = self.boundaries.leaf(boundary)
        front = next((one for one in reversed(self.fronts) if one.stands_for(leaf)), None)
        parent = (front.instead_of(leaf) if front else None) or self._living(self.rows.uuid_at(leaf))
        self.fronts.append(Front(upto=boundary.committed_at, line=boundary.id, tail=leaf))
        return lines.clearing_line(boundary=boundary, parent=parent, written=self._written(row), where=self.where)

    def _summarizing(self, row: CompactBoundary) -> Iterator[dict[str, Any]]:
        boundary = row.as_value()
        kept = self.boundaries.kept(boundary)
        summary = summary_uuid(boundary_id=boundary.id)
        leaf = self.boundaries.leaf(boundary)
        has_segment = kept.has_segment(leaf=leaf)
        copies = {} if has_segment else _copy_uuids(boundary.id, kept)
        yield lines.boundary_line(
            boundary=boundary,
            summary_uuid=summary,
            logical_parent=self.rows.uuid_at(leaf),
            kept=Kept(before=kept.before, after=[uuid for _, uuid in kept.after] if has_segment else []),
            summarized=self.boundaries.summarized(boundary, kept),
            instructions=row.instructions,
            written=self._written(row),
            where=self.where,
        )
        yield self._told_aside(boundary, lines.summary_line(boundary=boundary, summary_uuid=summary, where=self.where))
        self.boundaries.begins_with(row, summary)
        yield from self._copies(boundary, copies=copies, parent=summary)
        self.fronts = [kept.front(boundary=boundary, line=summary, copies=copies)]

    def _told_aside(self, boundary: Boundary, line: dict[str, Any]) -> dict[str, Any]:
        """Its client goes on from the newest line that nothing hangs on; that must not be an old summary."""
        return lines.set_aside(line) if self.boundaries.is_passed_over(boundary) else line

    def _copies(self, boundary: Boundary, *, copies: Mapping[int, str], parent: str) -> Iterator[dict[str, Any]]:
        rows = Message.objects.filter(session=self.session, position__in=copies).order_by("position")
        for row in rows.iterator(chunk_size=self.batch):
            line = lines.message_line(entry=self._entry(row), where=self.where)
            uuid = copies[row.position]
            copy = lines.kept_copy(line=line, uuid=uuid, parent=parent, boundary_uuid=boundary.id)
            yield self._told_aside(boundary, copy)
            parent = uuid


def _copy_uuids(boundary_line: str, kept: KeptRows) -> dict[int, str]:
    """The uuids of the second lines of what is kept behind a summary, by position."""
    return {position: copy_uuid(boundary_line=boundary_line, uuid=uuid) for position, uuid in kept.messages_after}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _session_id(session: Session) -> str:
    """The name of the file: its client's own id where that is one, else ours. Clients take nothing but a uuid."""
    try:
        return str(UUID(session.external_id or ""))
    except ValueError:
        return str(session.uuid)


def _cwd(session: Session) -> str:
    cwd = session.metadata.get("cwd") if isinstance(session.metadata, Mapping) else None
    return cwd if isinstance(cwd, str) else ""
