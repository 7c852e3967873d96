"""What waits for approval: a run that has come to a summary is parked, with its proposal whole.

Nobody works on a parked run and nothing recovers it; what becomes of it is `approvals.py`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from compaction_app.engine.audit import audit
from compaction_app.engine.chain import Trail
from compaction_app.engine.outcome import FailureReason
from compaction_app.engine.values import Step
from compaction_app.models import CompactionCandidate, CompactionRun, RunStatus
from compaction_app.services.calls import spent
from compaction_app.services.claims import Claim, ended, still_ours
from compaction_app.services.run_records import commit_drafts, spent_values, store_steps
from compaction_app.services.situations import Attempt
from compaction_app.services.stages import came_to
from sessions_app import selectors as transcripts
from sessions_app.models import CompactBoundary
from sessions_app.policy import Policy
from sessions_app.services.append import lock_session
from sessions_app.transcript.boundary import BoundaryDraft, BoundaryKind
from sessions_app.transcript.boundary_json import draft_as_json, draft_from_json
from sessions_app.transcript.messages import MessageKind

STAGE = "awaiting_approval"
PARKED = "awaiting approval"  # how the attempt of a worker ended
PARKED_AT = 0.95  # of a run's progress: only storing is left


def wants_approval(*, policy: Policy, trigger: str) -> bool:
    """Whether a summary waits for somebody. What a client needs at once, its request being refused, never does."""
    return policy.approve_compactions and trigger != CompactBoundary.Trigger.REACTIVE


def park(*, run: CompactionRun, held: Claim, draft: BoundaryDraft, attempt: Attempt) -> None:
    """Keep what the run proposes and let go of the run, in one transaction.

    It is written and taken back first: a candidate that could not be accepted asks for nobody's time. Raises ClaimLost,
    StaleView, InvalidContext.
    """
    now, session = timezone.now(), attempt.session
    text = draft.summary or ""
    found = audited(run=run, draft=draft, as_of=attempt.last_read)
    with transaction.atomic():
        lock_session(session_id=session.pk)
        still_ours(held=held)
        tokens_after = _rehearsed(run=run, draft=draft, attempt=attempt, now=now)
        row = CompactionRun.objects.get(pk=run.pk)
        CompactionRun.objects.filter(pk=run.pk).update(
            status=RunStatus.AWAITING_APPROVAL,
            lease_expires_at=None,
            claim_token=None,
            attempts=ended(run=row, now=now, how=PARKED),
            **came_to(run=row, stage=STAGE, now=now, progress=PARKED_AT),
            as_of=attempt.last_read,
            shared_prefix=attempt.trail[-1][1].shared_prefix,
            **spent_values(used=spent(run=run), written_by=draft),
        )
        CompactionCandidate.objects.create(
            run=run,
            draft=draft_as_json(draft=draft),
            summary=text,
            original_summary=text,
            trail=[_step_as_json(link, step) for link, step in attempt.trail],
            audit=found,
            head_id=attempt.head_id,
            newest_id=attempt.newest_id,
            as_of=attempt.last_read,
            tokens_before=session.context_tokens,
            tokens_after=tokens_after,
            created_at=now,
        )
        store_steps(run=run, attempt_number=held.attempt, trail=attempt.trail)


def draft_of(*, candidate: CompactionCandidate) -> BoundaryDraft:
    """What would be stored; it tells where a person has changed it."""
    below = candidate.draft["base"]
    base = CompactBoundary.objects.get(pk=below).as_value() if below is not None else None
    draft = draft_from_json(stored=candidate.draft, base=base)
    if not candidate.edited_at:
        return draft
    told = f"summary edited by {candidate.edited_by} before it was accepted"
    return replace(draft, why=f"{draft.why}; {told}" if draft.why else told)


def has_sections(*, draft: BoundaryDraft) -> bool:
    """A memory is free text, and a provider's own words are not ours."""
    return draft.kind is not BoundaryKind.SESSION_MEMORY and not draft.summary_blocks


def audited(*, run: CompactionRun, draft: BoundaryDraft, as_of: int) -> dict[str, Any]:
    """Reads the bounded history that a summary is made from."""
    policy = transcripts.effective_policy(team=run.session.team, session=run.session).policy
    history = transcripts.covered_history(
        session=run.session, up_to=as_of, most_messages=policy.summary_source_messages
    )
    hidden = draft.as_boundary(committed_at=as_of, created_at=run.queued_at, sequence=0)
    compacted = [m for m in history if m.kind == MessageKind.NORMAL and hidden.hides(m.position)]
    return audit(
        summary=draft.summary or "",
        has_sections=has_sections(draft=draft),
        history=history,
        compacted=compacted,
        instructions=draft.instructions,
        facts=draft.facts,
    ).as_json()


def _rehearsed(*, run: CompactionRun, draft: BoundaryDraft, attempt: Attempt, now: datetime) -> int:
    """Tokens of the context that the draft would leave. Nothing stays of it. Raises StaleView, InvalidContext."""
    with transaction.atomic():
        boundary = commit_drafts(run=run, drafts=[draft], attempt=attempt, now=now)
        transaction.set_rollback(True)
    return boundary.tokens_after or 0


def trail_of(*, candidate: CompactionCandidate) -> Trail:
    """The steps that led to it, without their proposals."""
    return [_step_from_json(stored) for stored in candidate.trail]


def _step_as_json(link: str, step: Step) -> dict[str, Any]:
    return {
        "link": link,
        "ran": step.draft is not None,
        "why": step.why,
        "tokens_before": step.tokens_before,
        "tokens_after": step.tokens_after,
        "reason": step.reason.value if step.reason else None,
        "shared_prefix": step.shared_prefix,
    }


def _step_from_json(stored: dict[str, Any]) -> tuple[str, Step]:
    """The step again, without its proposal."""
    step = Step(
        why=stored["why"],
        tokens_before=stored["tokens_before"],
        tokens_after=stored["tokens_after"],
        reason=FailureReason(stored["reason"]) if stored["reason"] else None,
        shared_prefix=stored["shared_prefix"],
    )
    return stored["link"], step
