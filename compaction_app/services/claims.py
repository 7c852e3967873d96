"""Who holds a run: claim, lease, and the progress that renews it.

The run's row is the truth about the work. A worker claims it by compare-and-swap, holds it by a lease that its
progress renews, and writes only while the claim is still its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from compaction_app.engine.outcome import CompactionCancelled
from compaction_app.models import CompactionRun, RunStatus
from compaction_app.services.stages import QUEUED, STARTING, came_to
from sessions_app import selectors as transcripts
from sessions_app.policy import Policy

LOST = "worker lost"  # how an attempt ended whose lease ran out
ProgressListener = Callable[[str, float], None]


class ClaimLost(CompactionCancelled):
    """The run was cancelled, or its lease ran out and somebody else has it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A run that this worker holds. `token` fences everything that it writes."""

    run_id: int
    token: uuid.UUID
    attempt: int


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
        lease_expires_at=now + lease_of(run),
        **came_to(run=run, stage=STARTING, now=now, progress=0, attempt=run.attempt + 1),
    )
    return Claim(run_id=run_id, token=token, attempt=run.attempt + 1) if taken else None


def still_ours(*, held: Claim) -> None:
    """Raises ClaimLost where somebody else has the run. The caller is in a transaction, and keeps the row locked."""
    ours = CompactionRun.objects.select_for_update().filter(
        pk=held.run_id, status=RunStatus.RUNNING, claim_token=held.token
    )
    if not ours.exists():
        raise ClaimLost(f"run {held.run_id}")


def ended(*, run: CompactionRun, now: datetime, how: str) -> list[Any]:
    """The run's attempts with the end of the newest, where that has none yet."""
    if not run.attempts or "outcome" in run.attempts[-1]:
        return list(run.attempts)
    return [*run.attempts[:-1], {**run.attempts[-1], "ended_at": now.isoformat(), "outcome": how}]


def give_back(*, held: Claim) -> None:
    """Put a run that is being worked on back into the queue (an orderly stop of the worker)."""
    run, now = CompactionRun.objects.filter(pk=held.run_id).first(), timezone.now()
    if run is None:
        return  # it was erased
    CompactionRun.objects.filter(pk=held.run_id, status=RunStatus.RUNNING, claim_token=held.token).update(
        **back_in_the_queue(run=run, now=now, how="given back")
    )


def back_in_the_queue(*, run: CompactionRun, now: datetime, how: str) -> dict[str, Any]:
    """The columns of a run that nobody works on any more; `how` the attempt ended."""
    return {
        "status": RunStatus.QUEUED,
        "handed_out_at": None,
        "lease_expires_at": None,
        "claim_token": None,
        "attempts": ended(run=run, now=now, how=how),
        **came_to(run=run, stage=QUEUED, now=now),
    }


def hand_out_again(*, queued: QuerySet[Any], now: datetime, broker_is_new: bool) -> list[int]:
    """Ids of queued rows that the broker may have lost: those that were not handed out for a while; all of them where
    it holds nothing. They are noted as handed out now."""
    waiting = queued
    if not broker_is_new:
        long_ago = now - timedelta(seconds=Policy().hand_out_again_seconds)
        waiting = queued.filter(Q(handed_out_at__isnull=True) | Q(handed_out_at__lt=long_ago))
    ids = list(waiting.order_by("id").values_list("pk", flat=True))
    queued.filter(pk__in=ids).update(handed_out_at=now)
    return ids


def lease_of(run: CompactionRun) -> timedelta:
    """How long a worker may be silent before it has lost the run."""
    policy = transcripts.effective_policy(team=run.session.team, session=run.session).policy
    return timedelta(seconds=policy.lease_seconds)


class RunProgress:
    """Progress on the run's row, at most once a second; each report renews the lease and notices a lost claim."""

    def __init__(self, *, run: CompactionRun, held: Claim, listener: ProgressListener | None) -> None:
        self.run = run
        self.held = held
        self.listener = listener
        self.lease = lease_of(run)
        self.pause = timedelta(seconds=Policy().progress_seconds)
        self.stage = ""
        self.told_at: datetime | None = None

    def report(self, *, stage: str, fraction: float, tokens: int = 0) -> None:
        self.tell(stage=stage, fraction=fraction)
        now = timezone.now()
        if stage == self.stage and self.told_at and now - self.told_at < self.pause:
            return
        self.stage, self.told_at = stage, now
        told = came_to(run=self.run, stage=stage, now=now, progress=fraction) | {"lease_expires_at": now + self.lease}
        if tokens:
            told["tokens_streamed"] = tokens
        ours = CompactionRun.objects.filter(pk=self.held.run_id, status=RunStatus.RUNNING, claim_token=self.held.token)
        if not ours.update(**told):
            raise ClaimLost(f"run {self.held.run_id}")
        self.run.stages = told.get("stages", self.run.stages)  # nobody else writes them while the claim is ours

    def tell(self, *, stage: str, fraction: float) -> None:
        """Only the listener hears this: for what comes after the row is closed."""
        if self.listener:
            self.listener(stage, fraction)
