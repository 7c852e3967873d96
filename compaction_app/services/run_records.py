"""What the end of a run writes, whoever brings it about: a worker, or somebody who accepts a candidate.

Everything here is written in the transaction of its caller, who holds the session's lock and the run.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from compaction_app import telemetry
from compaction_app.engine.chain import Trail
from compaction_app.engine.command import Scope
from compaction_app.engine.links.last_resort import LAST_RESORT
from compaction_app.engine.outcome import FailureReason
from compaction_app.engine.values import Step
from compaction_app.models import CompactionRun, HookEvent, RunStatus, RunStep
from compaction_app.services import breaker, cleanup, clearing, failures, hooks, partial
from compaction_app.services.calls import Spent, spent
from compaction_app.services.claims import ended
from compaction_app.services.situations import Attempt
from compaction_app.services.stages import DONE, came_to
from sessions_app.models import CompactBoundary, Session
from sessions_app.services.append import lock_session
from sessions_app.services.boundaries import commit_boundary
from sessions_app.transcript.boundary import BoundaryDraft
from sessions_app.transcript.messages import Role
from sessions_app.transcript.rounds import group_by_api_round


def is_automatic(run: CompactionRun) -> bool:
    """Whether the run had started by itself: what holds back such runs holds back no person."""
    return run.trigger == CompactBoundary.Trigger.AUTO


def store_success(
    *,
    run: CompactionRun,
    drafts: Sequence[BoundaryDraft],
    attempt: Attempt,
    shown_before: int,
    now: datetime,
    worked: timedelta | None,
) -> CompactBoundary:
    """Boundaries, attachments, counters, run, telemetry, what the hooks are to be told; gives back the last boundary.

    The caches are cleared on commit. `shown_before`: estimate of what the model was shown, in tokens. `worked`: how
    long the work took, None where that is not known. Raises StaleView, InvalidContext.
    """
    session, before = attempt.session, attempt.session.context_tokens
    previous = session.boundaries.summarizing().filter(reverted_at__isnull=True).order_by("-id").first()
    boundary = commit_drafts(run=run, drafts=drafts, attempt=attempt, now=now)
    used, last = spent(run=run), attempt.trail[-1][1]
    close_run(
        run_id=run.pk,
        now=now,
        status=RunStatus.SUCCEEDED,
        boundary=boundary,
        tokens_before=before,
        tokens_after=boundary.tokens_after,
        as_of=attempt.last_read,
        response_id=boundary.response_id,
        shared_prefix=last.shared_prefix,
        **partial.cut_values(scope=run.scope, draft=drafts[-1], view=attempt.view),
        **spent_values(used=used, written_by=boundary),
    )
    payload = {
        "trigger": run.trigger,
        "is_auto": is_automatic(run),
        "kind": boundary.kind,
        "tokens_before": before,
        "tokens_after": boundary.tokens_after,
        "summary_tokens": boundary.summary_tokens,
        "attachments": len(drafts[-1].attachments),
        "summarizer": drafts[-1].summarizer,
        "shared_prefix": last.shared_prefix,
        "response_id": boundary.response_id,
        "generation": boundary.generation,
        "direction": None if run.scope == Scope.WHOLE else run.scope,
        **_recompaction(previous=previous, attempt=attempt),
        "last_resort": _provider_failure(attempt.trail),
        "seconds": worked.total_seconds() if worked else None,
        **_told_of_calls(run=run, used=used),
    }
    telemetry.emit_compact(run=run, now=now, payload=payload)
    after = lock_session(session_id=session.pk)  # the boundary has changed its counters
    breaker.note_success(session=after, shown_before=shown_before, automatic=is_automatic(run), now=now)
    told = {
        "kind": boundary.kind,
        "boundary": str(boundary.uuid),
        "tokens_before": before,
        "tokens_after": boundary.tokens_after,
    }
    hooks.tell(event=HookEvent.POST_COMPACT, session=session, run=run, payload=told, now=now)
    transaction.on_commit(functools.partial(cleanup.run_cleanup, boundary=boundary))
    return boundary


def store_failure(
    *,
    run: CompactionRun,
    session: Session,
    reason: FailureReason,
    detail: str,
    light_edits_kept: int,
    now: datetime,
) -> None:
    """Run, telemetry, breaker, what the hooks are to be told. `session` with its team, as the run has read it."""
    used = spent(run=run)
    group = failures.note_failure(session=session, reason=reason, now=now)
    values = {"failure_reason": reason.value, "failure_group": group, "detail": detail, **spent_values(used=used)}
    close_run(run_id=run.pk, now=now, status=RunStatus.FAILED, **values)
    payload = {
        "trigger": run.trigger,
        "is_auto": is_automatic(run),
        "reason": reason.value,
        "tokens_before": run.session.context_tokens,
        "attempt": run.attempt,
        "summarizer": run.summarizer,
        "light_edits_kept": light_edits_kept,
        **_told_of_calls(run=run, used=used),
    }
    if run.scope == Scope.WHOLE:
        telemetry.emit_compact_failed(run=run, now=now, payload=payload)
    else:
        telemetry.emit_partial_failed(run=run, now=now, payload={**payload, "direction": run.scope})
    breaker.note_failure(session=session, reason=reason, automatic=is_automatic(run), now=now)
    told = {"reason": reason.value, "detail": detail, "tokens_before": run.session.context_tokens}
    hooks.tell(event=HookEvent.COMPACT_FAILED, session=session, run=run, payload=told, now=now)


def commit_drafts(
    *, run: CompactionRun, drafts: Sequence[BoundaryDraft], attempt: Attempt, now: datetime
) -> CompactBoundary:
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
            as_of=attempt.last_read,
            tokens_before=before,
            now=now,
        )
        newest_id, before = boundary.pk, boundary.tokens_after or before
        clearing.tell_cleared(boundary=boundary, session=session, now=now, run=run)
    return boundary


def store_steps(*, run: CompactionRun, attempt_number: int, trail: Trail) -> None:
    """What the links did, behind what earlier attempts have told."""
    first = run.steps.count() + 1  # a handful of rows
    RunStep.objects.bulk_create(
        RunStep(
            run=run,
            ordinal=number,
            attempt=attempt_number,
            link=name,
            ran=step.draft is not None,
            why=step.why,
            tokens_before=step.tokens_before,
            tokens_after=step.tokens_after,
        )
        for number, (name, step) in enumerate(trail, start=first)
    )


def undone(step: Step) -> Step:
    """The step of a proposal that came to nothing."""
    return replace(step, draft=None, tokens_after=step.tokens_before, why=f"{step.why}; {NOT_STORED}")


NOT_STORED = "not stored"


def close_run(*, run_id: int, now: datetime, status: str, **values: Any) -> None:
    """The run's row at its end."""
    run = CompactionRun.objects.get(pk=run_id)
    attempts = ended(run=run, now=now, how=str(values.get("failure_reason") or status))
    is_done = status == RunStatus.SUCCEEDED
    stage = came_to(run=run, stage=DONE if is_done else str(status), now=now, progress=1 if is_done else None)
    CompactionRun.objects.filter(pk=run_id).update(
        status=status, finished_at=now, lease_expires_at=None, attempts=attempts, **stage, **values
    )


def spent_values(*, used: Spent, written_by: CompactBoundary | BoundaryDraft | None = None) -> dict[str, Any]:
    """Model and prompt: of what has written the boundary (none, where the embedded one did), else of the last call."""
    return {
        "usage": used.usage,
        "cost_usd": used.cost_usd,
        "cost_uncached_usd": used.cost_uncached_usd,
        "model": written_by.model if written_by else used.model,
        "prompt_version": written_by.prompt_version if written_by else used.prompt_version,
    }


def _recompaction(*, previous: CompactBoundary | None, attempt: Attempt) -> dict[str, Any]:
    """Whether this session had been compacted before, and how long ago (S18).

    In a chain: nobody has said anything since; the agent alone has filled the context again. Turns are API rounds.
    """
    if previous is None:
        return {
            "is_recompaction": False,
            "is_recompaction_in_chain": False,
            "turns_since_previous": None,
            "messages_since_previous": None,
        }
    since, read_to = previous.committed_at_position, attempt.last_read
    messages = [m for m in attempt.view.messages if since < m.position <= read_to] if attempt.view else []
    return {
        "is_recompaction": True,
        "is_recompaction_in_chain": attempt.session.last_prompt_position <= since,
        "turns_since_previous": sum(one.messages[0].role == Role.ASSISTANT for one in group_by_api_round(messages)),
        "messages_since_previous": read_to - since,
        "previous_boundary": str(previous.uuid),
    }


def _provider_failure(trail: Trail) -> str | None:
    """Why a last resort has stood in; None where the run did not need one."""
    if not trail or trail[-1][0] != LAST_RESORT.name:
        return None
    return next((step.reason.value for _, step in reversed(trail) if step.reason is not None), None)


def _told_of_calls(*, run: CompactionRun, used: Spent) -> dict[str, Any]:
    return {
        "compaction_usage": dict(used.usage or {}),
        "calls": used.calls,
        "ptl_retries": used.cuts,
        "largest_request_tokens": used.largest_request_tokens,
        "largest_request_bytes": used.largest_request_bytes,
        "cost_usd": str(used.cost_usd) if used.cost_usd is not None else None,
        "model": used.model or run.session.model,
        "prompt_version": used.prompt_version,
        "query_source": run.source,
        "thread": run.session.thread,
    }
