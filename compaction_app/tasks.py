"""Celery tasks: thin, by id, safe to deliver twice. Unknown arguments are ignored: an old worker survives a deploy."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

from celery import shared_task
from django.conf import settings
from django.utils import timezone
from kombu.exceptions import OperationalError

from compaction_app.models import CompactionRun
from compaction_app.services import catalog, counts, decisions, runs

logger = logging.getLogger(__name__)


@shared_task
def compact_session(*, run_id: int, **_: Any) -> None:
    """Bring one run to its end; where there is a key, its result is counted by another task."""
    count_exact_after(run=runs.execute(run_id=run_id))


@shared_task
def recover_runs(**_: Any) -> None:
    """Take up what was left behind."""
    hand_out_left_behind(now=timezone.now())


@shared_task
def refresh_catalog(**_: Any) -> None:
    """Ask the provider for the windows of its models, where that is due."""
    catalog.refresh(now=timezone.now())


@shared_task
def count_exact_tokens(*, boundary_id: int, **_: Any) -> None:
    """Have the provider count the context that a compaction left."""
    counts.count_exact(boundary_id=boundary_id)


def hand_out(*, run_id: int) -> bool:
    """Give the run to the queue; whether that took it. Else it stays queued, and the next sweep tries again.

    Whatever goes wrong with one run keeps back no other, and takes nothing from what its request has done.
    """
    try:
        compact_session.delay(run_id=run_id)
    except Exception as error:
        logger.warning("the queue does not take run %s (%s); the next sweep tries again", run_id, type(error).__name__)
        runs.not_handed_out(run_id=run_id)
        return False
    return True


def hand_out_left_behind(*, now: datetime, broker_is_new: bool = False) -> int:
    """Hand out runs that were queued but not delivered, or whose worker went silent; then runs for appends that nobody
    has decided about. How many the queue took. `broker_is_new`: it holds nothing yet."""
    left = [hand_out(run_id=run_id) for run_id in runs.recover(now=now, broker_is_new=broker_is_new)]
    swept = [hand_out(run_id=run_id) for run_id in decisions.sweep(now=now)]
    return sum(left) + sum(swept)


def count_exact_after(*, run: CompactionRun | None) -> None:
    """Have the worker get the exact size of the context that a run has left, where there is a key."""
    if run is None or run.boundary_id is None or not settings.ANTHROPIC_KEY_SET:
        return
    try:
        count_exact_tokens.delay(boundary_id=run.boundary_id)
    except OperationalError:
        logger.warning("the queue does not answer; boundary %s keeps its estimate", run.boundary_id)
