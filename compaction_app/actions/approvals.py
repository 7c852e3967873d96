"""Deciding about a candidate: what a run proposes and waits with."""

from __future__ import annotations

import functools
from datetime import datetime

from django.db import transaction

from compaction_app import tasks
from compaction_app.models import CompactionRun
from compaction_app.services import approvals
from compaction_app.services.approvals import Decider


def edit_candidate(*, run: CompactionRun, summary: str, by: Decider, now: datetime) -> None:
    """Put another text in the place of the candidate's summary; it is stored once somebody accepts it. Raises
    NotAwaiting, BadEdit; CannotAccept where it can't be accepted any more."""
    approvals.edit(run=run, summary=summary, by=by, now=now)


def accept_candidate(*, run: CompactionRun, by: Decider, now: datetime, summary: str | None = None) -> CompactionRun:
    """Store what the run proposes, `summary` in the place of the text that stands there; the run as it is then.

    Raises NotAwaiting, BadEdit; CannotAccept, where the candidate goes on waiting; StaleView, where the run has failed.
    """
    try:
        approvals.accept(run=run, by=by, now=now, summary=summary)
    finally:
        transaction.on_commit(functools.partial(tasks.hand_out_due, now=now))  # a failure is told to hooks too
    run.refresh_from_db()
    transaction.on_commit(functools.partial(tasks.count_exact_after, run=run))
    return run


def reject_candidate(*, run: CompactionRun, reason: str, by: Decider, now: datetime) -> CompactionRun:
    """End the run, nothing of it stored; the run as it is then. Raises NotAwaiting."""
    approvals.reject(run=run, reason=reason, by=by, now=now)
    run.refresh_from_db()
    return run
