"""What has happened to a team's sessions: one computation for the API and for the dashboard (S18).

Five queries, whatever the time and the team's size; each begins at the team and reads the time that is asked for. Days
are UTC. Counted is what this service did: boundaries that came with an imported transcript, and those that were brought
back, are nobody's work of that day.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db.models import Count, F, Q, QuerySet, Sum
from django.db.models.functions import TruncDate

from compaction_app import telemetry
from compaction_app.models import CompactionRun, RunStatus, TelemetryEvent
from sessions_app.models import CompactBoundary, Session, Team
from sessions_app.policy import Policy
from sessions_app.transcript.boundary import BoundaryKind
from sessions_app.transcript.messages import Usage
from sessions_app.transcript.window import Level

COUNTED_EVENTS = {
    telemetry.BREAKER_OPENED: "breaker_openings",
    telemetry.MEMORY_EXTRACTED: "memory_extractions",
    telemetry.BOUNDARY_REVERTED: "reverts",
}


@dataclass(slots=True)
class Compacted:
    """Compactions of one kind that one trigger started; tokens of the whole context, added up."""

    kind: str
    trigger: str
    count: int = 0
    tokens_before: int = 0
    tokens_after: int = 0

    @property
    def tokens_freed(self) -> int:
        return self.tokens_before - self.tokens_after


@dataclass(frozen=True, slots=True)
class Failed:
    reason: str
    count: int


@dataclass(slots=True)
class Spent:
    """Of calls of a model: USD, None where nothing was billed or no price is known; tokens of their prompts."""

    cost_usd: Decimal | None = None
    cost_uncached_usd: Decimal | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0

    @property
    def cache_share(self) -> float | None:
        """How much of the prompts the provider read from its cache, 0 to 1; None without a prompt."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None

    def add(self, *, cost: Decimal | None, uncached: Decimal | None, usage: Usage | None) -> None:
        if cost is not None:
            self.cost_usd = (self.cost_usd or Decimal()) + cost
        if uncached is not None:
            self.cost_uncached_usd = (self.cost_uncached_usd or Decimal()) + uncached
        if usage is not None:
            self.prompt_tokens += usage.prompt_tokens
            self.cached_tokens += usage.cache_read_input_tokens


@dataclass(slots=True)
class Sums:
    """What was done on a day (UTC); None: on all of them."""

    day: date | None = None
    by_kind: dict[tuple[str, str], Compacted] = field(default_factory=dict)
    by_reason: dict[str, int] = field(default_factory=dict)
    clearings: int = 0
    tokens_cleared: int = 0
    spent: Spent = field(default_factory=Spent)
    breaker_openings: int = 0
    memory_extractions: int = 0
    reverts: int = 0

    @property
    def compactions(self) -> list[Compacted]:
        return [self.by_kind[key] for key in sorted(self.by_kind)]

    @property
    def failures(self) -> list[Failed]:
        """The most frequent first."""
        found = (Failed(reason=reason, count=count) for reason, count in self.by_reason.items())
        return sorted(found, key=lambda one: (-one.count, one.reason))

    @property
    def compaction_count(self) -> int:
        return sum(one.count for one in self.by_kind.values())

    @property
    def failure_count(self) -> int:
        return sum(self.by_reason.values())

    @property
    def tokens_before(self) -> int:
        return sum(one.tokens_before for one in self.by_kind.values())

    @property
    def tokens_after(self) -> int:
        return sum(one.tokens_after for one in self.by_kind.values())

    @property
    def tokens_freed(self) -> int:
        return self.tokens_before - self.tokens_after


@dataclass(frozen=True, slots=True)
class ModelUse:
    """Runs that a model wrote for, or was asked last."""

    model: str
    runs: int
    spent: Spent


@dataclass(frozen=True, slots=True)
class TopSession:
    """`tokens_freed`: by compactions and clearings together."""

    uuid: Any
    title: str
    boundaries: int
    tokens_freed: int


@dataclass(frozen=True, slots=True)
class AtLevel:
    level: str
    sessions: int


@dataclass(frozen=True, slots=True)
class TelemetrySummary:
    """`days`: oldest first, one for each day of the time. Durations: seconds of the runs that succeeded, from the first
    claim to the end; None without one. `levels`: all sessions of the team as they are now, by level."""

    since: date
    until: date
    totals: Sums
    days: Sequence[Sums]
    models: Sequence[ModelUse]
    median_seconds: float | None
    p90_seconds: float | None
    sessions: int
    active_sessions: int
    levels: Sequence[AtLevel]
    top_sessions: Sequence[TopSession]


def events_of(*, team: Team) -> QuerySet[TelemetryEvent]:
    """The team's events with the ids of session and run: one query."""
    rows = TelemetryEvent.objects.for_team(team).select_related("session", "run")
    return rows.only("id", "uuid", "name", "at", "payload", "session__uuid", "run__uuid")


def telemetry_summary(*, team: Team, days: int, now: datetime) -> TelemetrySummary:
    """The last `days` UTC days of the team, that of `now` included."""
    until = now.astimezone(UTC).date()
    since = until - timedelta(days=days - 1)
    time = (_midnight(since), _midnight(until + timedelta(days=1)))
    totals, series = Sums(), {day: Sums(day=day) for day in (since + timedelta(days=number) for number in range(days))}
    _add_boundaries(totals, series, _boundaries(team, time))
    _add_events(totals, series, team, time)
    models, seconds = _add_runs(totals, series, team, time)
    levels, active = _sessions(team, time)
    return TelemetrySummary(
        since=since,
        until=until,
        totals=totals,
        days=list(series.values()),
        models=models,
        median_seconds=statistics.median(seconds) if seconds else None,
        p90_seconds=seconds[math.ceil(0.9 * len(seconds)) - 1] if seconds else None,
        sessions=sum(one.sessions for one in levels),
        active_sessions=active,
        levels=levels,
        top_sessions=_top(_boundaries(team, time)),
    )


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _boundaries(team: Team, time: tuple[datetime, datetime]) -> QuerySet[CompactBoundary]:
    ours = Q(run__isnull=False) | Q(kind=BoundaryKind.MICROCOMPACT.value, source_key="", restores__isnull=True)
    return CompactBoundary.objects.for_team(team).filter(ours, created_at__gte=time[0], created_at__lt=time[1])


def _add_boundaries(totals: Sums, series: dict[date, Sums], rows: QuerySet[CompactBoundary]) -> None:
    found = (
        rows.annotate(day=TruncDate("created_at", tzinfo=UTC))
        .values("day", "kind", "trigger")
        .annotate(number=Count("pk"), before=Sum("tokens_before"), after=Sum("tokens_after"))
        .values_list("day", "kind", "trigger", "number", "before", "after")
    )
    for day, kind, trigger, number, before, after in found:
        for sums in (totals, series[day]):
            if kind == BoundaryKind.MICROCOMPACT:
                sums.clearings += number
                sums.tokens_cleared += before - (after or 0)
                continue
            one = sums.by_kind.setdefault((kind, trigger), Compacted(kind=kind, trigger=trigger))
            one.count += number
            one.tokens_before += before
            one.tokens_after += after or 0


def _add_events(totals: Sums, series: dict[date, Sums], team: Team, time: tuple[datetime, datetime]) -> None:
    found = (
        TelemetryEvent.objects.for_team(team)
        .filter(name__in=COUNTED_EVENTS, at__gte=time[0], at__lt=time[1])
        .annotate(day=TruncDate("at", tzinfo=UTC))
        .values("day", "name")
        .annotate(number=Count("pk"))
        .values_list("day", "name", "number")
    )
    for day, name, number in found:
        for sums in (totals, series[day]):
            setattr(sums, COUNTED_EVENTS[name], getattr(sums, COUNTED_EVENTS[name]) + number)


def _add_runs(
    totals: Sums, series: dict[date, Sums], team: Team, time: tuple[datetime, datetime]
) -> tuple[list[ModelUse], list[float]]:
    """The models, and how long the runs took that succeeded, in seconds, the shortest first.

    Row by row: usages are JSON kept as text, and no database that we use has a median in common with the other.
    """
    models: dict[str, tuple[int, Spent]] = {}
    seconds = []
    for finished_at, started_at, status, reason, model, usage, cost, uncached in _runs(team, time):
        told = {"cost": cost, "uncached": uncached, "usage": Usage.from_json(usage)}
        for sums in (totals, series[finished_at.astimezone(UTC).date()]):
            sums.spent.add(**told)
            if status == RunStatus.FAILED:
                sums.by_reason[reason] = sums.by_reason.get(reason, 0) + 1
        if model:
            runs, spent = models.get(model, (0, Spent()))
            spent.add(**told)
            models[model] = (runs + 1, spent)
        if status == RunStatus.SUCCEEDED and started_at is not None:
            seconds.append((finished_at - started_at).total_seconds())
    uses = [ModelUse(model=name, runs=runs, spent=spent) for name, (runs, spent) in models.items()]
    return sorted(uses, key=lambda use: (-use.runs, use.model)), sorted(seconds)


def _runs(team: Team, time: tuple[datetime, datetime]) -> Iterable[tuple[Any, ...]]:
    columns = (
        "finished_at",
        "started_at",
        "status",
        "failure_reason",
        "model",
        "usage",
        "cost_usd",
        "cost_uncached_usd",
    )
    rows = CompactionRun.objects.for_team(team).filter(finished_at__gte=time[0], finished_at__lt=time[1])
    return rows.values_list(*columns).iterator(chunk_size=2_000)


def _sessions(team: Team, time: tuple[datetime, datetime]) -> tuple[list[AtLevel], int]:
    """How many sessions there are at each level, and how many had a message in the time."""
    levels, active = dict.fromkeys((level.value for level in Level), 0), 0
    found = Session.objects.for_team(team).values("level")
    counted = found.annotate(number=Count("pk"), active=Count("pk", filter=Q(last_message_at__gte=time[0])))
    for level, number, lately in counted.values_list("level", "number", "active"):
        levels[level] = number
        active += lately
    return [AtLevel(level=level, sessions=number) for level, number in levels.items()], active


def _top(rows: QuerySet[CompactBoundary]) -> list[TopSession]:
    freed = rows.values("session_id", "session__uuid", "session__title").annotate(
        number=Count("pk"), freed=Sum(F("tokens_before") - F("tokens_after"))
    )
    best = freed.filter(freed__gt=0).order_by("-freed", "session_id")[: Policy().telemetry_top_sessions]
    return [
        TopSession(uuid=uuid, title=title, boundaries=number, tokens_freed=tokens)
        for uuid, title, number, tokens in best.values_list("session__uuid", "session__title", "number", "freed")
    ]
