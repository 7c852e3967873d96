"""Cancelling: somebody ends a run that has not ended. Nothing of it is stored, whoever works on it."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from compaction_app.models import AT_WORK, CompactionRun, RunStatus
from compaction_app.services import approvals
from compaction_app.services.approvals import Decider
from compaction_app.services.calls import spent
from compaction_app.services.run_records import close_run, spent_values
from sessions_app.services.append import lock_session


class WrongStatus(Exception):
    """The run's status rules out what is asked: `code` for programs, the message for people, `run` as it is now."""

    def __init__(self, *, run: CompactionRun, code: str, detail: str) -> None:
        self.run, self.code = run, code
        super().__init__(detail)


def cancel(*, run: CompactionRun, by: Decider, now: datetime) -> None:
    """End the run at once; one that is cancelled already stays as it is. Raises WrongStatus.

    A worker that has it loses its claim here and notices at its next report. A candidate that waits ends as rejected.
    """
    with transaction.atomic():
        lock_session(session_id=run.session_id)
        # Its claim and its progress take no lock of the session.
        row = CompactionRun.objects.select_for_update().get(pk=run.pk)
        if row.status == RunStatus.CANCELLED:
            return
        if row.status == RunStatus.AWAITING_APPROVAL:
            approvals.cancel(run=row, by=by, now=now)
        elif row.status in AT_WORK:
            told = f"cancelled by {by.name}"
            values = {"detail": told, "claim_token": None, **spent_values(used=spent(run=row))}
            close_run(run_id=row.pk, now=now, status=RunStatus.CANCELLED, **values)
        else:
            raise WrongStatus(run=row, code="run_ended", detail=f"Run {row.uuid} has ended: it is {row.status}.")


def settle(*, run: CompactionRun) -> None:
    """What a cancelled run has spent, once its worker has let go of it: a call that went on meanwhile is paid for."""
    CompactionRun.objects.filter(pk=run.pk, status=RunStatus.CANCELLED).update(**spent_values(used=spent(run=run)))
