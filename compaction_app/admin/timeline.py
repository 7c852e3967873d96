"""The chart of a session's context: tokens over the session, thresholds as lines, compactions as drops.

Drawn as SVG by the server, with links and without a script; its figures stand in a table beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from compaction_app.admin import cells
from compaction_app.admin.gauge import Gauge
from compaction_app.selectors.timeline import Drop, Point, context_timeline
from sessions_app.models import Session

WIDTH, HEIGHT = 1000, 200  # units of the drawing, which is stretched to the page
BANDS = 50  # links to places of the history
HEADROOM = 1.05


@dataclass(frozen=True, slots=True)
class Place:
    """A strip of the chart that leads to a place of the history."""

    x: float
    width: float
    url: str
    told: str


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    y: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A compaction, at its place."""

    x: float
    top: float
    bottom: float
    url: str
    told: str
    drop: Drop


class _Scale:
    def __init__(self, *, last: int, most: int) -> None:
        self._last, self._most = max(last - 1, 1), max(most, 1)

    def x(self, position: int) -> float:
        return round(min(max(position - 1, 0), self._last) * WIDTH / self._last, 1)

    def y(self, tokens: int) -> float:
        return round(HEIGHT - min(tokens, self._most) * HEIGHT / self._most, 1)


def timeline_of(*, session: Session, gauge: Gauge) -> dict[str, Any] | None:
    """What the page draws; None where there is nothing to draw yet."""
    if session.last_position < 2:
        return None
    found = context_timeline(session=session)
    path = _path(found.points, found.drops, session=session)
    top = max(gauge.window.context_window, *(tokens for _, tokens in path))
    scale = _Scale(last=session.last_position, most=round(top * HEADROOM))
    line = " ".join(f"{scale.x(position)},{scale.y(tokens)}" for position, tokens in path)
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "line": line,
        "area": f"{scale.x(path[0][0])},{HEIGHT} {line} {scale.x(path[-1][0])},{HEIGHT}",
        "lines": _lines(gauge, scale),
        "marks": [_mark(drop, scale) for drop in found.drops if not drop.reverted],
        "bands": list(_bands(session, scale)),
        "drops": [(drop, cells.boundary_url(drop.boundary_id)) for drop in reversed(found.drops)],
        "last": session.last_position,
        "peak": max(tokens for _, tokens in path),
        "responses": len(found.points),
        "sampled": found.sampled,
    }


def _path(points: Sequence[Point], drops: Sequence[Drop], *, session: Session) -> list[tuple[int, int]]:
    """(position, tokens) in the order of the session: responses as billed, each compaction's before and after, now."""
    steps = [(point.position, 0, point.tokens) for point in points]
    for number, drop in enumerate(one for one in drops if not one.reverted):
        steps += [(drop.position, 2 * number + 1, drop.before), (drop.position, 2 * number + 2, drop.after)]
    path = [(position, tokens) for position, _, tokens in sorted(steps)]
    if not path or path[0][0] > 1:
        path.insert(0, (1, min(session.overhead_tokens, path[0][1] if path else session.overhead_tokens)))
    return [*path, (session.last_position, session.context_tokens)]


def _lines(gauge: Gauge, scale: _Scale) -> list[Line]:
    window = gauge.window
    figures = {
        "warning": window.warning_threshold,
        "automatic compaction": window.auto_compact_threshold,
        "context window": window.context_window,
    }
    return [Line(name=name, y=scale.y(tokens), tokens=tokens) for name, tokens in figures.items()]


def _mark(drop: Drop, scale: _Scale) -> Mark:
    return Mark(
        x=scale.x(drop.position),
        top=scale.y(drop.before),
        bottom=scale.y(drop.after),
        url=cells.boundary_url(drop.boundary_id),
        told=f"{drop.kind.value.replace('_', ' ')} at #{drop.position:,}: {drop.before:,} to {drop.after:,} tokens",
        drop=drop,
    )


def _bands(session: Session, scale: _Scale) -> Sequence[Place]:
    count = min(BANDS, session.last_position)
    starts = [1 + round(number * (session.last_position - 1) / count) for number in range(count)]
    ends = [*starts[1:], session.last_position]
    return [
        Place(
            x=scale.x(start),
            width=round(scale.x(end) - scale.x(start), 1),
            url=cells.place_url(session_id=session.pk, position=start),
            told=f"to #{start:,}",
        )
        for start, end in zip(starts, ends, strict=True)
    ]
