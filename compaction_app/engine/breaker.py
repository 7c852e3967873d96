"""When automatic compaction stops by itself, and when it may try again (S10; decision 9).

A session's breaker is a value; each function answers with the value after something has happened. Runs of every trigger
count, and only automatic ones are held back: a person's own request is never refused here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from compaction_app.engine.outcome import FailureReason
from sessions_app.policy import Policy

# How a run may end without success and without counting as a failure.
NO_FAILURE = frozenset(
    {
        FailureReason.NOTHING_TO_COMPACT,
        FailureReason.NOT_SMALLER,
        FailureReason.STALE_VIEW,
        FailureReason.COMPACTION_DISABLED,
        FailureReason.REFUSED_BY_HOOK,
        FailureReason.EXCEEDS_WINDOW,
    }
)

_MINUTE = "%Y-%m-%d %H:%M"


class OpenedBy(StrEnum):
    """What opened a breaker: failures in a row, runs in a row that did not help, or a threshold out of reach."""

    FAILURES = "failures"
    INEFFECTIVE = "ineffective"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class BreakerState:
    """What is remembered of a session's runs. Open when `opened_by` is set; stored, `opened_at` is set with it.

    `failures`, `ineffective`: in a row; `last_failure`: reason of the newest of them. `tried_at`: when the open breaker
    last let a run through, or when an automatic one last ended badly while it was open; the cool-down counts from
    there. `nothing_at_tokens`: estimate of what was shown when a run found nothing to compact, or what it proposed was
    rejected; None where none did.
    """

    failures: int = 0
    ineffective: int = 0
    last_failure: str = ""
    opened_at: datetime | None = None
    opened_by: OpenedBy | None = None
    tried_at: datetime | None = None
    nothing_at_tokens: int | None = None

    @property
    def is_open(self) -> bool:
        return self.opened_by is not None


@dataclass(frozen=True, slots=True)
class Permission:
    """Whether a run may start by itself. `is_try`: it is the one that an open breaker allows; `why`: in words."""

    allowed: bool
    is_try: bool = False
    why: str = ""


def after_failure(
    *, state: BreakerState, reason: FailureReason, automatic: bool, shown_tokens: int, policy: Policy, now: datetime
) -> BreakerState:
    """A run has failed. What tells nothing about the next run (`NO_FAILURE`) counts for nothing.

    `automatic`: it had started by itself; `shown_tokens`: estimate of what it has found shown.
    """
    if reason is FailureReason.NOT_SMALLER:
        # The summary was written for nothing: like a run that did not help, and not asked for again at once.
        unhelpful = replace(state, ineffective=state.ineffective + 1, nothing_at_tokens=shown_tokens)
        return _judged(unhelpful, automatic=automatic, policy=policy, now=now)
    if reason in (FailureReason.NOTHING_TO_COMPACT, FailureReason.REFUSED_BY_HOOK):
        return replace(state, nothing_at_tokens=shown_tokens)
    if reason in NO_FAILURE:
        return state
    counted = replace(state, failures=state.failures + 1, last_failure=reason.value)
    return _judged(counted, automatic=automatic, policy=policy, now=now)


def after_rejection(*, state: BreakerState, shown_tokens: int) -> BreakerState:
    """Somebody has rejected what a run proposed: no failure, but not to be proposed again at once, of the same."""
    return replace(state, nothing_at_tokens=shown_tokens)


def after_success(
    *, state: BreakerState, effective: bool, automatic: bool, policy: Policy, now: datetime
) -> BreakerState:
    """A run has succeeded. One that helped closes the breaker and forgets everything; another is no failure either."""
    if effective:
        return BreakerState()
    counted = replace(state, failures=0, last_failure="", ineffective=state.ineffective + 1, nothing_at_tokens=None)
    return _judged(counted, automatic=automatic, policy=policy, now=now)


def after_reset() -> BreakerState:
    """Somebody has reset it: nothing is remembered."""
    return BreakerState()


def after_request(*, state: BreakerState, now: datetime) -> BreakerState:
    """An automatic run was requested: an open breaker has used up its try."""
    return replace(state, tried_at=now) if state.is_open else state


def when_unreachable(*, state: BreakerState, now: datetime) -> BreakerState:
    """No compaction can bring the context below its threshold. A breaker that is open already stays as it is."""
    return state if state.is_open else replace(state, opened_at=now, opened_by=OpenedBy.UNREACHABLE)


def when_reachable(*, state: BreakerState) -> BreakerState:
    """The threshold can be reached: a breaker that was open for that alone closes. The counts stay."""
    if state.opened_by is not OpenedBy.UNREACHABLE:
        return state
    return replace(state, opened_at=None, opened_by=None, tried_at=None)


def as_told(*, state: BreakerState, unreachable: bool) -> BreakerState:
    """The state as it is told of a session whose threshold is out of reach now, or is not.

    What is stored follows with the next decision. Where none has been made since, `opened_at` is not known.
    """
    return replace(state, opened_by=OpenedBy.UNREACHABLE) if unreachable else when_reachable(state=state)


def is_effective(*, tokens_before: int, tokens_after: int, over_threshold: bool, policy: Policy) -> bool:
    """Whether a compaction helped: it freed a share worth it and left the context below the automatic threshold."""
    return not over_threshold and tokens_before - tokens_after >= policy.least_freed_share * tokens_before


def retry_at(*, state: BreakerState, policy: Policy) -> datetime | None:
    """From when on an open breaker allows one automatic try; None when it is closed or time alone does not help."""
    if state.opened_at is None or state.opened_by is OpenedBy.UNREACHABLE:
        return None
    since = max(state.opened_at, state.tried_at or state.opened_at)
    return since + timedelta(seconds=policy.breaker_cooldown_seconds)


def may_start(*, state: BreakerState, policy: Policy, now: datetime) -> Permission:
    """Whether a run may start by itself now."""
    if not state.is_open:
        return Permission(allowed=True)
    retry = retry_at(state=state, policy=policy)
    allowed = retry is not None and now >= retry
    return Permission(allowed=allowed, is_try=allowed, why=advised(state=state, policy=policy))


def told(*, state: BreakerState) -> str:
    """Since when an open breaker is open, and why, in words; "" for a closed one. Times are UTC."""
    if not state.is_open:
        return ""
    since = f" since {state.opened_at:{_MINUTE}} UTC" if state.opened_at else ""
    return f"breaker open{since} {_cause(state)}"


def advised(*, state: BreakerState, policy: Policy) -> str:
    """The same, with what closes it."""
    retry = retry_at(state=state, policy=policy)
    if retry is None:
        return f"{told(state=state)}; it closes by itself once one could"
    same_day = state.opened_at is not None and retry.date() == state.opened_at.date()
    clock = retry.strftime("%H:%M" if same_day else _MINUTE)
    return f"{told(state=state)}; one try is allowed from {clock} UTC on, or reset it"


def _cause(state: BreakerState) -> str:
    """Counts are told while there are any: a try that ended otherwise has set them back."""
    if state.opened_by is OpenedBy.UNREACHABLE:
        return "because no compaction could reach the threshold"
    if state.opened_by is OpenedBy.INEFFECTIVE:
        number = f"{state.ineffective} " if state.ineffective else ""
        return f"after {number}compactions in a row that did not help"
    number = f"{state.failures} " if state.failures else ""
    newest = f" (the last: {state.last_failure})" if state.last_failure else ""
    return f"after {number}failures in a row{newest}"


def _judged(state: BreakerState, *, automatic: bool, policy: Policy, now: datetime) -> BreakerState:
    """Opens it where a count has reached its limit.

    An automatic try that ends badly while it is open begins the cool-down anew; a run by hand pushes no try away.
    """
    if state.opened_by is OpenedBy.UNREACHABLE:
        return state
    if state.is_open:
        return replace(state, tried_at=now) if automatic else state
    if state.failures >= policy.breaker_failures:
        return replace(state, opened_at=now, opened_by=OpenedBy.FAILURES)
    if state.ineffective >= policy.breaker_ineffective:
        return replace(state, opened_at=now, opened_by=OpenedBy.INEFFECTIVE)
    return state
