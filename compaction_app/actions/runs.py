"""What one can do with a run that is there: try it again, or end it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from compaction_app.actions.compacting import ReactiveRefused, Wanted, check_reactive, request_compaction
from compaction_app.engine.command import Scope
from compaction_app.engine.values import Reported
from compaction_app.models import CompactionRun, RunStatus
from compaction_app.services import cancelling
from compaction_app.services.approvals import Decider
from compaction_app.services.cancelling import WrongStatus
from compaction_app.services.idempotency import HeldCall
from sessions_app.models import CompactBoundary


def retry_run(
    *,
    run: CompactionRun,
    now: datetime,
    instructions: str | None = None,
    summarizer: str | None = None,
    source: str = "",
    requested_by: Any = None,
    call: HeldCall | None = None,
) -> CompactionRun:
    """Queue another run that is to do what `run` has not: the same part, cut anew as the session is now.

    `run`: with its session and team loaded. `instructions`, `summarizer`: in place of the run's own, where not None.
    `call`: the call with a key that this is.
    Raises WrongStatus, and what `request_compaction` does.
    """
    if run.is_active:
        detail = f"Run {run.uuid} is not finished ({run.status}): wait for it, or cancel it."
        raise WrongStatus(run=run, code="not_finished", detail=detail)
    if run.status == RunStatus.SUCCEEDED:
        detail = f"Run {run.uuid} has succeeded: there is nothing to try again. Ask for another compaction."
        raise WrongStatus(run=run, code="run_succeeded", detail=detail)
    named = run.summarizer if run.names_summarizer else ""
    wanted = Wanted(
        instructions=run.instructions if instructions is None else instructions,
        scope=Scope(run.scope),
        scope_uuid=run.scope_uuid,
        summarizer=named if summarizer is None else summarizer,
        reported=_reported(run=run),
    )
    return request_compaction(
        session=run.session,
        wanted=wanted,
        now=now,
        source=source,
        requested_by=requested_by,
        retry_of=run,
        call=call,
    )


def _reported(*, run: CompactionRun) -> Reported | None:
    """What the provider told, for a reactive run. None where such are switched off by now: whoever asks again then has
    a compaction by hand."""
    if run.trigger != CompactBoundary.Trigger.REACTIVE:
        return None
    try:
        check_reactive(session=run.session)
    except ReactiveRefused:
        return None
    return Reported(tokens=run.reported_tokens, limit=run.reported_limit, output=run.reported_output)


def cancel_run(*, run: CompactionRun, by: Decider, now: datetime) -> CompactionRun:
    """End the run, nothing of it stored; the run as it is then. One that is cancelled already stays as it is. Raises
    WrongStatus where it has succeeded or failed."""
    cancelling.cancel(run=run, by=by, now=now)
    run.refresh_from_db()
    return run
