"""The boundaries of a session on its way out: which are written, where, and what each of them keeps in view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Q, QuerySet

from sessions_app.models import CompactBoundary, Message, Session, TranscriptEntry
from sessions_app.transcript.boundary import Boundary, BoundaryDraft, BoundaryKind, ClearedResult
from sessions_app.transcript.formats import READERS
from sessions_app.transcript.messages import MessageKind

SUMMARY = MessageKind.COMPACT_SUMMARY
CHUNK = 2_000  # short rows that are read at once


@dataclass(slots=True)
class Front:
    """What follows a boundary hangs on `line`.

    `upto`: the boundary's place. `tail`: position of the one message that the line takes the place of as a parent; None
    where it does so for all up to its place, but those of `stays`: position of a message that is kept -> what hangs on
    it instead (None: the message itself).
    """

    upto: int
    line: str
    tail: int | None = None
    stays: dict[int, str | None] = field(default_factory=dict)
    # The newest line of the context right after the boundary, where that is not `line`.
    leaf: str = ""

    def stands_for(self, parent: int) -> bool:
        """Whether a parent at this position is told through this boundary."""
        return parent <= self.upto if self.tail is None else parent == self.tail

    def instead_of(self, parent: int) -> str | None:
        """The line to hang on; None for the message itself."""
        return self.stays.get(parent, self.line)


@dataclass(slots=True)
class KeptRows:
    """`before`: uuids of lines in front of the summary, earlier summaries and clearings among them; `after`: position
    and uuid of messages behind it, and of earlier summaries there (position 0). `has_begun`: whether the summary itself
    has been come to."""

    before: list[str] = field(default_factory=list)
    after: list[tuple[int, str]] = field(default_factory=list)
    has_begun: bool = False

    @property
    def messages_after(self) -> list[tuple[int, str]]:
        """The messages behind the summary, by position and uuid."""
        return [(position, uuid) for position, uuid in self.after if position]

    def has_segment(self, *, leaf: int) -> bool:
        """Whether what is kept behind the summary can be told as a segment. A boundary has one; and its client goes on
        from the newest line, so it ends where the conversation stood: at its `leaf`, or an earlier summary of that."""
        return not self.before and bool(self.after) and self.after[-1][0] in (leaf, 0)

    def front(self, *, boundary: Boundary, line: str, copies: Mapping[int, str]) -> Front:
        """What hangs on the newest kept message follows the summary, their anchor, as the client has it. `copies`: of
        kept messages that are written once more, by position."""
        stays: dict[int, str | None] = {position: copies.get(position) for position, _ in self.messages_after}
        last = self.after[-1][0] if self.after else 0
        if not copies:
            stays.pop(last, None)
        leaf = self.after[-1][1] if self.after and not copies else ""
        return Front(upto=boundary.committed_at, line=copies.get(last, line), stays=stays, leaf=leaf)


class Boundaries:
    """A session's boundaries: our own in force, in order, and those that lines of imported files told."""

    def __init__(self, *, session: Session) -> None:
        self._session = session
        self._mine: list[tuple[int, int]] = []  # (position, key)
        self._next = 0
        self._told: dict[str, int] = {}
        self._gone: set[str] = set()
        self._summaries: dict[int, str] = {}
        self._written: list[int] = []
        sources = unnamed_sources(session)
        rows = CompactBoundary.objects.filter(session=session).order_by("pk")
        places = list(rows.values_list("pk", "source_key", "committed_at_position", "reverted_at", "covers_to"))
        # A boundary that came with the history of an export (transcript/history_items.py) has no line of its own.
        self._lines = set(sources.values()) | (self._lines_of_files() if any(place[1] for place in places) else set())
        for pk, source, position, reverted_at, covers_to in places:
            source = source or sources.get(pk, "")
            if reverted_at is not None:
                self._gone |= {source} if source and self._is_on_the_path(covers_to, position) else set()
            elif source in self._lines and source:
                self._told[source] = pk
            elif pk not in sources:
                self._mine.append((position, pk))

    def _lines_of_files(self) -> set[str]:
        named = CompactBoundary.objects.filter(session=self._session).exclude(source_key="").values("source_key")
        rows = TranscriptEntry.objects.filter(session=self._session, key__in=named)
        return set(rows.values_list("key", flat=True))

    def _is_on_the_path(self, covers_to: int, committed_at: int) -> bool:
        """Whether the conversation still goes through what a boundary covered. One that a rewind left behind stands on
        a branch that nothing goes on from, and hurts nobody."""
        rows = Message.objects.filter(session=self._session, position__lte=covers_to, is_sidechain=False)
        return not rows.filter(left_path_at__gt=committed_at).exists()

    def is_in_force(self, line: str | None) -> bool:
        """Whether the boundary that was read from this line is."""
        return line in self._told

    def was_taken_back(self, line: str) -> bool:
        """Whether a person took it back, and it was not brought back in this line."""
        return line in self._gone and line not in self._told

    def order_of(self, line: str) -> int | None:
        return self._told.get(line)

    def told_by(self, line: str) -> Boundary:
        return self._row(self._told[line]).as_value()

    def take(self, *, position: int, before: int | None) -> Iterator[CompactBoundary]:
        """Our own that were written up to the position, each once. `before`: only those before that boundary."""
        while self._next < len(self._mine):
            place, pk = self._mine[self._next]
            if place > position or (before is not None and pk > before):
                return
            self._next += 1
            yield self._row(pk)

    def _row(self, pk: int) -> CompactBoundary:
        rows = CompactBoundary.objects.filter(session=self._session)
        return rows.select_related("base").prefetch_related("attachments").get(pk=pk)

    def line_of(self, row: CompactBoundary) -> str:
        """Uuid of the line that tells the boundary, or its copy that is in force."""
        rows = CompactBoundary.objects.filter(session=self._session, reverted_at__isnull=True)
        copies = rows.filter(Q(pk=row.lineage) | Q(restores_id=row.lineage))
        return self._line(copies.order_by("-pk").first() or row)

    def _line(self, row: CompactBoundary) -> str:
        return row.source_key if row.source_key in self._lines and row.source_key else str(row.uuid)

    def begins_with(self, row: CompactBoundary | Boundary, summary: str) -> None:
        """Note the line in which the boundary's summary stands."""
        self._summaries[row.lineage] = summary
        self._written.append(row.pk if isinstance(row, CompactBoundary) else row.sequence)

    def below(self, boundary: Boundary) -> Boundary | None:
        """The boundary through which the context was read before this one."""
        earlier = [pk for pk in self._written if pk < boundary.sequence]
        return self._row(max(earlier)).as_value() if earlier else None

    def is_passed_over(self, boundary: Boundary) -> bool:
        """Whether other summaries took its place before anything was said: nothing will ever hang on this one's."""
        rows = CompactBoundary.objects.filter(session=self._session, reverted_at__isnull=True).summarizing()
        rows = rows.filter(pk__gt=boundary.sequence, committed_at_position=boundary.committed_at)
        last = rows.select_related("base").order_by("pk").last()
        return last is not None and all(one.lineage != boundary.lineage for one in last.as_value().chain)

    def kept(self, boundary: Boundary) -> KeptRows:
        """What was shown verbatim when the boundary was written and still is, and summaries that it keeps in view."""
        rows = live(self._session).filter(_shown(boundary), position__lte=boundary.committed_at).exclude(kind=SUMMARY)
        kept, waiting = KeptRows(), list(boundary.chain)
        clearings = self._clearings(boundary) if boundary.keeps_prefix else []
        for position, uuid in rows.order_by("position").values_list("position", "uuid").iterator(chunk_size=CHUNK):
            if boundary.hides(position):
                continue
            while waiting and not (waiting[0].keeps_prefix and position <= waiting[0].covers_to):
                self._pass(waiting.pop(0), boundary, kept)
            if kept.has_begun:
                kept.after.append((position, uuid))
                continue
            while clearings and clearings[0][0] < position:
                kept.before.append(clearings.pop(0)[1])
            kept.before.append(uuid)
        for one in waiting:
            self._pass(one, boundary, kept)
        if kept.before:
            kept.before += [line for _, line in clearings]
        return kept

    def _clearings(self, boundary: Boundary) -> list[tuple[int, str]]:
        """(position, line) of the clearings that still hold in front of the boundary's summary."""
        rows = CompactBoundary.objects.filter(session=self._session, reverted_at__isnull=True)
        rows = rows.filter(
            kind=BoundaryKind.MICROCOMPACT.value, pk__gt=boundary.clears_from, pk__lt=boundary.sequence
        ).order_by("pk")
        return [(row.committed_at_position, self._line(row)) for row in rows]

    def _pass(self, one: Boundary, boundary: Boundary, kept: KeptRows) -> None:
        if one is boundary:
            kept.has_begun = True
        elif line := self._summaries.get(one.lineage):
            if kept.has_begun:
                kept.after.append((0, line))
            else:
                kept.before.append(line)

    def summarized(self, boundary: Boundary, kept: KeptRows) -> int:
        """How many messages the summary stands for, those behind an earlier summary left out."""
        rows = live(self._session).filter(position__lte=boundary.covers_to).exclude(kind=SUMMARY)
        below = self.below(boundary)
        rows = rows.filter(_shown(below)) if below else rows
        stays = {uuid for _, uuid in kept.after} | set(kept.before)
        places = rows.values_list("position", "uuid").iterator(chunk_size=CHUNK)
        return sum(uuid not in stays and not (below and below.hides(position)) for position, uuid in places)

    def leaf(self, boundary: Boundary) -> int:
        """Position of the newest message before the boundary that is still on the path; 0 where there is none."""
        rows = live(self._session).filter(position__lte=boundary.committed_at)
        return rows.order_by("-position").values_list("position", flat=True).first() or 0


def unnamed_sources(session: Session) -> dict[int, str]:
    """Lines of boundaries that were imported before their lines were noted; "" where it can't be told any more."""
    rows = CompactBoundary.objects.filter(session=session, source_key="", restores__isnull=True)
    clearing = rows.filter(kind=BoundaryKind.MICROCOMPACT.value, cleared_results=[])
    found = dict.fromkeys(clearing.values_list("pk", flat=True), "")
    for row in rows.filter(summarizer__in=READERS).only("pk", "covers_to").iterator(chunk_size=CHUNK):
        summary = Message.objects.filter(session=session, position=row.covers_to + 1, kind=SUMMARY).first()
        if summary is not None:
            found[row.pk] = summary.parent_uuid
    return found


def live(session: Session) -> QuerySet[Message]:
    """The messages on the conversation's path."""
    return Message.objects.filter(session=session, is_sidechain=False, left_path_at__isnull=True)


def draft_of(row: CompactBoundary) -> BoundaryDraft:
    """The boundary as it was proposed."""
    value = row.as_value()
    told: dict[str, Any] = {
        name: getattr(row, name)
        for name in ("summarizer", "instructions", "why", "model", "prompt_version", "response_id")
    }
    return BoundaryDraft(
        kind=value.kind,
        covers_to=value.covers_to,
        summary=value.summary,
        summary_tokens=value.summary_tokens,
        preserved=value.preserved,
        attachments=value.attachments,
        cleared_tool_use_ids=tuple(row.cleared_tool_use_ids),
        cleared_results=tuple(ClearedResult(**one) for one in row.cleared_results),
        clearing=value.clearing,
        summary_blocks=value.summary_blocks,
        base=value.base,
        generation=value.generation,
        facts=row.facts or {},
        usage=row.usage or {},
        **told,
    )


def _shown(boundary: Boundary) -> Q:
    """The rows among which those are that the boundary shows."""
    shown = Q(position__gt=boundary.covers_to)
    for one in boundary.chain:
        if one.preserved:
            first = max(one.preserved.first, one.base.covers_to + 1) if one.base else one.preserved.first
            shown |= Q(position__range=(first, one.preserved.last))
    return shown
