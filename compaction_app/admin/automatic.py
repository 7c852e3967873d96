"""What a session's page tells of automatic compaction: whether it starts by itself, and what was decided lately."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse

from compaction_app import selectors
from compaction_app.admin.gauge import LEVELS, SHORT_LEVELS
from compaction_app.admin.policy_form import variable_of
from compaction_app.admin.rendering.text import visible
from compaction_app.engine.breaker import BreakerState, retry_at
from compaction_app.engine.decision import Outcome, elsewhere, hindrance
from compaction_app.models import Decision
from sessions_app.models import Session
from sessions_app.policy import Policy, ResolvedPolicy
from sessions_app.transcript.window import Level

LATEST = 10  # decisions in the card

OUTCOME_BADGES = {
    Outcome.REQUESTED: "success",
    Outcome.APPLIED: "success",
    Outcome.ACTIVE_RUN: "info",
    Outcome.BREAKER_OPEN: "warning",
    Outcome.UNREACHABLE: "warning",
    Outcome.ERROR: "danger",
}


@dataclass(frozen=True, slots=True)
class Breaker:
    """The breaker for people. `next_try`: when an open one allows an automatic run; None where time does not help.

    `resettable`: there is something to forget.
    """

    is_open: bool
    next_try: datetime | None
    try_is_due: bool
    failures: int
    failures_allowed: int
    ineffective: int
    ineffective_allowed: int
    last_failure: str
    resettable: bool


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """A decision in words."""

    row: Decision
    outcome: str
    badge: str
    level: str
    why: str
    url: str


@dataclass(frozen=True, slots=True)
class Automatic:
    """`hindrance`: why nothing would start by itself now, in words; "" where nothing stops it."""

    level: str
    on: bool
    switched_by: str
    hindrance: str
    breaker: Breaker
    decisions: tuple[DecisionRow, ...]


def automatic_of(*, session: Session, now: datetime) -> Automatic:
    """`session` with team and compaction state loaded. One query: the newest decisions."""
    facts = selectors.decision_facts(session=session)
    on, switched_by = _switch(facts.resolved)
    newest = Decision.objects.filter(session=session).order_by("-id")[:LATEST]
    return Automatic(
        level=LEVELS[facts.level],
        on=on,
        switched_by=switched_by,
        hindrance=visible(hindrance(facts=facts) or elsewhere(facts=facts) or ""),
        breaker=breaker_of(state=facts.told_breaker, policy=facts.resolved.policy, now=now),
        decisions=tuple(decision_row(row) for row in newest),
    )


def breaker_of(*, state: BreakerState, policy: Policy, now: datetime) -> Breaker:
    """The breaker in words and figures, as of now."""
    next_try = retry_at(state=state, policy=policy)
    return Breaker(
        is_open=state.is_open,
        next_try=next_try,
        try_is_due=next_try is not None and next_try <= now,
        failures=state.failures,
        failures_allowed=policy.breaker_failures,
        ineffective=state.ineffective,
        ineffective_allowed=policy.breaker_ineffective,
        last_failure=state.last_failure.replace("_", " "),
        resettable=state.is_open or bool(state.failures or state.ineffective),
    )


def _switch(resolved: ResolvedPolicy) -> tuple[bool, str]:
    """Whether compaction starts by itself, and who says so."""
    for name in ("compaction_enabled", "auto_compact_enabled"):
        if not getattr(resolved.policy, name):
            return False, f"{name}: {_who(resolved, name)}"
    return True, f"auto_compact_enabled: {_who(resolved, 'auto_compact_enabled')}"


def _who(resolved: ResolvedPolicy, name: str) -> str:
    origin = resolved.origin(name)
    return f"{variable_of(name)} in the environment" if origin == "environment" else f"the {origin}"


def decision_row(row: Decision) -> DecisionRow:
    """What was chosen and how full it was, in words."""
    return DecisionRow(
        row=row,
        outcome=row.get_outcome_display(),
        badge=OUTCOME_BADGES.get(Outcome(row.outcome), "plain"),
        level=SHORT_LEVELS[Level(row.level)],
        why=visible(row.why),
        url=reverse("admin:compaction_app_decision_change", args=[row.pk]),
    )
