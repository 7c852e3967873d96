"""Runs: queue, claim, execute, finish, fail, recover.

The run's row is the truth; the queue only carries its id, and may lose it or deliver it twice. A worker claims a run by
compare-and-swap, holds it by a lease that its progress renews, and commits only while the claim is still its own.
"""

from __future__ import annotations

import functools
import logging
import traceback
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from compaction_app import telemetry
from compaction_app.engine.chain import Trail, light_drafts, run_chain
from compaction_app.engine.decision import switched_off
from compaction_app.engine.outcome import CompactionCancelled, CompactionRefused, FailureReason, RunErrored
from compaction_app.engine.plan import PLANS
from compaction_app.engine.values import Situation, Step, Trigger
from compaction_app.llm.factory import make_summarizer, summarizer_name
from compaction_app.models import CompactionRun, RunStatus, RunStep
from compaction_app.services import breaker, clearing
from sessions_app import selectors as transcripts
from sessions_app.catalog import tokenizer_family
from sessions_app.models import CompactBoundary, Session
from sessions_app.policy import Policy
from sessions_app.services.accounting import sendable_overhead
from sessions_app.services.append import lock_session
from sessions_app.services.boundaries import InvalidContext, StaleView, commit_boundary
from sessions_app.transcript.boundary import BoundaryDraft
from sessions_app.transcript.messages import Message
from sessions_app.transcript.window import window_of

logger = logging.getLogger(__name__)

LOST = "worker lost"  # how an attempt ended whose lease ran out
ProgressListener = Callable[[str, float], None]


class ActiveRun(Exception):
    """The session has a run that is not finished; `run` is it."""

    def __init__(self, *, run: CompactionRun) -> None:
        self.run = run
        super().__init__(f"run {run.uuid} is {run.status}")


class ClaimLost(CompactionCancelled):
    """The run was cancelled, or its lease ran out and somebody else has it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A run that this worker holds. `token` fences everything that it writes."""

    run_id: int
    token: uuid.UUID
    attempt: int


def queue_run(
    *, session: Session, trigger: str, instructions: str, now: datetime, requested_by: Any = None
) -> CompactionRun:
    """Make a queued run. Raises ActiveRun when the session has one, also when two ask at the same moment."""
    try:
        with transaction.atomic():
            return CompactionRun.objects.create(
                session=session,
                trigger=trigger,
                instructions=instructions,
                summarizer=summarizer_name(setting=settings.COMPACTION_SUMMARIZER),
                requested_by=requested_by,
                queued_at=now,
                handed_out_at=now,
            )
    except IntegrityError:
        active = CompactionRun.objects.filter(session=session).active().first()
        if active is None:
            raise
        raise ActiveRun(run=active) from None


def queue_instead(*, of: CompactionRun, instructions: str, now: datetime) -> CompactionRun:
    """Queue a run by hand in the place of one that only waits. Raises ActiveRun when a worker took that meanwhile."""
    trigger = CompactBoundary.Trigger.MANUAL
    with transaction.atomic():
        lock_session(session_id=of.session_id)
        cancel_queued(run=of, now=now, why="somebody asked for a compaction, which takes its place")
        return queue_run(session=of.session, trigger=trigger, instructions=instructions, now=now)


def claim(*, run_id: int, now: datetime) -> Claim | None:
    """Take a queued run. None when somebody has it or it is finished: a second delivery does nothing."""
    run = CompactionRun.objects.select_related("session__team").filter(pk=run_id).first()
    if run is None or run.status != RunStatus.QUEUED:
        return None
    token = uuid.uuid4()
    entry = {"attempt": run.attempt + 1, "started_at": now.isoformat()}
    taken = CompactionRun.objects.filter(pk=run_id, status=RunStatus.QUEUED, attempt=run.attempt).update(
        status=RunStatus.RUNNING,
        claim_token=token,
        attempt=run.attempt + 1,
        attempts=[*run.attempts, entry],
        started_at=run.started_at or now,
        lease_expires_at=now + _lease(run),
        stage="starting",
        progress=0,
    )
    return Claim(run_id=run_id, token=token, attempt=run.attempt + 1) if taken else None


def execute(*, run_id: int, listener: ProgressListener | None = None) -> CompactionRun | None:
    """Claim the run and bring it to its end. None when it was not to be had.

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
    except (KeyboardInterrupt, SystemExit):
        give_back(held=held)
        raise
    except Exception as error:
        told = describe(error=error)
        frames = "".join(traceback.format_tb(error.__traceback__))
        logger.error("run %s met an unexpected %s\n%s", run.uuid, told, frames)
        _fail(run=run, held=held, reason=FailureReason.ERROR, detail=told, attempt=attempt)
        raise RunErrored(f"run {run.uuid}: {told}") from None
    run.refresh_from_db()
    return run


def describe(*, error: Exception) -> str:
    """Type and place, never the message: it may quote the transcript."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {place.name} (line {place.lineno})"


@dataclass(slots=True)
class Attempt:
    """What the newest try has found and done so far: the session as it was read, and the steps of the chain.

    `head_id`, `newest_id`: the head boundary of the view and the newest boundary of any kind, None where there is none.
    """

    session: Session
    head_id: int | None = None
    newest_id: int | None = None
    trail: Trail = field(default_factory=list)

    def begin_anew(self) -> None:
        self.head_id, self.newest_id, self.trail = None, None, []


def _work(*, run: CompactionRun, held: Claim, listener: ProgressListener | None, attempt: Attempt) -> None:
    """Bring the run to a success or to an expected failure. `attempt` tells how far it came, also after a bug."""
    try:
        _attempt_twice(run=run, held=held, listener=listener, attempt=attempt)
    except StaleView as stale:
        _fail(run=run, held=held, reason=FailureReason.STALE_VIEW, detail=str(stale), attempt=attempt)
    except CompactionRefused as refused:
        _fail(run=run, held=held, reason=refused.reason, detail=refused.detail, attempt=attempt)
    except InvalidContext as invalid:
        _fail(run=run, held=held, reason=FailureReason.INVALID_CONTEXT, detail=str(invalid), attempt=attempt)


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
    if off := switched_off(resolved=resolved, automatic=_is_automatic(run)):
        raise CompactionRefused(reason=FailureReason.COMPACTION_DISABLED, detail=off)
    attempt.newest_id = transcripts.newest_boundary_id(session=session)
    view = transcripts.context_view(session=session)
    attempt.head_id = view.boundary.sequence if view.boundary else None
    situation = _situation(session=session, run=run, policy=resolved.policy, view=view, progress=progress)
    situation = run_chain(plan=PLANS[Trigger(run.trigger)], situation=situation, trail=attempt.trail)
    drafts = [situation.summary_draft] if situation.summary_draft else list(situation.drafts)
    if not drafts:
        last = attempt.trail[-1][1]
        raise CompactionRefused(reason=last.reason or FailureReason.NOTHING_TO_COMPACT, detail=last.why)
    progress.report(stage="storing", fraction=0.95)
    _finish(run=run, held=held, drafts=drafts, attempt=attempt)
    progress.tell(stage="done", fraction=1.0)


def _is_automatic(run: CompactionRun) -> bool:
    """Whether the run had started by itself: what holds back such runs holds back no person."""
    return run.trigger == CompactBoundary.Trigger.AUTO


def _situation(*, session: Session, run: CompactionRun, policy: Policy, view: Any, progress: RunProgress) -> Situation:
    # Messages may have arrived between the reading of the session's row and of the view.
    newest = max((message.position for message in view.messages), default=session.last_position)

    @functools.cache
    def past() -> list[Message]:
        return transcripts.covered_history(
            session=session, up_to=max(newest, session.last_position), most_messages=policy.summary_source_messages
        )

    window = window_of(policy=policy, model=transcripts.model_limits(model=session.model))
    return Situation(
        view=view,
        tokens=session.context_tokens,
        overhead_tokens=sendable_overhead(session=session, policy=policy),
        last_position=max(newest, session.last_position),
        policy=policy,
        family=tokenizer_family(session.model),
        trigger=Trigger(run.trigger),
        now=timezone.now(),
        window=window,
        last_assistant_at=session.last_assistant_at,
        ratio=transcripts.estimate_ratio(session=session),
        shown_ratio=transcripts.shown_ratio(session=session),
        originals=lambda up_to: [message for message in past() if message.position <= up_to],
        summarizer=make_summarizer(name=run.summarizer),
        progress=progress,
        instructions=run.instructions,
    )


def _finish(*, run: CompactionRun, held: Claim, drafts: Sequence[BoundaryDraft], attempt: Attempt) -> None:
    """All that a success stores, in one transaction: boundaries, attachments, counters, run, steps, telemetry."""
    now, session = timezone.now(), attempt.session
    with transaction.atomic():
        locked = lock_session(session_id=session.pk)
        _still_ours(held=held)
        before, shown_before = session.context_tokens, locked.view_tokens
        previous = run.session.boundaries.summarizing().filter(reverted_at__isnull=True).order_by("-id").first()
        boundary = _commit(run=run, drafts=drafts, attempt=attempt, now=now)
        usage = dict(attempt.trail[-1][1].usage)
        _close(
            held=held,
            now=now,
            status=RunStatus.SUCCEEDED,
            boundary=boundary,
            tokens_before=before,
            tokens_after=boundary.tokens_after,
            as_of=session.last_position,
            stage="done",
            progress=1.0,
            usage=usage,
        )
        _store_steps(run=run, held=held, trail=attempt.trail)
        telemetry.emit_compact(
            run=run,
            now=now,
            payload={
                "trigger": run.trigger,
                "kind": boundary.kind,
                "tokens_before": before,
                "tokens_after": boundary.tokens_after,
                "summary_tokens": boundary.summary_tokens,
                "attachments": len(drafts[-1].attachments),
                "compaction_usage": usage,
                "summarizer": drafts[-1].summarizer,
                "is_recompaction": previous is not None,
                "messages_since_previous": session.last_position - (previous.committed_at_position if previous else 0),
                "seconds": (now - run.started_at).total_seconds() if run.started_at else None,
            },
        )
        after = lock_session(session_id=session.pk)  # the boundary has changed its counters
        breaker.note_success(session=after, shown_before=shown_before, automatic=_is_automatic(run), now=now)


def _commit(*, run: CompactionRun, drafts: Sequence[BoundaryDraft], attempt: Attempt, now: datetime) -> CompactBoundary:
    """Write the drafts in order; gives back the last boundary. Raises StaleView, InvalidContext."""
    newest_id, session = attempt.newest_id, attempt.session
    before = session.context_tokens
    for draft in drafts:
        boundary = commit_boundary(
            session_id=session.pk,
            draft=draft,
            trigger=run.trigger,
            expected_head_id=attempt.head_id,
            expected_newest_id=newest_id,
            as_of=session.last_position,
            tokens_before=before,
            now=now,
        )
        newest_id, before = boundary.pk, boundary.tokens_after or before
        clearing.tell_cleared(boundary=boundary, session=session, now=now, run=run)
    return boundary


def _fail(*, run: CompactionRun, held: Claim, reason: FailureReason, detail: str, attempt: Attempt) -> None:
    now = timezone.now()
    with transaction.atomic():
        lock_session(session_id=run.session_id)
        try:
            _still_ours(held=held)
        except ClaimLost:
            return  # somebody else has the run now; its end is theirs to tell
        kept = _keep_light_edits(run=run, attempt=attempt, now=now)
        _close(held=held, now=now, status=RunStatus.FAILED, failure_reason=reason.value, detail=detail)
        _store_steps(run=run, held=held, trail=_as_kept(attempt.trail, kept=kept))
        telemetry.emit_compact_failed(
            run=run,
            now=now,
            payload={
                "trigger": run.trigger,
                "reason": reason.value,
                "tokens_before": run.session.context_tokens,
                "attempt": held.attempt,
                "summarizer": run.summarizer,
                "light_edits_kept": len(kept),
            },
        )
        breaker.note_failure(session=attempt.session, reason=reason, automatic=_is_automatic(run), now=now)


def _keep_light_edits(*, run: CompactionRun, attempt: Attempt, now: datetime) -> list[BoundaryDraft]:
    """What was cleared before a later link failed stays: each is a valid boundary of its own (decision 1).

    All or none. Nothing that goes wrong with it keeps the run from its end.
    """
    drafts = light_drafts(attempt.trail)
    if not drafts:
        return []
    try:
        with transaction.atomic():
            _commit(run=run, drafts=drafts, attempt=attempt, now=now)
    except (StaleView, InvalidContext) as problem:
        logger.info("light edits of run %s were not kept: %s", run.uuid, type(problem).__name__)
        return []
    except Exception as error:
        logger.error("light edits of run %s were not kept: unexpected %s", run.uuid, describe(error=error))
        return []
    return drafts


def _as_kept(trail: Trail, *, kept: Sequence[BoundaryDraft]) -> Trail:
    """The steps of a run that failed: what was proposed and not stored came to nothing."""
    return [(name, step if step.draft is None or step.draft in kept else _undone(step)) for name, step in trail]


def _undone(step: Step) -> Step:
    return replace(step, draft=None, tokens_after=step.tokens_before, why=f"{step.why}; not stored")


def _still_ours(*, held: Claim) -> None:
    ours = CompactionRun.objects.select_for_update().filter(
        pk=held.run_id, status=RunStatus.RUNNING, claim_token=held.token
    )
    if not ours.exists():
        raise ClaimLost(f"run {held.run_id}")


def _close(*, held: Claim, now: datetime, status: str, **values: Any) -> None:
    run = CompactionRun.objects.get(pk=held.run_id)
    attempts = _ended(run=run, now=now, how=str(values.get("failure_reason") or status))
    CompactionRun.objects.filter(pk=held.run_id).update(
        status=status, finished_at=now, lease_expires_at=None, attempts=attempts, **values
    )


def _ended(*, run: CompactionRun, now: datetime, how: str) -> list[Any]:
    if not run.attempts:
        return []
    return [*run.attempts[:-1], {**run.attempts[-1], "ended_at": now.isoformat(), "outcome": how}]


def _store_steps(*, run: CompactionRun, held: Claim, trail: Trail) -> None:
    first = run.steps.count() + 1  # a handful of rows
    RunStep.objects.bulk_create(
        RunStep(
            run=run,
            ordinal=number,
            attempt=held.attempt,
            link=name,
            ran=step.draft is not None,
            why=step.why,
            tokens_before=step.tokens_before,
            tokens_after=step.tokens_after,
        )
        for number, (name, step) in enumerate(trail, start=first)
    )


def give_back(*, held: Claim) -> None:
    """Put a run that is being worked on back into the queue (an orderly stop of the worker)."""
    run = CompactionRun.objects.get(pk=held.run_id)
    CompactionRun.objects.filter(pk=held.run_id, status=RunStatus.RUNNING, claim_token=held.token).update(
        status=RunStatus.QUEUED,
        handed_out_at=None,
        lease_expires_at=None,
        claim_token=None,
        attempts=_ended(run=run, now=timezone.now(), how="given back"),
    )


def not_handed_out(*, run_id: int) -> None:
    """Note that the queue did not take the run, so that the next sweep tries again."""
    CompactionRun.objects.filter(pk=run_id, status=RunStatus.QUEUED).update(handed_out_at=None)


def cancel_queued(*, run: CompactionRun, now: datetime, why: str = "") -> bool:
    """End a run that nobody works on; False when somebody has taken it meanwhile."""
    return bool(
        CompactionRun.objects.filter(pk=run.pk, status=RunStatus.QUEUED).update(
            status=RunStatus.CANCELLED, finished_at=now, detail=why
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
    if not broker_is_new:
        long_ago = now - timedelta(seconds=Policy().hand_out_again_seconds)
        queued = queued.filter(Q(handed_out_at__isnull=True) | Q(handed_out_at__lt=long_ago))
    ids = list(queued.order_by("id").values_list("pk", flat=True))
    CompactionRun.objects.filter(pk__in=ids, status=RunStatus.QUEUED).update(handed_out_at=now)
    return ids


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
        if silent.update(claim_token=ours.token, lease_expires_at=now + _lease(run)):
            detail, attempt = f"its worker went silent {lost} times", Attempt(session=run.session)
            _fail(run=run, held=ours, reason=FailureReason.WORKER_LOST, detail=detail, attempt=attempt)
        return
    silent.update(
        status=RunStatus.QUEUED,
        handed_out_at=None,
        lease_expires_at=None,
        claim_token=None,
        attempts=_ended(run=run, now=now, how=LOST),
    )


def _lease(run: CompactionRun) -> timedelta:
    policy = transcripts.effective_policy(team=run.session.team, session=run.session).policy
    return timedelta(seconds=policy.lease_seconds)


class RunProgress:
    """Progress on the run's row, at most once a second; each report renews the lease and notices a lost claim."""

    def __init__(self, *, run: CompactionRun, held: Claim, listener: ProgressListener | None) -> None:
        self.held = held
        self.listener = listener
        self.lease = _lease(run)
        self.pause = timedelta(seconds=Policy().progress_seconds)
        self.stage = ""
        self.told_at: datetime | None = None

    def report(self, *, stage: str, fraction: float, tokens: int = 0) -> None:
        self.tell(stage=stage, fraction=fraction)
        now = timezone.now()
        if stage == self.stage and self.told_at and now - self.told_at < self.pause:
            return
        self.stage, self.told_at = stage, now
        told: dict[str, Any] = {"stage": stage, "progress": round(fraction, 3), "lease_expires_at": now + self.lease}
        if tokens:
            told["tokens_streamed"] = tokens
        ours = CompactionRun.objects.filter(pk=self.held.run_id, status=RunStatus.RUNNING, claim_token=self.held.token)
        if not ours.update(**told):
            raise ClaimLost(f"run {self.held.run_id}")

    def tell(self, *, stage: str, fraction: float) -> None:
        """Only the listener hears this: for what comes after the row is closed."""
        if self.listener:
            self.listener(stage, fraction)
