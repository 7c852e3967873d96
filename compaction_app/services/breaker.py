"""The breaker's state in the database: what a run's end, a level and a reset do to it.

Every writer holds the session's lock; the rule is engine/breaker.py. Each opening and closing leaves one telemetry
event in the transaction of its cause. A session has a row only once there is something to remember.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction

from compaction_app import selectors, telemetry
from compaction_app.engine import breaker
from compaction_app.engine.breaker import BreakerState
from compaction_app.engine.outcome import FailureReason
from compaction_app.models import CompactionState, HookEvent
from compaction_app.services import hooks
from sessions_app import selectors as transcripts
from sessions_app.models import Session
from sessions_app.services.append import lock_session
from sessions_app.transcript.window import Level


def note_failure(*, session: Session, reason: FailureReason, automatic: bool, now: datetime) -> None:
    """A run has failed. The caller holds the session's lock; `session` is as the run has read it, with its team.

    `automatic`: the run had started by itself.
    """
    before = _locked_state(session)
    after = breaker.after_failure(
        state=before,
        reason=reason,
        automatic=automatic,
        shown_tokens=session.view_tokens,
        policy=transcripts.effective_policy(team=session.team, session=session).policy,
        now=now,
    )
    _store(session=session, before=before, after=after, cause="failure", now=now)


def note_success(*, session: Session, shown_before: int, automatic: bool, now: datetime) -> None:
    """A run has succeeded. The caller holds the session's lock; `session` is as it is now, all of it.

    `shown_before`: the estimate of what the model was shown before, in tokens. Estimate is compared with estimate, so
    that a usage that a client reports wrongly opens no breaker.
    """
    facts = selectors.decision_facts(session=session)
    effective = breaker.is_effective(
        tokens_before=session.overhead_tokens + shown_before,
        tokens_after=session.overhead_tokens + session.view_tokens,
        over_threshold=facts.is_over or facts.level is Level.UNREACHABLE,
        policy=facts.resolved.policy,
    )
    before = _locked_state(session)
    after = breaker.after_success(
        state=before, effective=effective, automatic=automatic, policy=facts.resolved.policy, now=now
    )
    _store(session=session, before=before, after=after, cause="success", now=now)


def note_rejection(*, session: Session, now: datetime) -> None:
    """Somebody has rejected what a run proposed. The caller holds the session's lock; `session` is as it is now."""
    before = _locked_state(session)
    after = breaker.after_rejection(state=before, shown_tokens=session.view_tokens)
    _store(session=session, before=before, after=after, cause="", now=now)


def note_request(*, session: Session, now: datetime) -> None:
    """An automatic run was queued. The caller holds the session's lock."""
    before = _locked_state(session)
    _store(session=session, before=before, after=breaker.after_request(state=before, now=now), cause="", now=now)


def follow_level(*, session: Session, now: datetime) -> None:
    """Open it where no compaction could reach the threshold, close it once one could. The caller holds the lock."""
    before, level = _locked_state(session), selectors.decision_facts(session=session).level
    if level is Level.UNREACHABLE:
        after = breaker.when_unreachable(state=before, now=now)
    else:
        after = breaker.when_reachable(state=before)
    _store(session=session, before=before, after=after, cause="reachable", now=now)


def reset(*, session: Session, now: datetime, by: Any = None) -> bool:
    """Close the breaker and forget what was counted; whether it was open. `by`: the user who asked, where there is one.

    `session` knows of it afterwards.
    """
    with transaction.atomic():
        lock_session(session_id=session.pk)
        before = _locked_state(session)
        _store(session=session, before=before, after=breaker.after_reset(), cause="reset", now=now, by=by)
    return before.is_open


def _locked_state(session: Session) -> BreakerState:
    """The state as it is stored now: what was loaded with the session may be older than its lock."""
    row = CompactionState.objects.filter(session=session).first()
    if row is not None:
        session.compaction_state = row
    return selectors.breaker_value(row=row)


def _store(
    *, session: Session, before: BreakerState, after: BreakerState, cause: str, now: datetime, by: Any = None
) -> None:
    if after == before:
        return
    values = {
        "consecutive_failures": after.failures,
        "consecutive_ineffective": after.ineffective,
        "last_failure": after.last_failure,
        "opened_at": after.opened_at,
        "opened_by": after.opened_by.value if after.opened_by else "",
        "tried_at": after.tried_at,
        "nothing_at_tokens": after.nothing_at_tokens,
    }
    row, _ = CompactionState.objects.update_or_create(session=session, defaults=values)
    session.compaction_state = row
    if after.is_open and not before.is_open:
        telemetry.emit_breaker_opened(session=session, payload=_opening(session, after), now=now)
        hooks.tell(event=HookEvent.BREAKER_OPENED, session=session, run=None, payload=_opening(session, after), now=now)
    if before.is_open and not after.is_open:
        payload = {"cause": cause, "by": by.pk if by else None, **_opening(session, before)}
        telemetry.emit_breaker_closed(session=session, payload=payload, now=now)


def _opening(session: Session, state: BreakerState) -> dict[str, Any]:
    return {
        "opened_by": state.opened_by,
        "opened_at": state.opened_at.isoformat() if state.opened_at else None,
        "consecutive_failures": state.failures,
        "consecutive_ineffective": state.ineffective,
        "last_failure": state.last_failure,
        "context_tokens": session.context_tokens,
        "overhead_tokens": session.overhead_tokens,
    }
