"""How full the context was as a session went on: what its responses were billed, and what each compaction took away.

Read from samples, so a session of a hundred thousand messages costs what a short one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sessions_app.models import CompactBoundary, Message, Session
from sessions_app.transcript.boundary import BoundaryKind
from sessions_app.transcript.messages import Usage

SAMPLES = 200  # places that are looked at; more than a chart has room for
NEIGHBOURS = 4  # messages at each, since not each is a response
MOST_DROPS = 200  # the newest boundaries


@dataclass(frozen=True, slots=True)
class Point:
    """Tokens of the context after the message at `position`, as its response was billed."""

    position: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Drop:
    """What a boundary made of the context, in estimated tokens. It was written when `position` was the last one."""

    boundary_id: int
    position: int
    kind: BoundaryKind
    before: int
    after: int
    reverted: bool


@dataclass(frozen=True, slots=True)
class Timeline:
    """`sampled`: whether there are responses that were not looked at."""

    points: Sequence[Point]
    drops: Sequence[Drop]
    sampled: bool


def context_timeline(*, session: Session) -> Timeline:
    """Two queries, however long the session is."""
    last = session.last_position
    rows = Message.objects.filter(session=session, is_sidechain=False, usage__isnull=False)
    sampled = last > SAMPLES * NEIGHBOURS
    if sampled:
        rows = rows.filter(position__in=_sample(last))
    points = [
        Point(position=position, tokens=usage.context_tokens)
        for position, raw in rows.order_by("position").values_list("position", "usage")
        if (usage := Usage.from_json(raw)) is not None
    ]
    return Timeline(points=points, drops=_drops(session), sampled=sampled)


def _sample(last: int) -> list[int]:
    starts = {1 + round(number * (last - NEIGHBOURS) / (SAMPLES - 1)) for number in range(SAMPLES)}
    return sorted({start + more for start in starts for more in range(NEIGHBOURS)})


def _drops(session: Session) -> list[Drop]:
    rows = CompactBoundary.objects.filter(session=session, tokens_before__isnull=False, tokens_after__isnull=False)
    found = rows.order_by("-id").values_list(
        "pk", "committed_at_position", "kind", "tokens_before", "tokens_after", "reverted_at"
    )
    return [
        Drop(
            boundary_id=pk,
            position=position,
            kind=BoundaryKind(kind),
            before=before,
            after=after or 0,  # none is null here
            reverted=reverted_at is not None,
        )
        for pk, position, kind, before, after, reverted_at in reversed(found[:MOST_DROPS])
    ]
