"""Composed reads: what the API and other interfaces show of sessions, contexts and runs. Nothing here writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compaction_app.models import CompactionRun
from compaction_app.models.runs import RunQuerySet
from sessions_app import selectors as transcripts
from sessions_app.catalog import model_info
from sessions_app.models import CompactBoundary, Session, Team
from sessions_app.models.boundaries import BoundaryQuerySet
from sessions_app.transcript.request import build_request
from sessions_app.transcript.window import Level, warning_state, window_of

# Columns of a session that may be large and that a page about something else does not show.
_LARGE = ("system", "tools", "metadata", "anchor", "policy_overrides")


@dataclass(frozen=True, slots=True)
class TokenState:
    """How full a session is, and where its thresholds stand. All figures in tokens."""

    context_tokens: int
    source: str
    context_window: int
    effective_window: int
    warning_threshold: int
    error_threshold: int
    auto_compact_threshold: int
    percent_left: int
    level: Level
    auto_compact_enabled: bool
    origins: Mapping[str, str]


def token_state(*, session: Session) -> TokenState:
    """Computed from the session's row and its team's: no history is read."""
    resolved = transcripts.effective_policy(team=session.team, session=session)
    window = window_of(policy=resolved.policy, model=model_info(session.model))
    state = warning_state(window=window, context_tokens=session.context_tokens, overhead_tokens=session.overhead_tokens)
    return TokenState(
        context_tokens=session.context_tokens,
        source=session.context_source,
        context_window=window.context_window,
        effective_window=window.effective_window,
        warning_threshold=window.warning_threshold,
        error_threshold=window.error_threshold,
        auto_compact_threshold=window.auto_compact_threshold,
        percent_left=state.percent_left,
        level=state.level,
        auto_compact_enabled=resolved.policy.auto_compact_enabled and resolved.policy.compaction_enabled,
        origins=dict(resolved.origins),
    )


@dataclass(frozen=True, slots=True)
class Context:
    """What to send to the model: API-valid. `boundary`: the id of the boundary that it starts from."""

    system: Any
    tools: Any
    messages: list[dict[str, Any]]
    tokens: int
    boundary: str | None
    cleared_tool_results: int


def context(*, session: Session, at: str | None = None) -> Context:
    """The context now, or as it stood right after the boundary `at` (a uuid). Raises UnknownBoundary."""
    if at is None:
        view = transcripts.context_view(session=session)
        tokens = session.context_tokens
    else:
        view = transcripts.context_view_at(session=session, boundary_uuid=at)
        tokens = session.overhead_tokens + view.tokens
    request = build_request(view=view, system=session.system, tools=session.tools)
    return Context(
        system=request.system,
        tools=request.tools,
        messages=request.messages,
        tokens=tokens,
        boundary=view.boundary.id if view.boundary else None,
        cleared_tool_results=request.cleared_tool_results,
    )


def runs_of(*, team: Team) -> RunQuerySet:
    """The team's runs with all that their page shows: two queries, whatever their number."""
    return (
        CompactionRun.objects.for_team(team)
        .select_related("session", "boundary")
        .defer(*(f"session__{name}" for name in _LARGE), "boundary__summary", "boundary__cleared_tool_use_ids")
        .prefetch_related("steps")
    )


def boundaries_of(*, team: Team) -> BoundaryQuerySet:
    """The team's boundaries with session, run and attachments: two queries, whatever their number."""
    return (
        CompactBoundary.objects.for_team(team)
        .select_related("session", "run")
        .defer(*(f"session__{name}" for name in _LARGE))
        .prefetch_related("attachments")
    )
