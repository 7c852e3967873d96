"""Composed reads: what the API and other interfaces show of sessions, contexts and runs. Nothing here writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Prefetch, Q, QuerySet

from compaction_app.engine.analysis import Report, Totals, report
from compaction_app.engine.breaker import BreakerState, OpenedBy, as_told, retry_at
from compaction_app.engine.client_state import StateValue
from compaction_app.engine.decision import Facts, elsewhere, hindrance
from compaction_app.engine.relief import ReliefReader
from compaction_app.engine.values import MemoryValue
from compaction_app.models import (
    ClientState,
    CompactionCandidate,
    CompactionRun,
    CompactionState,
    Decision,
    Hook,
    HookDelivery,
    ModelCall,
    SessionMemory,
)
from compaction_app.models.decisions import DecisionQuerySet
from compaction_app.models.runs import RunQuerySet
from sessions_app import selectors as transcripts
from sessions_app.catalog import TokenizerFamily, WindowSource, tokenizer_family
from sessions_app.figures import Tables, bounds
from sessions_app.models import CompactBoundary, Message, Session, Team
from sessions_app.models.boundaries import BoundaryQuerySet
from sessions_app.models.sessions import SessionQuerySet
from sessions_app.policy import FIGURES, ResolvedPolicy
from sessions_app.transcript import edits
from sessions_app.transcript.analysis import ContextAnalyzer
from sessions_app.transcript.diff import ContextDiff, diff_views
from sessions_app.transcript.request import MessagesRequest, build_request
from sessions_app.transcript.tokens import estimate_json
from sessions_app.transcript.view import ContextView
from sessions_app.transcript.window import Level, Window, warning_state, window_of

# Columns of a session that may be large and that a page about something else does not show.
_LARGE = ("system", "tools", "metadata", "anchor", "policy_overrides")


@dataclass(frozen=True, slots=True)
class TokenState:
    """How full a session is, and where its thresholds stand, in tokens; for a request's size in bytes."""

    context_tokens: int
    source: str
    context_window: int
    window_source: WindowSource
    model_assumed: bool
    effective_window: int
    warning_threshold: int
    error_threshold: int
    auto_compact_threshold: int
    percent_left: int
    level: Level
    above_warning: bool
    above_error: bool
    above_auto_compact: bool
    overhead_tokens: int
    context_bytes: int
    auto_compact_bytes: int
    auto_compact_enabled: bool
    consecutive_failures: int
    consecutive_ineffective: int
    breaker_open: bool
    breaker_opened_at: datetime | None
    breaker_opened_by: OpenedBy | None
    breaker_retry_at: datetime | None
    detail: str | None
    origins: Mapping[str, str]


def sessions_of(*, team: Team) -> SessionQuerySet:
    """The team's sessions with all that their token state is told from: one query."""
    return Session.objects.for_team(team).select_related("team", "compaction_state")


def breaker_state(*, session: Session) -> BreakerState:
    """The breaker as it is told, by the session's level when that last changed.

    No query where `compaction_state` is loaded, else one.
    """
    stored = breaker_value(row=getattr(session, "compaction_state", None))
    return as_told(state=stored, unreachable=session.level == Level.UNREACHABLE)


def has_open_breaker() -> Q:
    """The sessions whose breaker `breaker_state` tells as open."""
    by_its_runs = Q(compaction_state__opened_by__in=[OpenedBy.FAILURES.value, OpenedBy.INEFFECTIVE.value])
    return Q(level=Level.UNREACHABLE.value) | by_its_runs


def breaker_value(*, row: CompactionState | None) -> BreakerState:
    """The row as the rule knows it; None: nothing is remembered yet."""
    if row is None:
        return BreakerState()
    return BreakerState(
        failures=row.consecutive_failures,
        ineffective=row.consecutive_ineffective,
        last_failure=row.last_failure,
        opened_at=row.opened_at,
        opened_by=OpenedBy(row.opened_by) if row.opened_by else None,
        tried_at=row.tried_at,
        nothing_at_tokens=row.nothing_at_tokens,
    )


def decision_facts(*, session: Session) -> Facts:
    """What a decision looks at: columns of the session, its team and its breaker; no history is read."""
    resolved = transcripts.effective_policy(team=session.team, session=session)
    window = window_of(policy=resolved.policy, model=transcripts.model_limits(model=session.model))
    return _facts(session=session, resolved=resolved, window=window)


def _facts(*, session: Session, resolved: ResolvedPolicy, window: Window) -> Facts:
    overhead = session.fixed_overhead_tokens(policy=resolved.policy)
    state = warning_state(
        window=window,
        context_tokens=session.context_tokens,
        overhead_tokens=overhead,
        context_bytes=session.view_bytes,
    )
    return Facts(
        context_tokens=session.context_tokens,
        context_bytes=session.view_bytes,
        shown_tokens=session.view_tokens,
        ignored_prompt_tokens=session.ignored_prompt_tokens,
        overhead_tokens=overhead,
        window=window,
        level=state.level,
        percent_left=state.percent_left,
        resolved=resolved,
        breaker=breaker_value(row=getattr(session, "compaction_state", None)),
    )


def token_state(*, session: Session) -> TokenState:
    """Computed from the rows of the session, its team and its breaker: no history is read."""
    resolved = transcripts.effective_policy(team=session.team, session=session)
    model = transcripts.model_limits(model=session.model)
    window = window_of(policy=resolved.policy, model=model)
    facts = _facts(session=session, resolved=resolved, window=window)
    breaker = facts.told_breaker
    return TokenState(
        context_tokens=session.context_tokens,
        source=session.context_source,
        context_window=window.context_window,
        window_source=model.source if resolved.policy.context_window is None else WindowSource.OVERRIDE,
        model_assumed=model.assumed,
        effective_window=window.effective_window,
        warning_threshold=window.warning_threshold,
        error_threshold=window.error_threshold,
        auto_compact_threshold=window.auto_compact_threshold,
        percent_left=facts.percent_left,
        level=facts.level,
        above_warning=facts.context_tokens >= window.warning_threshold,
        above_error=facts.context_tokens >= window.error_threshold,
        above_auto_compact=facts.is_over,
        overhead_tokens=session.overhead_tokens,
        context_bytes=session.view_bytes,
        auto_compact_bytes=window.auto_compact_bytes,
        consecutive_failures=breaker.failures,
        consecutive_ineffective=breaker.ineffective,
        breaker_open=breaker.is_open,
        breaker_opened_at=breaker.opened_at,
        breaker_opened_by=breaker.opened_by,
        breaker_retry_at=retry_at(state=breaker, policy=resolved.policy),
        detail=hindrance(facts=facts) or elsewhere(facts=facts),
        auto_compact_enabled=resolved.policy.auto_compact_enabled and resolved.policy.compaction_enabled,
        origins=dict(resolved.origins),
    )


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One figure as it holds for a session; values as JSON has them."""

    name: str
    value: Any
    default: Any
    origin: str
    unit: str
    allowed: str
    variable: str | None
    overridable: bool
    meaning: str


@dataclass(frozen=True, slots=True)
class PolicyTable:
    figures: tuple[FigureRow, ...]
    ignored: tuple[str, ...]


def policy_table(*, session: Session) -> PolicyTable:
    """Every figure that holds for the session (with its team loaded), and who set it."""
    resolved = transcripts.effective_policy(team=session.team, session=session)
    rows = (
        FigureRow(
            name=name,
            value=_as_json(getattr(resolved.policy, name)),
            default=_as_json(figure.default),
            origin=resolved.origin(name),
            unit=figure.metadata["unit"],
            allowed=bounds(figure.metadata),
            variable=figure.metadata["env"].lstrip("!") or None,
            overridable=not figure.metadata["service"],
            meaning=figure.metadata["meaning"],
        )
        for name, figure in FIGURES.items()
    )
    return PolicyTable(figures=tuple(rows), ignored=resolved.ignored)


def _as_json(value: Any) -> Any:
    return value.as_json() if isinstance(value, Tables) else value


@dataclass(frozen=True, slots=True)
class Context:
    """What to send to the model: API-valid. `boundary`: the id of the boundary that it starts from; `betas`: names that
    the request must carry."""

    system: Any
    tools: Any
    messages: list[dict[str, Any]]
    tokens: int
    boundary: str | None
    cleared_tool_results: int
    betas: tuple[str, ...] = ()


def context(*, session: Session, at: str | None = None) -> Context:
    """The context now, or as it stood right after the boundary `at` (a uuid). Raises UnknownBoundary."""
    if at is None:
        view = transcripts.context_view(session=session)
        tokens = session.context_tokens
    else:
        view = transcripts.context_view_at(session=session, boundary_uuid=at)
        # As it was counted then: the estimate of a later day knows more.
        row = CompactBoundary.objects.filter(session=session, uuid=at).values_list("tokens_after", flat=True)
        tokens = row[0] if row[0] is not None else session.overhead_tokens + view.tokens
    request = build_request(view=view, system=session.system, tools=session.tools)
    return _context(request=request, view=view, tokens=tokens)


def _context(*, request: MessagesRequest, view: ContextView, tokens: int) -> Context:
    return Context(
        system=request.system,
        tools=request.tools,
        messages=request.messages,
        tokens=tokens,
        boundary=view.boundary.id if view.boundary else None,
        cleared_tool_results=request.cleared_tool_results,
        betas=request.betas,
    )


@dataclass(frozen=True, slots=True)
class PreparedContext:
    """A context together with the edits that the API is to apply to it: in one of the two dialects, or none."""

    context: Context
    context_management: Mapping[str, Any]
    cache_edits: Mapping[str, Any]
    betas: tuple[str, ...]


def prepared_context(*, session: Session, view: ContextView | None = None) -> PreparedContext:
    """What to send now, with the results that edits clear sent whole, so that the prefix stays as it was cached.

    `view`: as a request shows it, where that has been read just now; else it is read.
    """
    policy = transcripts.effective_policy(team=session.team, session=session).policy
    if view is None:
        view = transcripts.context_view(session=session, edits_at_api=policy.cache_edits_enabled)
    request = build_request(view=view, system=session.system, tools=session.tools)
    by_cache_edits = policy.cache_edit_dialect == edits.CACHE_EDITS
    managed: Mapping[str, Any] = {}
    if not by_cache_edits:
        managed = edits.managed(view=view, request=request, least_tokens=policy.clear_least_tokens)
    return PreparedContext(
        context=_context(request=request, view=view, tokens=session.context_tokens),
        context_management=managed,
        cache_edits=edits.cache_edits(edited=request.edited) if by_cache_edits else {},
        betas=(*request.betas, *((edits.CONTEXT_MANAGEMENT_BETA,) if managed else ())),
    )


def client_state(*, session: Session) -> ClientState | None:
    """What the client has told of its state; None where it never did. One query."""
    return ClientState.objects.filter(session=session).first()


def state_value(*, session: Session) -> StateValue:
    """The same as a compaction takes it, with the names of the tools that the request declares. One query."""
    row = client_state(session=session)
    return StateValue.from_json(row.state if row else None, declared=session.tools)


def memory(*, session: Session) -> SessionMemory | None:
    """The session's memory document; None where it has none. One query."""
    return SessionMemory.objects.filter(session=session).first()


def memory_value(*, session: Session) -> MemoryValue | None:
    """The same as a compaction takes it. Two queries at most."""
    row = memory(session=session)
    return as_memory_value(row=row) if row else None


def as_memory_value(*, row: SessionMemory) -> MemoryValue:
    """One query: whether the conversation still goes through the last message that it covers."""
    covered = Message.objects.filter(session=row.session_id, position=row.covers_position, left_path_at__isnull=True)
    return MemoryValue(
        content=row.content,
        covers_to=row.covers_position,
        is_live=covered.exists(),
        source=row.source,
        generation=row.generation,
    )


def analysis(*, session: Session, now: datetime) -> Report:
    """What fills the context now, and what the light links could free of it. Reads what is shown, once.

    Holds no more than a small row for each result that may be cleared.
    """
    policy = transcripts.effective_policy(team=session.team, session=session).policy
    family = tokenizer_family(session.model)
    streamed = transcripts.stream_view(session=session)
    analyzer = ContextAnalyzer(
        family=family, boundary=streamed.boundary, rows=policy.analysis_rows, tracked=policy.analysis_tracked
    )
    reader = ReliefReader(policy=policy, family=family)
    for item in streamed.items:
        analyzer.add(item)
        reader.add(item)
    window = window_of(policy=policy, model=transcripts.model_limits(model=session.model))
    links = reader.reliefs(
        tokens=session.context_tokens,
        overhead_tokens=session.overhead_tokens,
        last_position=session.last_position,
        last_assistant_at=session.last_assistant_at,
        window=window,
        now=now,
        shown_ratio=transcripts.shown_ratio(session=session),
    )
    totals = Totals(
        context_tokens=session.context_tokens,
        source=session.context_source,
        context_window=window.context_window,
        overhead_tokens=session.overhead_tokens,
        overhead_measured=session.overhead_measured,
        system_tokens=_estimate(session.system, family),
        tools_tokens=_estimate(session.tools, family),
    )
    return report(totals=totals, found=analyzer.finish(), links=links, policy=policy)


def _estimate(value: Any, family: TokenizerFamily) -> int:
    """Tokens of a system prompt or of tool definitions; 0 where the session has none."""
    return estimate_json(value=value, family=family) if value else 0


def runs_of(*, team: Team, with_said: bool = False) -> RunQuerySet:
    """The team's runs with all that their page shows: three queries, whatever their number.

    `with_said`: with what a model said that was not taken as a summary, which may be long.
    """
    calls = ModelCall.objects.all() if with_said else ModelCall.objects.defer("said")
    return (
        CompactionRun.objects.for_team(team)
        .select_related("session", "boundary", "retry_of")
        .defer(*(f"session__{name}" for name in _LARGE), "boundary__summary", "boundary__cleared_tool_use_ids")
        .defer(*(f"retry_of__{name}" for name in ("instructions", "detail", "stages", "attempts", "usage")))
        .prefetch_related("steps", Prefetch("calls", queryset=calls))
    )


def boundaries_of(*, team: Team) -> BoundaryQuerySet:
    """The team's boundaries with session, run and attachments: two queries, whatever their number."""
    return (
        CompactBoundary.objects.for_team(team)
        .select_related("session", "run", "restores")
        .defer(*(f"session__{name}" for name in _LARGE), "restores__summary")
        .prefetch_related("attachments")
    )


def candidate_of(*, run: CompactionRun) -> CompactionCandidate | None:
    """What the run proposes, or has proposed; None where it never waited for anybody. One query."""
    return CompactionCandidate.objects.filter(run=run).select_related("run__session").first()


def is_stale(*, candidate: CompactionCandidate) -> bool:
    """Whether it was made of a context that is not there any more. At most three index look-ups."""
    session = candidate.run.session
    return bool(transcripts.gone_stale(session=session, head_id=candidate.head_id, as_of=candidate.as_of))


def boundary_diff(*, boundary: CompactBoundary) -> ContextDiff:
    """What the boundary changed in the context. Reads what was shown before and after it."""
    session, uuid = boundary.session, str(boundary.uuid)
    return diff_views(
        before=transcripts.context_view_before(session=session, boundary_uuid=uuid),
        after=transcripts.context_view_at(session=session, boundary_uuid=uuid),
    )


def decisions_of(*, team: Team) -> DecisionQuerySet:
    """The team's decisions with the id of the run that one has queued: one query."""
    large = ("run__instructions", "run__detail", "run__attempts", "run__usage")
    return Decision.objects.for_team(team).select_related("run").defer(*large)


def deliveries_of(*, hook: Hook) -> QuerySet[HookDelivery]:
    """What was sent to the hook, and what waits, with the ids of session and run: one query."""
    rows = HookDelivery.objects.filter(hook=hook).select_related("session", "run")
    return rows.only(*(f.name for f in HookDelivery._meta.concrete_fields), "session__uuid", "run__uuid")
