"""Import of transcript files: streamed, safe to repeat, and with a word on every line that was not understood.

One transaction a file: a file is in, or it is not. Memory holds one batch of lines (policy: import_batch_lines),
whatever the file's size.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import PurePath
from types import ModuleType
from typing import IO, Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from sessions_app.catalog import tokenizer_family
from sessions_app.models import CompactBoundary, Message, Session, Team, TranscriptEntry
from sessions_app.models.fields import storable_text
from sessions_app.policy import Policy
from sessions_app.services.append import lock_session, store_messages
from sessions_app.services.boundaries import record_imported_boundary
from sessions_app.services.incoming import IncomingMessage
from sessions_app.transcript.boundary import BoundaryDraft, BoundaryKind, Placement, PreservedSegment
from sessions_app.transcript.entries import ImportedBoundary, LineProblem, ParsedLine, TranscriptMessage, TranscriptNote
from sessions_app.transcript.exported import BadMark, Written, draft_of
from sessions_app.transcript.formats import AUTO, READERS
from sessions_app.transcript.messages import MessageKind, human_text, text_of
from sessions_app.transcript.tokens import estimate_text
from sessions_app.transcript.view import summary_content

SNIFFED_LINES = 400  # lines looked at to tell the format; real files open with up to a few dozen side lines
TITLE_LENGTH = 120
UNKNOWN_TRIGGER = CompactBoundary.Trigger.MANUAL

Progress = Callable[[int], None]


class ImportRefused(Exception):
    """The file as a whole can't be imported; the message is one line for a person. Nothing was stored."""


@dataclass(slots=True)
class ImportReport:
    """What an import did. `problems`: lines (by number) that were not understood, with the reason; of a file that has
    very many the first ones (policy: import_kept_problems), `problem_count` counts them all."""

    session: Session
    created: bool
    messages: int = 0
    duplicates: int = 0
    entries: int = 0
    boundaries: int = 0
    problems: list[LineProblem] = field(default_factory=list)
    problem_count: int = 0


def import_transcript(
    *,
    team: Team,
    stream: IO[bytes],
    name: str,
    format_name: str = AUTO,
    policy: Policy,
    now: datetime,
    progress: Progress | None = None,
) -> ImportReport:
    """Import one file into the team. `stream` is seekable; `name` is the file's name; `progress` gets bytes read.

    The session is the one that the file names; what it holds already is left as it is. Raises ImportRefused.
    """
    reader = choose_reader(stream=stream, format_name=format_name, line_bytes=policy.import_line_bytes)
    external_id = _external_id(stream=stream, name=name, reader=reader, line_bytes=policy.import_line_bytes)
    stream.seek(0)
    with transaction.atomic():
        session, created = _session(team=team, external_id=external_id, source=reader.NAME)
        report = ImportReport(session=session, created=created)
        job = _Import(report=report, reader=reader, policy=policy, now=now)
        lock_session(session_id=session.pk)
        for line in _lines(stream=stream, limit=policy.import_line_bytes, progress=progress):
            job.take(_parse(reader, line), size=len(line.raw))
        job.finish()
        if not Message.objects.filter(session=session).exists():
            raise ImportRefused(_nothing_found(job.report.problems))
    return job.report


def _session(*, team: Team, external_id: str, source: str) -> tuple[Session, bool]:
    """The team's session that the file names: by its client's id, or by ours, which an export of ours may carry."""
    if not Session.objects.filter(team=team, external_id=external_id).exists():
        try:
            exported = Session.objects.filter(team=team, uuid=UUID(external_id)).first()
        except ValueError:
            exported = None
        if exported is not None:
            return exported, False
    return Session.objects.get_or_create(team=team, external_id=external_id, defaults={"source": source})


def choose_reader(*, stream: IO[bytes], format_name: str, line_bytes: int) -> ModuleType:
    """The module that reads this file. Raises ImportRefused with what is wrong: empty, binary, not JSON, unknown."""
    if format_name != AUTO and format_name not in READERS:
        raise ImportRefused(f"format {format_name!r} is not known; known are {', '.join([AUTO, *READERS])}")
    stream.seek(0)
    objects = _first_objects(stream, line_bytes)
    if format_name != AUTO:
        return READERS[format_name]
    for reader in READERS.values():
        if reader.recognizes(objects=objects):
            return reader
    raise ImportRefused(f"none of the known transcript formats ({', '.join(READERS)})")


def _first_objects(stream: IO[bytes], line_bytes: int) -> list[Mapping[str, Any]]:
    head = stream.read(64 * 1024)
    if not head.strip():
        raise ImportRefused("the file is empty")
    if b"\x00" in head:
        raise ImportRefused("a binary file, not a transcript")
    stream.seek(0)
    objects = []
    for line in itertools.islice(_lines(stream=stream, limit=line_bytes), SNIFFED_LINES):
        try:
            value, _ = json.JSONDecoder().raw_decode(line.raw.decode("utf-8-sig").lstrip())
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, Mapping):
            objects.append(value)
    if not objects:
        raise ImportRefused("no line of it is a JSON object")
    return objects


def _external_id(*, stream: IO[bytes], name: str, reader: ModuleType, line_bytes: int) -> str:
    """The session's id: the file's name where that is one (clients name the file so), else the last id in it.

    The first lines of a continued session may carry the id of the session before it.
    """
    stem = PurePath(name).stem
    try:
        return str(UUID(stem))
    except ValueError:
        pass
    stream.seek(0)
    last = None
    for line in _lines(stream=stream, limit=line_bytes):
        last = reader.session_id_of(line=line.raw) or last
    return last or storable_text(stem)[:255]


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    raw: bytes
    too_long: bool = False


def _lines(*, stream: IO[bytes], limit: int, progress: Progress | None = None) -> Iterator[_Line]:
    number = 0
    while raw := stream.readline(limit):
        number += 1
        too_long = len(raw) >= limit and not raw.endswith(b"\n")
        size = len(raw)
        while too_long and (more := stream.readline(limit)):
            size += len(more)
            if more.endswith(b"\n"):
                break
        yield _Line(number=number, raw=raw, too_long=too_long)
        if progress:
            progress(size)


def _parse(reader: ModuleType, line: _Line) -> list[ParsedLine]:
    if line.too_long:
        return [LineProblem(line_number=line.number, reason="longer than a line may be (policy: import_line_bytes)")]
    try:
        text = line.raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return [LineProblem(line_number=line.number, reason=f"not UTF-8 at byte {error.start}")]
    return list(reader.read_line(text=text, line_number=line.number))


def _nothing_found(problems: Sequence[LineProblem]) -> str:
    first = f"; line {problems[0].line_number}: {problems[0].reason}" if problems else ""
    return f"no message in it{first}"


class _Import:
    """One file on its way in: a batch of parsed lines, and what became of those before it."""

    def __init__(self, *, report: ImportReport, reader: ModuleType, policy: Policy, now: datetime) -> None:
        self.report = report
        self.reader = reader
        self.session = report.session
        self.policy = policy
        self.now = now
        self.batch: list[TranscriptMessage | TranscriptNote] = []
        self.batch_bytes = 0
        self.title, self.title_rank = "", 0
        self.last_position = 0
        # Lines that tell a boundary which this session holds as its own -> what they hang on.
        self.known: dict[str, str | None] = {}
        self.own: dict[str, bool] = {}

    def take(self, parsed: Sequence[ParsedLine], *, size: int) -> None:
        """One line of `size` bytes. A batch ends by lines or by bytes, whichever comes first."""
        self.batch_bytes += size
        for item in parsed:
            if isinstance(item, LineProblem):
                self._note_problem(item)
                continue
            if isinstance(item, TranscriptNote) and item.ours and self._is_own(item.ours):
                self.known[item.uuid] = item.parent_uuid
                continue
            self.batch.append(item)
            if isinstance(item, TranscriptNote) and item.title and item.title_rank >= self.title_rank:
                self.title, self.title_rank = item.title, item.title_rank
            # A boundary changes how everything after it is counted, so nothing may share its batch.
            ends = item.boundary if isinstance(item, TranscriptNote) else item.kind == MessageKind.COMPACT_SUMMARY
            full = self.batch_bytes >= self.policy.import_batch_bytes
            if ends or full or len(self.batch) >= self.policy.import_batch_lines:
                self.flush()

    def _is_own(self, uuid: str) -> bool:
        """Whether the boundary of an exported line was written in this very session."""
        if uuid not in self.own:
            try:
                rows = CompactBoundary.objects.filter(session=self.session, uuid=UUID(uuid))
            except ValueError:
                return False
            self.own[uuid] = rows.exists()
        return self.own[uuid]

    def _note_problem(self, problem: LineProblem) -> None:
        self.report.problem_count += 1
        if self.report.problem_count <= self.policy.import_kept_problems:
            self.report.problems.append(problem)

    def finish(self) -> None:
        self.flush()
        self.session.refresh_from_db()
        self.report.session = self.session
        grew = self.report.messages or self.report.entries
        title = self.title or ("" if self.session.title else self._first_prompt())
        if grew and title:
            self.session.title = storable_text(" ".join(title.split()))[:TITLE_LENGTH]
            self.session.save(update_fields=["title"])

    def flush(self) -> None:
        batch, self.batch, self.batch_bytes = self.batch, [], 0
        if not batch:
            return
        parents = _Parents(session=self.session, batch=batch, known=self.known)
        told, note_uuid = self._boundary_before(batch[-1])
        batch[-1] = self._without_boundary(batch[-1]) if told is None else batch[-1]
        messages = [item for item in batch if isinstance(item, TranscriptMessage)]
        incoming = [_incoming(item, parents) for item in messages]
        self.session, appended = store_messages(session_id=self.session.pk, incoming=incoming, now=self.now)
        self.report.messages += len(appended.stored)
        self.report.duplicates += len(appended.duplicates)
        for index in appended.conflicts:
            reason = f"uuid {messages[index].uuid} is stored already with other content; the first stays"
            self._note_problem(LineProblem(line_number=messages[index].line_number, reason=reason))
        new = {row.uuid: row for row in appended.stored}
        fresh_notes = self._store_notes(batch=batch, parents=parents, new=new)
        last = batch[-1]
        if isinstance(last, TranscriptNote):
            if last.boundary and last.key in fresh_notes:
                self._record_note(last, told=last.boundary)
        elif told is not None and last.uuid in new:
            self._record_summary(last, told=told, note_uuid=note_uuid, position=new[last.uuid].position)

    def _without_boundary(self, item: TranscriptMessage | TranscriptNote) -> TranscriptMessage | TranscriptNote:
        """A summary whose compaction the file does not hold is text like any other: nothing else carries it."""
        if isinstance(item, TranscriptNote) or item.kind != MessageKind.COMPACT_SUMMARY:
            return item
        reason = "a summary without its compact_boundary; kept as a message"
        self._note_problem(LineProblem(line_number=item.line_number, reason=reason, kept=True))
        return replace(item, kind=MessageKind.NORMAL, is_meta=True)

    def _store_notes(
        self, *, batch: Sequence[TranscriptMessage | TranscriptNote], parents: _Parents, new: Mapping[str, Message]
    ) -> set[str]:
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
            elif item.key not in known and item.key not in rows:
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
            self._record_written(note, written=told.written)
        elif told.is_microcompact:
            self._record_micro(told, source_key=note.key)

    def _record_written(self, note: TranscriptNote, *, written: Written) -> None:
        """A boundary of ours, restored as it was."""
        rows = Message.objects.filter(session=self.session, uuid__in=written.uuids)
        positions = dict(rows.values_list("uuid", "position"))
        base = CompactBoundary.objects.filter(session=self.session, source_key=written.base or None).first()
        try:
            if written.base and base is None:
                raise BadMark("the boundary below it is not there")
            draft = draft_of(written=written, position_of=positions.get, base=base.as_value() if base else None)
        except BadMark as bad:
            reason = f"a boundary of an export: {bad}; kept raw"
            self._note_problem(LineProblem(line_number=note.line_number, reason=reason, kept=True))
            return
        told = ImportedBoundary(
            is_microcompact=not draft.kind.summarizes,
            trigger=written.trigger,
            tokens_before=written.tokens_before,
            tokens_after=written.tokens_after,
        )
        self._record(draft, told=told, source_key=note.key)

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
            summarizer=self.reader.NAME,
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

    def _boundary_before(self, item: TranscriptMessage | TranscriptNote) -> tuple[ImportedBoundary | None, str]:
        """The compaction that a summary belongs to, as its boundary line tells it, and that line's uuid.

        The boundary line has ended the batch before this one, so it is stored already.
        """
        if isinstance(item, TranscriptNote) or item.kind != MessageKind.COMPACT_SUMMARY:
            return None, ""
        entry = TranscriptEntry.objects.filter(session=self.session, key=item.parent_uuid or "").first()
        if entry is None or item.is_sidechain or not text_of(item.content).strip():
            return None, ""
        note: TranscriptNote = self.reader.read_note(entry=entry.raw, line_number=entry.line_number)
        return (note.boundary, note.uuid) if note.boundary and not note.boundary.is_microcompact else (None, "")

    def _preserved(self, uuids: Sequence[str], *, before: int) -> tuple[int, int] | None:
        positions = Message.objects.filter(session=self.session, uuid__in=uuids, position__lt=before).values_list(
            "position", flat=True
        )
        found = sorted(positions)
        return (found[0], found[-1]) if found else None

    def _record(self, draft: BoundaryDraft, *, told: ImportedBoundary, source_key: str) -> None:
        self.session = lock_session(session_id=self.session.pk)
        before = told.tokens_before
        record_imported_boundary(
            session=self.session,
            draft=draft,
            trigger=told.trigger if told.trigger in CompactBoundary.Trigger.values else UNKNOWN_TRIGGER,
            tokens_before=before if before is not None else self.session.context_tokens,
            tokens_after=told.tokens_after,
            now=timezone.now(),
            source_key=storable_text(source_key)[:200],
        )
        self.report.boundaries += 1

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
        batch: Sequence[TranscriptMessage | TranscriptNote],
        known: Mapping[str, str | None],
    ) -> None:
        notes = [item for item in batch if isinstance(item, TranscriptNote)]
        self.note_parent = {**known, **{note.uuid: note.parent_uuid for note in notes if note.uuid}}
        self.boundaries = {note.uuid for note in notes if note.boundary}
        self.message_uuids = {item.uuid for item in batch if isinstance(item, TranscriptMessage)}
        outside = {item.parent_uuid for item in batch if item.parent_uuid} | {p for p in known.values() if p}
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
