"""One session of a transcript file on its way in: batch by batch, each line stored once, each problem told.

Memory holds one batch of lines (policy: import_batch_lines, import_batch_bytes), whatever the file's size.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from django.db.models import Q
from django.utils import timezone

from sessions_app import selectors
from sessions_app.catalog import tokenizer_family
from sessions_app.models import CompactBoundary, Message, Session, TranscriptEntry
from sessions_app.models.boundaries import BoundaryQuerySet
from sessions_app.models.fields import storable_text
from sessions_app.policy import Policy
from sessions_app.services import accounting
from sessions_app.services.append import lock_session, store_messages
from sessions_app.services.boundaries import record_imported_boundary
from sessions_app.services.incoming import IncomingMessage
from sessions_app.services.revert_marks import reverted_values
from sessions_app.services.sessions import update_session
from sessions_app.services.transcript_files import FoundSession
from sessions_app.transcript.boundary import BoundaryDraft, BoundaryKind, Placement, PreservedSegment
from sessions_app.transcript.entries import (
    ImportedBoundary,
    LineProblem,
    ParsedLine,
    TranscriptBoundary,
    TranscriptMessage,
    TranscriptNote,
    TranscriptRevert,
    TranscriptSession,
)
from sessions_app.transcript.exported import BadMark, Written, draft_of
from sessions_app.transcript.messages import MessageKind, human_text, text_of
from sessions_app.transcript.tokens import estimate_text
from sessions_app.transcript.view import summary_content

TITLE_LENGTH = 120
UNKNOWN_TRIGGER = CompactBoundary.Trigger.MANUAL

Kept = TranscriptMessage | TranscriptNote | TranscriptBoundary | TranscriptRevert  # what a batch holds


@dataclass(slots=True)
class SessionReport:
    """What an import did to one session."""

    session: Session
    created: bool
    messages: int = 0
    duplicates: int = 0
    entries: int = 0
    boundaries: int = 0


@dataclass(slots=True)
class Problems:
    """Lines (by number) that were not understood, with the reason: the first `most` of them; `count` counts all."""

    most: int
    kept: list[LineProblem] = field(default_factory=list)
    count: int = 0

    def note(self, problem: LineProblem) -> None:
        self.count += 1
        if self.count <= self.most:
            self.kept.append(problem)


def store_session(
    *, found: FoundSession, report: SessionReport, problems: Problems, policy: Policy, now: datetime
) -> None:
    """Store what was found into the report's session, and count it there. The caller is in a transaction."""
    job = _Import(found=found, report=report, problems=problems, policy=policy, now=now)
    lock_session(session_id=report.session.pk)
    for parsed, size in found.lines:
        job.take(parsed, size=size)
    job.finish()


class _Import:
    """A batch of parsed lines, and what became of those before it."""

    def __init__(
        self, *, found: FoundSession, report: SessionReport, problems: Problems, policy: Policy, now: datetime
    ) -> None:
        self.found = found
        self.report = report
        self.problems = problems
        self.session = report.session
        self.policy = policy
        self.now = now
        self.batch: list[Kept] = []
        self.batch_bytes = 0
        self.title, self.title_rank = "", 0
        self.last_position = 0
        # Lines that tell a boundary which this session holds as its own -> what they hang on.
        self.known: dict[str, str | None] = {}
        self.own: dict[str, bool] = {}
        self.restored: set[str] = set()  # names of the boundaries that came with an export

    def take(self, parsed: Sequence[ParsedLine], *, size: int) -> None:
        """One line of `size` bytes. A batch ends by lines or by bytes, whichever comes first."""
        self.batch_bytes += size
        for item in parsed:
            if isinstance(item, LineProblem):
                self.problems.note(item)
                continue
            if isinstance(item, TranscriptSession):
                self._make_known(item)
                continue
            if isinstance(item, TranscriptNote) and item.ours and self._is_own(item.ours):
                self.known[item.uuid] = item.parent_uuid
                continue
            self.batch.append(item)
            if isinstance(item, TranscriptNote) and item.title and item.title_rank >= self.title_rank:
                self.title, self.title_rank = item.title, item.title_rank
            full = self.batch_bytes >= self.policy.import_batch_bytes
            if self._ends_batch(item) or full or len(self.batch) >= self.policy.import_batch_lines:
                self.flush()

    def _ends_batch(self, item: Kept) -> bool:
        """A boundary changes how everything after it is counted, so nothing may share its batch."""
        if isinstance(item, TranscriptMessage):
            return item.kind == MessageKind.COMPACT_SUMMARY and not self.found.is_ours
        return not isinstance(item, TranscriptNote) or item.boundary is not None

    def _make_known(self, told: TranscriptSession) -> None:
        """System prompt and tools, where the session is new and nothing was counted without them."""
        if self.report.created and not self.batch and not self.session.last_position:
            self.session = update_session(session=self.session, values=dict(told.columns))

    def _is_own(self, uuid: str) -> bool:
        """Whether the boundary of an exported line was written in this very session."""
        if uuid not in self.own:
            try:
                rows = CompactBoundary.objects.filter(session=self.session, uuid=UUID(uuid))
            except ValueError:
                return False
            self.own[uuid] = rows.exists()
        return self.own[uuid]

    def finish(self) -> None:
        self.flush()
        self.session.refresh_from_db()
        self.report.session = self.session
        grew = self.report.messages or self.report.entries
        title = self.title or ("" if self.session.title else self._first_prompt())
        if grew and title and not self.found.is_ours:
            self.session.title = storable_text(" ".join(title.split()))[:TITLE_LENGTH]
            self.session.save(update_fields=["title"])

    def flush(self) -> None:
        batch, self.batch, self.batch_bytes = self.batch, [], 0
        if not batch:
            return
        parents = _Parents(session=self.session, batch=batch, known=self.known)
        told, note_uuid = self._boundary_before(batch[-1])
        if told is None:
            batch[-1] = self._without_boundary(batch[-1])
        messages = [item for item in batch if isinstance(item, TranscriptMessage)]
        incoming = [_incoming(item, parents) for item in messages]
        self.session, appended = store_messages(session_id=self.session.pk, incoming=incoming, now=self.now)
        self.report.messages += len(appended.stored)
        self.report.duplicates += len(appended.duplicates)
        for index in appended.conflicts:
            reason = f"uuid {messages[index].uuid} is stored already with other content; the first stays"
            self.problems.note(LineProblem(line_number=messages[index].line_number, reason=reason))
        new = {row.uuid: row for row in appended.stored}
        fresh_notes = self._store_notes(batch=batch, parents=parents, new=new)
        last = batch[-1]
        if isinstance(last, TranscriptBoundary):
            self._record_told(last)
        elif isinstance(last, TranscriptRevert):
            self._take_back(last)
        elif isinstance(last, TranscriptNote):
            if last.boundary and last.key in fresh_notes:
                self._record_note(last, told=last.boundary)
        elif told is not None and last.uuid in new:
            self._record_summary(last, told=told, note_uuid=note_uuid, position=new[last.uuid].position)

    def _without_boundary(self, item: Kept) -> Kept:
        """A summary whose compaction the file does not hold is text like any other: nothing else carries it."""
        if not self._is_summary(item) or not isinstance(item, TranscriptMessage):
            return item
        reason = "a summary without its compact_boundary; kept as a message"
        self.problems.note(LineProblem(line_number=item.line_number, reason=reason, kept=True))
        return replace(item, kind=MessageKind.NORMAL, is_meta=True)

    def _is_summary(self, item: Kept) -> bool:
        """Whether a client's own compaction wrote it; in an export of ours its boundary is an item of its own."""
        is_summary = isinstance(item, TranscriptMessage) and item.kind == MessageKind.COMPACT_SUMMARY
        return is_summary and not self.found.is_ours

    def _store_notes(self, *, batch: Sequence[Kept], parents: _Parents, new: Mapping[str, Message]) -> set[str]:
        """Keep the lines that are no messages; gives back the keys that were not there before."""
        parents.learn({uuid: row.position for uuid, row in new.items()})
        notes = [item for item in batch if isinstance(item, TranscriptNote)]
        known = set(
            TranscriptEntry.objects.filter(session=self.session, key__in=[n.key for n in notes]).values_list(
                "key", flat=True
            )
        )
        rows: dict[str, TranscriptEntry] = {}
        for item in batch:
            if isinstance(item, TranscriptMessage):
                self.last_position = parents.position_of(item.uuid) or self.last_position
            elif isinstance(item, TranscriptNote) and item.key not in known and item.key not in rows:
                rows[item.key] = self._note_row(item, parents)
        TranscriptEntry.objects.bulk_create(rows.values())
        self.report.entries += len(rows)
        return set(rows)

    def _note_row(self, note: TranscriptNote, parents: _Parents) -> TranscriptEntry:
        return TranscriptEntry(
            session=self.session,
            key=storable_text(note.key)[:200],
            line_number=note.line_number,
            after_position=self.last_position,
            anchor_position=parents.anchor_of_note(note),
            type=storable_text(note.type),
            subtype=storable_text(note.subtype),
            raw=note.raw,
        )

    def _record_note(self, note: TranscriptNote, *, told: ImportedBoundary) -> None:
        """A boundary that its own line tells whole; a client's summary comes in a line of its own."""
        if told.written:
            self._record_written(note.key, line_number=note.line_number, written=told.written)
        elif told.is_microcompact:
            self._record_micro(told, source_key=note.key)

    def _boundaries_named(self, name: str | None) -> BoundaryQuerySet:
        """Those that the session has by this name: of the line that told it, or of its own."""
        named = Q(source_key=name or None)
        with contextlib.suppress(ValueError):
            named |= Q(uuid=UUID(name or ""))
        return CompactBoundary.objects.filter(named, session=self.session)

    def _record_told(self, told: TranscriptBoundary) -> None:
        if self._boundaries_named(told.key).exists():
            return
        row = self._record_written(told.key, line_number=told.line_number, written=told.written)
        if row is not None:
            self.restored.add(told.key)
            first = self._boundaries_named(told.restores).first()
            CompactBoundary.objects.filter(pk=row.pk).update(restores=first.lineage if first else None)

    def _take_back(self, told: TranscriptRevert) -> None:
        """A boundary that came with this file was taken back at this place; one that was here before is left alone."""
        if told.key not in self.restored:
            return
        self.session = lock_session(session_id=self.session.pk)
        by = self._boundaries_named(told.fell_with).first()
        marks = reverted_values(session=self.session, now=told.reverted_at, position=self.session.last_position, by=by)
        self._boundaries_named(told.key).update(**marks)
        accounting.recount_as_before(session=self.session, view=selectors.context_view(session=self.session))
        self.session.save()

    def _record_written(self, key: str, *, line_number: int, written: Written) -> CompactBoundary | None:
        """A boundary of ours, restored as it was; None where what it names is not there, which is reported."""
        rows = Message.objects.filter(session=self.session, uuid__in=written.uuids)
        positions = dict(rows.values_list("uuid", "position"))
        base = self._boundaries_named(written.base).first()
        try:
            if written.base and base is None:
                raise BadMark("the boundary below it is not there")
            draft = draft_of(written=written, position_of=positions.get, base=base.as_value() if base else None)
        except BadMark as bad:
            reason = f"a boundary of an export: {bad}{'' if self.found.is_ours else '; kept raw'}"
            self.problems.note(LineProblem(line_number=line_number, reason=reason, kept=not self.found.is_ours))
            return None
        told = ImportedBoundary(
            is_microcompact=not draft.kind.summarizes,
            trigger=written.trigger,
            tokens_before=written.tokens_before,
            tokens_after=written.tokens_after,
        )
        return self._record(draft, told=told, source_key=key)

    def _record_micro(self, told: ImportedBoundary, *, source_key: str) -> None:
        if not told.cleared_tool_use_ids:
            return
        draft = BoundaryDraft(
            kind=BoundaryKind.MICROCOMPACT, covers_to=0, cleared_tool_use_ids=told.cleared_tool_use_ids
        )
        self._record(draft, told=told, source_key=source_key)

    def _record_summary(
        self, message: TranscriptMessage, *, told: ImportedBoundary, note_uuid: str, position: int
    ) -> None:
        if told.reverted:
            return
        summary = text_of(message.content).strip()
        preserved = self._preserved(told.preserved_uuids, before=position)
        early = bool(told.anchor_uuid) and told.anchor_uuid == note_uuid
        draft = BoundaryDraft(
            kind=BoundaryKind.PARTIAL_FROM if preserved and early else BoundaryKind.FULL,
            covers_to=position - 1,
            summary=summary,
            summary_tokens=estimate_text(
                text=summary_content(summary=summary), family=tokenizer_family(self.session.model)
            ),
            summarizer=self.found.reader.NAME if self.found.reader else "",
            instructions=told.instructions,
            preserved=PreservedSegment(
                first=preserved[0],
                last=preserved[1],
                placement=Placement.BEFORE_SUMMARY if early else Placement.AFTER_SUMMARY,
            )
            if preserved
            else None,
        )
        self._record(draft, told=told, source_key=message.parent_uuid or "")

    def _boundary_before(self, item: Kept) -> tuple[ImportedBoundary | None, str]:
        """The compaction that a summary belongs to, as its boundary line tells it, and that line's uuid.

        The boundary line has ended the batch before this one, so it is stored already.
        """
        if not self._is_summary(item) or not isinstance(item, TranscriptMessage) or self.found.reader is None:
            return None, ""
        entry = TranscriptEntry.objects.filter(session=self.session, key=item.parent_uuid or "").first()
        if entry is None or item.is_sidechain or not text_of(item.content).strip():
            return None, ""
        note: TranscriptNote = self.found.reader.read_note(entry=entry.raw, line_number=entry.line_number)
        return (note.boundary, note.uuid) if note.boundary and not note.boundary.is_microcompact else (None, "")

    def _preserved(self, uuids: Sequence[str], *, before: int) -> tuple[int, int] | None:
        positions = Message.objects.filter(session=self.session, uuid__in=uuids, position__lt=before).values_list(
            "position", flat=True
        )
        found = sorted(positions)
        return (found[0], found[-1]) if found else None

    def _record(self, draft: BoundaryDraft, *, told: ImportedBoundary, source_key: str) -> CompactBoundary:
        self.session = lock_session(session_id=self.session.pk)
        before = told.tokens_before
        row = record_imported_boundary(
            session=self.session,
            draft=draft,
            trigger=told.trigger if told.trigger in CompactBoundary.Trigger.values else UNKNOWN_TRIGGER,
            tokens_before=before if before is not None else self.session.context_tokens,
            tokens_after=told.tokens_after,
            now=timezone.now(),
            source_key=storable_text(source_key)[:200],
        )
        self.report.boundaries += 1
        return row

    def _first_prompt(self) -> str:
        first = Message.objects.filter(session=self.session, is_prompt=True).order_by("position").first()
        return human_text(first.as_value()).strip() if first else ""


ROOT = 0  # the anchor of what hangs on nothing; positions begin at 1


class _Parents:
    """Finds the message that a line hangs on, through lines that are no messages, at two queries a batch."""

    def __init__(
        self,
        *,
        session: Session,
        batch: Sequence[Kept],
        known: Mapping[str, str | None],
    ) -> None:
        notes = [item for item in batch if isinstance(item, TranscriptNote)]
        self.note_parent = {**known, **{note.uuid: note.parent_uuid for note in notes if note.uuid}}
        self.boundaries = {note.uuid for note in notes if note.boundary}
        self.message_uuids = {item.uuid for item in batch if isinstance(item, TranscriptMessage)}
        lines = [item for item in batch if isinstance(item, TranscriptMessage | TranscriptNote)]
        outside = {item.path_parent or item.parent_uuid for item in lines} | set(known.values())
        outside -= {None, ""}
        outside -= self.message_uuids | set(self.note_parent)
        entries = TranscriptEntry.objects.filter(session=session, key__in=outside)
        self.entry_anchor = dict(entries.values_list("key", "anchor_position"))
        stored = Message.objects.filter(session=session, uuid__in=outside | self.message_uuids)
        self.positions: dict[str, int] = dict(stored.values_list("uuid", "position"))

    def learn(self, positions: Mapping[str, int]) -> None:
        self.positions.update(positions)

    def position_of(self, uuid: str) -> int | None:
        return self.positions.get(uuid)

    def resolve(self, item: TranscriptMessage | TranscriptNote) -> tuple[str, int | None]:
        """The uuid of the message that the line hangs on, else ("", position): ROOT, or None where it can't be told.

        A client's compact boundary starts a new root in its file, but not in the conversation.
        """
        if item.path_parent != "":
            is_here = item.path_parent in self.message_uuids or item.path_parent in self.positions
            return (item.path_parent or "", None) if is_here else ("", ROOT if item.path_parent is None else None)
        at, parent = item.uuid, item.parent_uuid
        seen: set[str] = set()
        while parent in self.note_parent and parent not in seen:
            seen.add(parent)
            at, parent = parent, self.note_parent[parent]
        if parent is None:
            return "", None if at in self.boundaries else ROOT
        if parent in self.message_uuids or parent in self.positions:
            return parent, None
        return "", None if parent in seen else self.entry_anchor.get(parent)

    def anchor_of_note(self, note: TranscriptNote) -> int | None:
        uuid, position = self.resolve(note)
        return self.positions.get(uuid) if uuid else position


def _incoming(item: TranscriptMessage, parents: _Parents) -> IncomingMessage:
    parent_uuid, parent_position = parents.resolve(item)
    return IncomingMessage(
        role=item.role,
        content=item.content,
        uuid=item.uuid,
        parent_uuid=item.parent_uuid or "",
        path_parent_uuid=parent_uuid,
        path_parent_position=parent_position,
        message_id=item.message_id,
        model=item.model,
        sent_at=item.sent_at,
        usage=item.usage,
        kind=item.kind,
        is_meta=item.is_meta,
        is_sidechain=item.is_sidechain,
        envelope=item.envelope,
    )
