"""How full a session's context is, ready to be drawn. Computed from the session's row and its team's: no query."""

from __future__ import annotations

from dataclasses import dataclass

from sessions_app import selectors
from sessions_app.models import Session
from sessions_app.transcript.window import Level, Window, warning_state, window_of

BASIS = {
    Session.ContextSource.USAGE: "measured",
    Session.ContextSource.USAGE_AND_ESTIMATE: "measured + estimated",
    Session.ContextSource.ESTIMATE: "estimated",
}
LEVELS = {
    Level.OK: "fits",
    Level.WARNING: "filling up",
    Level.ERROR: "nearly full",
    Level.AUTO_COMPACT: "over the threshold",
    Level.UNREACHABLE: "system prompt and tools alone exceed the threshold",
}
SHORT_LEVELS = {**LEVELS, Level.UNREACHABLE: "threshold out of reach"}  # for lists


@dataclass(frozen=True, slots=True)
class Mark:
    """A threshold on the gauge: `at` is its place in percent of the gauge's width."""

    name: str
    tokens: int
    at: float


@dataclass(frozen=True, slots=True)
class Gauge:
    """`percent` is of the automatic threshold; `fill` and the marks are of the whole context window."""

    tokens: int
    percent: int
    fill: float
    level: Level
    basis: str
    window: Window
    marks: tuple[Mark, ...]
    assumed_model: bool
    problem: str = ""

    @property
    def bar(self) -> int:
        """Width of the small bar of a list, in percent: full at the threshold."""
        return min(self.percent, 100)

    @property
    def level_text(self) -> str:
        return LEVELS[self.level]

    @property
    def level_short(self) -> str:
        return SHORT_LEVELS[self.level]


def gauge_of(*, session: Session) -> Gauge:
    """`session` with its team loaded."""
    resolved = selectors.effective_policy(team=session.team, session=session)
    policy, problem = resolved.policy, "; ".join(f"left out, not allowed: {line}" for line in resolved.ignored)
    info = selectors.model_limits(model=session.model)
    window = window_of(policy=policy, model=info)
    threshold = max(window.auto_compact_threshold, 1)
    state = warning_state(
        window=window,
        context_tokens=session.context_tokens,
        overhead_tokens=session.fixed_overhead_tokens(policy=policy),
        context_bytes=session.view_bytes,
    )
    return Gauge(
        tokens=session.context_tokens,
        percent=round(100 * session.context_tokens / threshold),
        fill=_share(session.context_tokens, window),
        level=state.level,
        basis=BASIS.get(Session.ContextSource(session.context_source), session.context_source),
        window=window,
        marks=_marks(window),
        assumed_model=info.assumed,
        problem=problem,
    )


def _marks(window: Window) -> tuple[Mark, ...]:
    figures = (
        ("warning", window.warning_threshold),
        ("auto-compact", window.auto_compact_threshold),
        ("effective", window.effective_window),
    )
    return tuple(Mark(name=name, tokens=tokens, at=_share(tokens, window)) for name, tokens in figures)


def _share(tokens: int, window: Window) -> float:
    return round(min(100 * tokens / max(window.context_window, 1), 100), 1)
