"""What the session's history page shows: one page of messages, with calls joined and boundaries in their places.

Every read is bounded by the page. Positions have no gaps, so pages are ranges and nothing is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Case, F, Q, QuerySet, When
from django.utils.safestring import SafeString

from compaction_app.admin.cells import HISTORY_PAGE, boundary_place, boundary_url, status_badge
from compaction_app.admin.clearing import SHORT_HOW, Cleared, cleared_by
from compaction_app.admin.rendering.blocks import ClearedMark
from compaction_app.admin.rendering.calls import CallIndex, index_calls
from compaction_app.admin.rendering.messages import MessageRow, Surroundings, message_row
from compaction_app.models import CompactionRun
from sessions_app import selectors
from sessions_app.models import CompactBoundary, Message, Session, ToolCall
from sessions_app.models.boundaries import SUMMARIZES
from sessions_app.transcript.boundary import BoundaryKind, Clearing
from sessions_app.transcript.formats import READERS

LATEST = 10  # boundaries and runs in the page's header
MOST_DIVIDERS = 200  # of one page
MOST_CLEARED = 500  # micro boundaries whose cleared ids are marked


@dataclass(frozen=True, slots=True)
class Divider:
    """A boundary at its place between two messages. `cleared`: what a microcompact one cleared, else None."""

    boundary: CompactBoundary
    url: str
    imported: bool
    cleared: Cleared | None


@dataclass(frozen=True, slots=True)
class RunRow:
    run: CompactionRun
    badge: SafeString


@dataclass(frozen=True, slots=True)
class Item:
    """One row of the page: a message or a boundary."""

    message: MessageRow | None = None
    divider: Divider | None = None


@dataclass(frozen=True, slots=True)
class Pages:
    """Query strings of the other pages; empty where there is none."""

    first: str
    previous: str
    next: str
    last: str


@dataclass(frozen=True, slots=True)
class HistoryPage:
    items: tuple[Item, ...]
    pages: Pages
    first_position: int
    last_position: int
    prompts_only: bool
    boundaries: tuple[Divider, ...]
    runs: tuple[RunRow, ...]
    next_boundary: int | None
    previous_boundary: int | None


def read_page(*, session: Session, after: int, prompts_only: bool) -> HistoryPage:
    """The page behind position `after`. Costs the same number of queries at any length and place."""
    source = _Prompts(session) if prompts_only else _Everything(session)
    messages, pages, end = source.read(after)
    calls, found = _calls(session=session, after=after, end=end, messages=messages, wanted=not prompts_only)
    around = _surroundings(session=session, calls=calls, extra=found)
    dividers = [_divider(b) for b in _boundaries_between(session=session, after=after, end=end)]
    return HistoryPage(
        items=tuple(_interleave(messages=messages, dividers=dividers, around=around)),
        pages=pages,
        first_position=messages[0].position if messages else 0,
        last_position=messages[-1].position if messages else 0,
        prompts_only=prompts_only,
        boundaries=tuple(_divider(b) for b in _placed(session).order_by("-id")[:LATEST]),
        runs=tuple(_run_row(run) for run in CompactionRun.objects.filter(session=session).order_by("-id")[:LATEST]),
        next_boundary=_place_of(_placed(session).filter(place__gt=end).order_by("place", "id")),
        previous_boundary=_place_of(_placed(session).filter(place__lte=after).order_by("-place", "-id")),
    )


def find_position(*, session: Session, wanted: str) -> int | None:
    """The position that a person asked for by number (also as "#12") or by a message's uuid; None when not there."""
    text = wanted.replace("\x00", "").strip().removeprefix("#")
    if text.isdecimal() and len(text) < 10:
        position = int(text)
        return position if 1 <= position <= session.last_position else None
    return Message.objects.filter(session=session, uuid=text).values_list("position", flat=True).first()


class _Everything:
    """All messages: a page is the range of positions after `after`."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def read(self, after: int) -> tuple[list[Message], Pages, int]:
        last = self.session.last_position
        end = min(after + HISTORY_PAGE, last)
        rows = Message.objects.filter(session=self.session, position__gt=after, position__lte=end)
        pages = Pages(
            first="?after=0" if after > 0 else "",
            previous=f"?after={max(after - HISTORY_PAGE, 0)}" if after > 0 else "",
            next=f"?after={end}" if end < last else "",
            last=f"?after={(last - 1) // HISTORY_PAGE * HISTORY_PAGE}" if end < last else "",
        )
        return list(rows.order_by("position").defer("envelope", "usage")), pages, end


class _Prompts:
    """Only what people typed: pages by keyset over the index of prompts."""

    def __init__(self, session: Session) -> None:
        self.rows = Message.objects.filter(session=session, is_prompt=True)
        self.last = session.last_position

    def read(self, after: int) -> tuple[list[Message], Pages, int]:
        later = self.rows.filter(position__gt=after).order_by("position")
        page = list(later.defer("envelope", "usage")[: HISTORY_PAGE + 1])
        more, page = len(page) > HISTORY_PAGE, page[:HISTORY_PAGE]
        earlier = self._positions(self.rows.filter(position__lte=after))
        newest = self._positions(self.rows)
        pages = Pages(
            first="?prompts=1" if earlier else "",
            previous=f"?prompts=1&after={self._before(earlier)}" if earlier else "",
            next=f"?prompts=1&after={page[-1].position}" if more else "",
            last=f"?prompts=1&after={self._before(newest)}" if more else "",
        )
        return page, pages, page[-1].position if more else self.last

    def _positions(self, rows: QuerySet[Message]) -> list[int]:
        return list(rows.order_by("-position").values_list("position", flat=True)[:HISTORY_PAGE])

    def _before(self, positions: Sequence[int]) -> int:
        return positions[-1] - 1


def _calls(
    *, session: Session, after: int, end: int, messages: Sequence[Message], wanted: bool
) -> tuple[CallIndex, list[Message]]:
    """The page's calls and answers, and the messages of other pages that answer its calls."""
    if not wanted:
        return index_calls(calls=(), messages=()), []
    here = Q(use_position__gt=after, use_position__lte=end) | Q(result_position__gt=after, result_position__lte=end)
    calls = list(ToolCall.objects.filter(here, session=session))
    shown = {message.position for message in messages}
    outside = {call.result_position for call in calls if call.result_position and call.use_position} - shown
    # Position 0 is nobody's: with it the query is made on every page, so that its cost is one figure.
    rows = Message.objects.filter(session=session, position__in=outside | {0}).defer("envelope", "usage")
    answers = list(rows)
    return index_calls(calls=calls, messages=[*messages, *answers]), answers


def _surroundings(*, session: Session, calls: CallIndex, extra: Sequence[Message]) -> Surroundings:
    head_row = selectors.head_boundary(session=session)
    micro = CompactBoundary.objects.filter(
        session=session, reverted_at__isnull=True, kind=BoundaryKind.MICROCOMPACT, pk__gt=head_row.pk if head_row else 0
    ).order_by("-id")
    rows = list(micro.values_list("pk", "clearing", "cleared_tool_use_ids")[:MOST_CLEARED])
    if head_row:
        rows.append((head_row.pk, head_row.clearing, head_row.cleared_tool_use_ids))
    return Surroundings(
        session_id=session.pk,
        calls=calls,
        head=head_row.as_value() if head_row else None,
        cleared=_marks_of(rows),
    )


def _marks_of(rows: Iterable[tuple[int, str, list[str]]]) -> dict[str, ClearedMark]:
    """A mark for each cleared id. `rows`: newest first, so that the boundary that cleared an id first counts."""
    marks: dict[str, ClearedMark] = {}
    for boundary_id, clearing, ids in rows:
        mark = ClearedMark(how=SHORT_HOW[Clearing(clearing)], url=boundary_url(boundary_id))
        marks.update((str(one), mark) for one in ids)
    return marks


def _placed(session: Session) -> QuerySet[Any]:
    """The session's boundaries with `place` (as cells.boundary_place), without their long columns."""
    place = Case(When(SUMMARIZES, then=F("covers_to")), default=F("committed_at_position"))
    rows = CompactBoundary.objects.filter(session=session).select_related("session")
    return rows.annotate(place=place).defer("summary", "instructions", "session__system", "session__tools")


def _boundaries_between(*, session: Session, after: int, end: int) -> Iterable[CompactBoundary]:
    return _placed(session).filter(place__gt=after, place__lte=end).order_by("place", "id")[:MOST_DIVIDERS]


def _place_of(rows: QuerySet[Any]) -> int | None:
    return rows.values_list("place", flat=True).first()


def _divider(boundary: CompactBoundary) -> Divider:
    return Divider(
        boundary=boundary,
        url=boundary_url(boundary.pk),
        imported=is_imported(boundary),
        cleared=None if BoundaryKind(boundary.kind).summarizes else cleared_by(boundary),
    )


def _run_row(run: CompactionRun) -> RunRow:
    return RunRow(run=run, badge=status_badge(run.status, run_id=run.pk))


def is_imported(boundary: CompactBoundary) -> bool:
    """Whether a client made it before its transcript came here. Its cleared results come without a summariser."""
    if boundary.summarizer:
        return boundary.summarizer in READERS
    return boundary.session.source in READERS and boundary.trigger != CompactBoundary.Trigger.PREPARE


def _interleave(*, messages: Sequence[Message], dividers: Sequence[Divider], around: Surroundings) -> Iterable[Item]:
    waiting = list(dividers)
    previous: Message | None = None
    for message in messages:
        while waiting and boundary_place(waiting[0].boundary) < message.position:
            yield Item(divider=waiting.pop(0))
        yield Item(message=message_row(message=message, around=around, previous=previous))
        previous = message
    yield from (Item(divider=divider) for divider in waiting)
