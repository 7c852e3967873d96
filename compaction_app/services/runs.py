"""Runs: queue, execute, recover.

The run's row is the truth; the queue only carries its id, and may lose it or deliver it twice. Who holds a run is
`claims.py`, how one ends `run_ends.py`.
"""

from __future__ import annotations

import logging
import traceback
import uuid
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from compaction_app.engine.chain import run_chain
from compaction_app.engine.command import Scope
from compaction_app.engine.decision import switched_off
from compaction_app.engine.outcome import CompactionCancelled, CompactionRefused, FailureReason, RunErrored
from compaction_app.engine.plan import plan_for
from compaction_app.engine.values import Reported, Trigger
from compaction_app.llm.factory import summarizer_name
from compaction_app.models import CompactionRun, RunStatus
from compaction_app.services import approvals, cancelling, candidates
from compaction_app.services.claims import (
    LOST,
    Claim,
    ProgressListener,
    RunProgress,
    back_in_the_queue,
    claim,
    give_back,
    hand_out_again,
    lease_of,
)
from compaction_app.services.run_ends import describe, fail, finish
from compaction_app.services.run_records import is_automatic
from compaction_app.services.situations import Attempt, situation_of
from compaction_app.services.stages import QUEUED, came_to
from sessions_app import selectors as transcripts
from sessions_app.models import Session
from sessions_app.services.append import lock_session
from sessions_app.services.boundaries import InvalidContext, StaleView

logger = logging.getLogger(__name__)


class ActiveRun(Exception):
    """The session has a run that is not finished; `run` is it. The message says what it waits for."""

    def __init__(self, *, run: CompactionRun) -> None:
        self.run = run
        told = f"Run {run.uuid} of this session is not finished ({run.status})."
        if run.status == RunStatus.AWAITING_APPROVAL:
            told = f"Run {run.uuid} of this session waits for approval: runs/{run.uuid}/accept/ or reject/ decides."
        super().__init__(told)


def queue_run(
    *,
    session: Session,
    trigger: str,
    instructions: str,
    now: datetime,
    requested_by: Any = None,
    source: str = "",
    summarizer: str = "",
    scope: Scope = Scope.WHOLE,
    scope_uuid: str = "",
    cut_uuid: str = "",
    reported: Reported | None = None,
    retry_of: CompactionRun | None = None,
) -> CompactionRun:
    """Make a queued run. Raises ActiveRun when the session has one, also when two ask at the same moment.

    `source`: who asks (CompactionRun.Source). `summarizer`: in place of the one that the settings name. `scope`,
    `scope_uuid`, `cut_uuid`: which part, by which message, and the one that the legal cut stands at. `reported`: what
    the provider told, for a reactive run. `retry_of`: the run that this one tries again.
    """
    reported = reported or Reported()
    begun = came_to(run=CompactionRun(), stage=QUEUED, now=now)
    try:
        with transaction.atomic():
            return CompactionRun.objects.create(
                **begun,
                session=session,
                trigger=trigger,
                instructions=instructions,
                source=source,
                summarizer=summarizer_name(
                    setting=summarizer or settings.COMPACTION_SUMMARIZER, key_set=settings.ANTHROPIC_KEY_SET
                ),
                names_summarizer=bool(summarizer),
                requested_by=requested_by,
                scope=scope.value,
                scope_uuid=scope_uuid,
                cut_uuid=cut_uuid,
                reported_tokens=reported.tokens,
                reported_limit=reported.limit,
                reported_output=reported.output,
                retry_of=retry_of,
                queued_at=now,
                handed_out_at=now,
            )
    except IntegrityError:
        active = CompactionRun.objects.filter(session=session).active().first()
        if active is None:
            raise
        raise ActiveRun(run=active) from None


def queue_instead(*, of: CompactionRun, now: datetime, **wanted: Any) -> CompactionRun:
    """Queue a run (`wanted`: as for `queue_run`) in the place of one that only waits, for a worker or for approval.
    Raises ActiveRun when a worker took that meanwhile."""
    why = "somebody asked for a compaction, which takes its place"
    with transaction.atomic():
        lock_session(session_id=of.session_id)
        cancel_queued(run=of, now=now, why=why)
        approvals.supersede(run=of, now=now, why=why)
        return queue_run(session=of.session, now=now, **wanted)


def execute(*, run_id: int, listener: ProgressListener | None = None) -> CompactionRun | None:
    """Claim the run and bring it to its end. None when it was not to be had, or was erased with its session meanwhile.

    Expected failures end on the row; an unexpected one ends there too and raises RunErrored.
    """
    held = claim(run_id=run_id, now=timezone.now())
    if held is None:
        return None
    run = CompactionRun.objects.select_related("session__team").get(pk=run_id)
    attempt = Attempt(session=run.session)
    try:
        _work(run=run, held=held, listener=listener, attempt=attempt)
    except CompactionCancelled:
        logger.info("run %s was taken away from this worker", run.uuid)
        cancelling.settle(run=run)
    except (KeyboardInterrupt, SystemExit):
        give_back(held=held)
        raise
    except Exception as error:
        if _is_gone(run):
            return None
        told = describe(error=error)
        frames = "".join(traceback.format_tb(error.__traceback__))
        logger.error("run %s met an unexpected %s\n%s", run.uuid, told, frames)
        fail(run=run, held=held, reason=FailureReason.ERROR, detail=told, attempt=attempt)
        raise RunErrored(f"run {run.uuid}: {told}") from None
    if _is_gone(run):
        return None
    run.refresh_from_db()
    return run


def _is_gone(run: CompactionRun) -> bool:
    """Whether it was erased, with all that it could have written to."""
    if CompactionRun.objects.filter(pk=run.pk).exists():
        return False
    logger.info("run %s was erased with its session", run.uuid)
    return True


def _work(*, run: CompactionRun, held: Claim, listener: ProgressListener | None, attempt: Attempt) -> None:
    """Bring the run to a success or to an expected failure. `attempt` tells how far it came, also after a bug."""
    try:
        _attempt_twice(run=run, held=held, listener=listener, attempt=attempt)
    except StaleView as stale:
        fail(run=run, held=held, reason=FailureReason.STALE_VIEW, detail=str(stale), attempt=attempt)
    except CompactionRefused as refused:
        fail(run=run, held=held, reason=refused.reason, detail=refused.detail, attempt=attempt)
    except InvalidContext as invalid:
        fail(run=run, held=held, reason=FailureReason.INVALID_CONTEXT, detail=str(invalid), attempt=attempt)


def _attempt_twice(*, run: CompactionRun, held: Claim, listener: ProgressListener | None, attempt: Attempt) -> None:
    """Once more where the context changed while it was worked on."""
    try:
        _attempt(run=run, held=held, listener=listener, attempt=attempt)
    except StaleView:
        attempt.begin_anew()
        _attempt(run=run, held=held, listener=listener, attempt=attempt)


def _attempt(*, run: CompactionRun, held: Claim, listener: ProgressListener | None, attempt: Attempt) -> None:
    progress = RunProgress(run=run, held=held, listener=listener)
    progress.report(stage="reading", fraction=0.02)
    attempt.session = session = Session.objects.select_related("team").get(pk=run.session_id)
    resolved = transcripts.effective_policy(team=session.team, session=session)
    if off := switched_off(resolved=resolved, automatic=is_automatic(run)):
        raise CompactionRefused(reason=FailureReason.COMPACTION_DISABLED, detail=off)
    attempt.newest_id = transcripts.newest_boundary_id(session=session)
    attempt.view = view = transcripts.context_view(session=session)
    attempt.head_id = view.boundary.sequence if view.boundary else None
    situation = situation_of(run=run, held=held, attempt=attempt, policy=resolved.policy, progress=progress)
    plan = plan_for(trigger=Trigger(run.trigger), scope=Scope(run.scope))
    situation = run_chain(plan=plan, situation=situation, trail=attempt.trail)
    drafts = [situation.summary_draft] if situation.summary_draft else list(situation.drafts)
    if not drafts:
        last = attempt.trail[-1][1]
        raise CompactionRefused(reason=last.reason or FailureReason.NOTHING_TO_COMPACT, detail=last.why)
    progress.report(stage="storing", fraction=0.95)
    if situation.summary_draft and candidates.wants_approval(policy=resolved.policy, trigger=run.trigger):
        candidates.park(run=run, held=held, draft=situation.summary_draft, attempt=attempt)
        progress.tell(stage=candidates.STAGE, fraction=candidates.PARKED_AT)
        return
    finish(run=run, held=held, drafts=drafts, attempt=attempt)
    progress.tell(stage="done", fraction=1.0)


def not_handed_out(*, run_id: int) -> None:
    """Note that the queue did not take the run, so that the next sweep tries again."""
    CompactionRun.objects.filter(pk=run_id, status=RunStatus.QUEUED).update(handed_out_at=None)


def cancel_queued(*, run: CompactionRun, now: datetime, why: str = "") -> bool:
    """End a run that nobody works on; False when somebody has taken it meanwhile."""
    row = CompactionRun.objects.get(pk=run.pk)
    told = came_to(run=row, stage=RunStatus.CANCELLED.value, now=now)
    return bool(
        CompactionRun.objects.filter(pk=run.pk, status=RunStatus.QUEUED).update(
            status=RunStatus.CANCELLED, finished_at=now, detail=why, **told
        )
    )


def recover(*, now: datetime, broker_is_new: bool = False) -> list[int]:
    """Ids of runs that must be handed to a worker: those whose worker went silent, and queued ones that were not
    handed out for a while (the broker may have lost them). `broker_is_new`: it holds nothing, so all queued ones.

    A run that lost its worker too often fails as `worker_lost`. One run that can't be dealt with keeps back no other.
    """
    silent = CompactionRun.objects.filter(status=RunStatus.RUNNING, lease_expires_at__lt=now)
    for run in silent.select_related("session__team"):
        try:
            _take_back(run=run, now=now)
        except Exception:
            logger.exception("run %s could not be taken back", run.uuid)
    queued = CompactionRun.objects.filter(status=RunStatus.QUEUED)
    return hand_out_again(queued=queued, now=now, broker_is_new=broker_is_new)


def _take_back(*, run: CompactionRun, now: datetime) -> None:
    """Queue the run again, or end it, unless its worker has told of itself since `run` was read."""
    silent = CompactionRun.objects.filter(
        pk=run.pk, status=RunStatus.RUNNING, claim_token=run.claim_token, lease_expires_at__lt=now
    )
    policy = transcripts.effective_policy(team=run.session.team, session=run.session).policy
    lost = 1 + sum(attempt.get("outcome") == LOST for attempt in run.attempts)
    if lost >= policy.run_attempts:
        # With the claim the worker loses the run, so that it can't come back between this and the run's end.
        ours = Claim(run_id=run.pk, token=uuid.uuid4(), attempt=run.attempt)
        if silent.update(claim_token=ours.token, lease_expires_at=now + lease_of(run)):
            detail, attempt = f"its worker went silent {lost} times", Attempt(session=run.session)
            fail(run=run, held=ours, reason=FailureReason.WORKER_LOST, detail=detail, attempt=attempt)
        return
    silent.update(**back_in_the_queue(run=run, now=now, how=LOST))
