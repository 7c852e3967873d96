"""Celery tasks: thin, by id, safe to deliver twice. Unknown arguments are ignored: an old worker survives a deploy."""

from __future__ import annotations

import logging
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
    """Take up runs that were queued but not delivered, or whose worker went silent; then sessions without a run that
    are over their threshold."""
    now = timezone.now()
    for run_id in runs.recover(now=now):
        compact_session.delay(run_id=run_id)
    for run_id in decisions.sweep(now=now):
        compact_session.delay(run_id=run_id)


@shared_task
def refresh_catalog(**_: Any) -> None:
    """Ask the provider for the windows of its models, where that is due."""
    catalog.refresh(now=timezone.now())


@shared_task
def count_exact_tokens(*, boundary_id: int, **_: Any) -> None:
    """Have the provider count the context that a compaction left."""
    counts.count_exact(boundary_id=boundary_id)


def count_exact_after(*, run: CompactionRun | None) -> None:
    """Have the worker get the exact size of the context that a run has left, where there is a key."""
    if run is None or run.boundary_id is None or not settings.ANTHROPIC_KEY_SET:
        return
    try:
        count_exact_tokens.delay(boundary_id=run.boundary_id)
    except OperationalError:
        logger.warning("the queue does not answer; boundary %s keeps its estimate", run.boundary_id)
