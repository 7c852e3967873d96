"""Celery tasks: thin, by id, safe to deliver twice. Unknown arguments are ignored: an old worker survives a deploy."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from django.utils import timezone

from compaction_app.services import runs


@shared_task
def compact_session(*, run_id: int, **_: Any) -> None:
    """Bring one run to its end."""
    runs.execute(run_id=run_id)


@shared_task
def recover_runs(**_: Any) -> None:
    """Take up runs that were queued but not delivered, or whose worker went silent."""
    for run_id in runs.recover(now=timezone.now()):
        compact_session.delay(run_id=run_id)
