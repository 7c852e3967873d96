"""Giving work to the queue: nothing else enqueues."""

from __future__ import annotations

import functools
import logging
from datetime import datetime

from django.db import transaction
from kombu.exceptions import OperationalError

from compaction_app import tasks
from compaction_app.services import catalog

logger = logging.getLogger(__name__)


def hand_out_on_commit(*, run_id: int) -> None:
    """Give the run to the queue once it is there for everybody."""
    transaction.on_commit(functools.partial(tasks.hand_out, run_id=run_id))


def recover_runs(*, now: datetime, broker_is_new: bool = False) -> int:
    """Hand every run that was left behind to the worker, then runs for appends that nobody has decided about
    (decision 21); gives back how many."""
    return tasks.hand_out_left_behind(now=now, broker_is_new=broker_is_new)


def refresh_catalog(*, now: datetime) -> None:
    """Have the worker ask the provider for the windows of its models, where that is due."""
    if not catalog.due(now=now):
        return
    try:
        tasks.refresh_catalog.delay()
    except OperationalError:
        logger.warning("the queue does not answer; the provider is asked for its models later")
