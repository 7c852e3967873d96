"""How a run ends: what a success stores, what a failure leaves, each in one transaction."""

from __future__ import annotations

import functools
import logging
import traceback
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from compaction_app import telemetry
from compaction_app.engine.chain import Trail, light_drafts
from compaction_app.engine.links.last_resort import LAST_RESORT
from compaction_app.engine.outcome import FailureReason
from compaction_app.engine.values import Step
from compaction_app.models import CompactionRun, HookEvent, RunStatus, RunStep
from compaction_app.services import breaker, cleanup, clearing, hooks
from compaction_app.services.calls import Spent, spent
from compaction_app.services.claims import Claim, ClaimLost, ended, still_ours
from compaction_app.services.situations import Attempt
from sessions_app.models import CompactBoundary
from sessions_app.services.append import lock_session
from sessions_app.services.boundaries import InvalidContext, StaleView, commit_boundary
from sessions_app.transcript.boundary import BoundaryDraft
from sessions_app.transcript.messages import Role
from sessions_app.transcript.rounds import group_by_api_round

logger = logging.getLogger(__name__)


def describe(*, error: Exception) -> str:
    """Type and place, never the message: it may quote the transcript."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {place.name} (line {place.lineno})"


def is_automatic(run: CompactionRun) -> bool:
    """Whether the run had started by itself: what holds back such runs holds back no person."""
    return run.trigger == CompactBoundary.Trigger.AUTO


def finish(*, run: CompactionRun, held: Claim, drafts: Sequence[BoundaryDraft], attempt: Attempt) -> None:
    """All that a success stores, in one transaction: boundaries, attachments, counters, run, steps, telemetry, what the
    hooks are to be told. Then the caches are cleared. Raises ClaimLost, StaleView, InvalidContext."""
    now, session = timezone.now(), attempt.session
    with transaction.atomic():
        locked = lock_session(session_id=session.pk)
        still_ours(held=held)
        before, shown_before = session.context_tokens, locked.view_tokens
        previous = run.session.boundaries.summarizing().filter(reverted_at__isnull=True).order_by("-id").first()
        boundary = _commit(run=run, drafts=drafts, attempt=attempt, now=now)
        used, last = spent(run=run), attempt.trail[-1][1]
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
            response_id=boundary.response_id,
            shared_prefix=last.shared_prefix,
            **_spent_values(used=used, boundary=boundary),
        )
        _store_steps(run=run, held=held, trail=attempt.trail)
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
            **_recompaction(previous=previous, attempt=attempt),
            "last_resort": _provider_failure(attempt.trail),
            "seconds": (now - run.started_at).total_seconds() if run.started_at else None,
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
    since = previous.committed_at_position
    messages = [m for m in attempt.view.messages if m.position > since] if attempt.view else []
    return {
        "is_recompaction": True,
        "is_recompaction_in_chain": attempt.session.last_prompt_position <= since,
        "turns_since_previous": sum(one.messages[0].role == Role.ASSISTANT for one in group_by_api_round(messages)),
        "messages_since_previous": attempt.session.last_position - since,
        "previous_boundary": str(previous.uuid),
    }


def _provider_failure(trail: Trail) -> str | None:
    """Why a last resort has stood in; None where the run did not need one."""
    if not trail or trail[-1][0] != LAST_RESORT.name:
        return None
    return next((step.reason.value for _, step in reversed(trail) if step.reason is not None), None)


def _spent_values(*, used: Spent, boundary: CompactBoundary | None = None) -> dict[str, Any]:
    """Model and prompt: of what has written the boundary (none, where the embedded one did), else of the last call."""
    return {
        "usage": used.usage,
        "cost_usd": used.cost_usd,
        "cost_uncached_usd": used.cost_uncached_usd,
        "model": boundary.model if boundary else used.model,
        "prompt_version": boundary.prompt_version if boundary else used.prompt_version,
    }


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


def fail(*, run: CompactionRun, held: Claim, reason: FailureReason, detail: str, attempt: Attempt) -> None:
    """End the run as failed, with what was tried; nothing else is stored but what was cleared before (decision 1)."""
    now = timezone.now()
    with transaction.atomic():
        lock_session(session_id=run.session_id)
        try:
            still_ours(held=held)
        except ClaimLost:
            return  # somebody else has the run now; its end is theirs to tell
        kept = _keep_light_edits(run=run, attempt=attempt, now=now)
        used = spent(run=run)
        _close(
            held=held,
            now=now,
            status=RunStatus.FAILED,
            failure_reason=reason.value,
            detail=detail,
            **_spent_values(used=used),
        )
        _store_steps(run=run, held=held, trail=_as_kept(attempt.trail, kept=kept))
        payload = {
            "trigger": run.trigger,
            "is_auto": is_automatic(run),
            "reason": reason.value,
            "tokens_before": run.session.context_tokens,
            "attempt": held.attempt,
            "summarizer": run.summarizer,
            "light_edits_kept": len(kept),
            **_told_of_calls(run=run, used=used),
        }
        telemetry.emit_compact_failed(run=run, now=now, payload=payload)
        breaker.note_failure(session=attempt.session, reason=reason, automatic=is_automatic(run), now=now)
        told = {"reason": reason.value, "detail": detail, "tokens_before": run.session.context_tokens}
        hooks.tell(event=HookEvent.COMPACT_FAILED, session=attempt.session, run=run, payload=told, now=now)


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


def _close(*, held: Claim, now: datetime, status: str, **values: Any) -> None:
    run = CompactionRun.objects.get(pk=held.run_id)
    attempts = ended(run=run, now=now, how=str(values.get("failure_reason") or status))
    CompactionRun.objects.filter(pk=held.run_id).update(
        status=status, finished_at=now, lease_expires_at=None, attempts=attempts, **values
    )


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
