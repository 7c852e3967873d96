"""Deciding whether a compaction starts by itself, and keeping what was decided near a threshold.

Costs what the columns of one session cost, whatever its history: the gates (engine/decision.py) look at nothing else.
Only where something is to be done is the session locked and everything looked at anew, so that two appends and a run
that ends between them can't both act on the same state.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from django.core.cache import cache
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Subquery
from django.db.models.functions import Coalesce

from compaction_app import selectors
from compaction_app.engine import decision
from compaction_app.engine.breaker import OpenedBy
from compaction_app.engine.decision import QUIET, WAITS_FOR_A_RUN, Facts, Outcome, Verdict
from compaction_app.models import CompactionRun, Decision
from compaction_app.services import breaker, runs
from compaction_app.services.clearing import Applied
from sessions_app.models import CompactBoundary, Message, Session
from sessions_app.policy import Policy
from sessions_app.services.append import lock_session
from sessions_app.transcript.messages import MessageKind, Role
from sessions_app.transcript.window import Level

logger = logging.getLogger(__name__)

# Primary key of the session that the last sweep looked at last.
SWEPT_TO_KEY = "sweep-for-full-sessions"
MOST_SWEPT = Policy().sweep_sessions


def decide(*, session: Session, moment: Decision.Moment, now: datetime, answered: bool = True) -> CompactionRun | None:
    """Decide for the session as it is (with its team loaded); the run that was queued, None where there was none.

    `answered`: a response of the model was among what was appended. The caller hands the run out.
    """
    facts = selectors.decision_facts(session=session)
    verdict = _or_active(decision.decide(facts=facts, answered=answered, now=now), session=session)
    if verdict.outcome is Outcome.REQUESTED or _breaker_is_behind(facts, verdict):
        return _act(session=session, moment=moment, answered=answered, now=now)
    _keep(session=session, facts=facts, verdict=verdict, moment=moment, now=now)
    return None


def _or_active(verdict: Verdict, *, session: Session) -> Verdict:
    """A run that is active goes before the breaker, whose one try it may be. One query, over the threshold only."""
    if verdict.outcome not in WAITS_FOR_A_RUN:
        return verdict
    active = CompactionRun.objects.filter(session=session).active().first()
    return _active(active) if active else verdict


def _breaker_is_behind(facts: Facts, verdict: Verdict) -> bool:
    """Whether the threshold went out of reach or came back since the breaker was stored."""
    if facts.level is Level.UNREACHABLE:
        return verdict.outcome is Outcome.UNREACHABLE and not facts.breaker.is_open
    return facts.breaker.opened_by is OpenedBy.UNREACHABLE


def _act(*, session: Session, moment: Decision.Moment, answered: bool, now: datetime) -> CompactionRun | None:
    """The same under the session's lock, and what follows from it, in one transaction."""
    run = None
    with transaction.atomic():
        locked = lock_session(session_id=session.pk)
        facts = selectors.decision_facts(session=locked)
        verdict = decision.decide(facts=facts, answered=answered, now=now)
        if _breaker_is_behind(facts, verdict):
            breaker.follow_level(session=locked, now=now)
            facts = selectors.decision_facts(session=locked)
            verdict = decision.decide(facts=facts, answered=answered, now=now)
        if verdict.outcome is Outcome.REQUESTED:
            try:
                run = _queue(session=locked, moment=moment, now=now)
            except runs.ActiveRun as active:
                verdict = _active(active.run)
        else:
            verdict = _or_active(verdict, session=locked)
        _keep(session=locked, facts=facts, verdict=verdict, moment=moment, now=now, run=run)
    row = getattr(locked, "compaction_state", None)
    if row is not None:
        session.compaction_state = row  # the caller tells the state as it is after the decision
    return run


def _queue(*, session: Session, moment: Decision.Moment, now: datetime) -> CompactionRun:
    source = CompactionRun.Source.SWEEP if moment == Decision.Moment.SWEEP else CompactionRun.Source.APPEND
    trigger = CompactBoundary.Trigger.AUTO
    run = runs.queue_run(session=session, trigger=trigger, instructions="", now=now, source=source)
    breaker.note_request(session=session, now=now)
    return run


def _active(run: CompactionRun) -> Verdict:
    return Verdict(Outcome.ACTIVE_RUN, f"run {run.uuid} is {run.status}")


def is_response(*, message: Message) -> bool:
    """Whether a stored message is a response of the model in the conversation itself."""
    in_conversation = message.left_path_at is None and not message.is_sidechain
    return in_conversation and message.role == Role.ASSISTANT and message.kind == MessageKind.NORMAL


def record(
    *,
    session: Session,
    moment: Decision.Moment,
    outcome: Outcome,
    why: str,
    now: datetime,
    applied: Sequence[Applied] = (),
) -> Decision | None:
    """Keep what was decided elsewhere (`prepare`): `session` as it is now. None far from a threshold."""
    facts = selectors.decision_facts(session=session)
    return _keep(session=session, facts=facts, verdict=Verdict(outcome, why), moment=moment, now=now, applied=applied)


def record_error(*, session: Session, error: str, now: datetime) -> None:
    """Keep that deciding met a bug; `error` tells its kind and place."""
    verdict = Verdict(Outcome.ERROR, f"deciding met an unexpected {error}; the next append decides again")
    facts = selectors.decision_facts(session=session)
    _keep(session=session, facts=facts, verdict=verdict, moment=Decision.Moment.APPEND, now=now)


def _keep(
    *,
    session: Session,
    facts: Facts,
    verdict: Verdict,
    moment: Decision.Moment,
    now: datetime,
    run: CompactionRun | None = None,
    applied: Sequence[Applied] = (),
) -> Decision | None:
    """Write the row, where one is worth it: near a threshold, or something happened. Of a sweep only its requests."""
    unremarkable = verdict.outcome in QUIET and not facts.is_near
    if unremarkable or (moment == Decision.Moment.SWEEP and run is None):
        return None
    return Decision.objects.create(
        session=session,
        moment=moment,
        at=now,
        position=session.last_position,
        context_tokens=facts.context_tokens,
        source=session.context_source,
        level=facts.level.value,
        warning_threshold=facts.window.warning_threshold,
        error_threshold=facts.window.error_threshold,
        auto_compact_threshold=facts.window.auto_compact_threshold,
        outcome=verdict.outcome.value,
        why=verdict.why,
        applied=[asdict(one) for one in applied],
        run=run,
    )


def sweep(*, now: datetime) -> list[int]:
    """Decide for appends over the threshold that nobody has decided about; ids of the runs that were queued.

    The net under a crash between an append and its decision (decision 21), and no more: what was decided once, or has
    failed since, waits for the next append. A bounded number each time, going round. One session that can't be dealt
    with keeps back no other.
    """
    queued = []
    for session in _undecided():
        try:
            run = decide(session=session, moment=Decision.Moment.SWEEP, now=now)
        except Exception as error:
            logger.error("deciding for session %s met an unexpected %s", session.uuid, runs.describe(error=error))
            continue
        if run is not None:
            queued.append(run.pk)
    return queued


def _undecided() -> list[Session]:
    """The next sessions over their threshold whose last append left no decision, round and round.

    Over the threshold every decision of an append is kept, in the transaction of the run that it queues, with the
    position that it has seen; so it tells a crash whatever clock a client's messages carry. What was only imported
    waits for its next append.
    """
    active = CompactionRun.objects.filter(session=OuterRef("pk")).active()
    newest = Decision.objects.filter(session=OuterRef("pk")).exclude(moment=Decision.Moment.PREPARE).order_by("-id")
    over = (
        Session.objects.filter(~Exists(active), level=Level.AUTO_COMPACT.value, source="api")
        .alias(decided_to=Coalesce(Subquery(newest.values("position")[:1]), 0))
        .filter(decided_to__lt=F("last_position"))
        .select_related("team", "compaction_state")
        .defer("system", "tools", "metadata")
        .order_by("pk")
    )
    last = _swept_to()
    found: list[Session] = list(over.filter(pk__gt=last)[:MOST_SWEPT])
    if last and len(found) < MOST_SWEPT:
        found += list(over.filter(pk__lte=last)[: MOST_SWEPT - len(found)])
    if found:
        _note_swept_to(found[-1].pk)
    return found


def _swept_to() -> int:
    """Where to go on. A cache that does not answer makes the sweep begin at the front, and stops nothing."""
    try:
        return int(cache.get(SWEPT_TO_KEY) or 0)
    except Exception as error:
        logger.warning("the cache does not answer (%s); the sweep begins at the front", type(error).__name__)
        return 0


def _note_swept_to(session_id: int) -> None:
    try:
        cache.set(SWEPT_TO_KEY, session_id, timeout=None)
    except Exception as error:
        logger.warning("the cache does not answer (%s); the next sweep begins at the front", type(error).__name__)
