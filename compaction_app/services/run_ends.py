"""How a run that a worker holds ends: in a success or a failure, each in one transaction."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Sequence
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from compaction_app.engine.chain import Trail, light_drafts
from compaction_app.engine.outcome import FailureReason
from compaction_app.models import CompactionRun
from compaction_app.services.claims import Claim, ClaimLost, still_ours
from compaction_app.services.run_records import commit_drafts, store_failure, store_steps, store_success, undone
from compaction_app.services.situations import Attempt
from sessions_app.models import Session
from sessions_app.services.append import lock_session
from sessions_app.services.boundaries import InvalidContext, StaleView
from sessions_app.transcript.boundary import BoundaryDraft

logger = logging.getLogger(__name__)


def describe(*, error: Exception) -> str:
    """Type and place, never the message: it may quote the transcript."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {place.name} (line {place.lineno})"


def finish(*, run: CompactionRun, held: Claim, drafts: Sequence[BoundaryDraft], attempt: Attempt) -> None:
    """All that a success stores, in one transaction. Then the caches are cleared.

    Raises ClaimLost, StaleView, InvalidContext.
    """
    now = timezone.now()
    with transaction.atomic():
        locked = lock_session(session_id=attempt.session.pk)
        still_ours(held=held)
        store_success(
            run=run,
            drafts=drafts,
            attempt=attempt,
            shown_before=locked.view_tokens,
            now=now,
            worked=now - run.started_at if run.started_at else None,
        )
        store_steps(run=run, attempt_number=held.attempt, trail=attempt.trail)


def fail(*, run: CompactionRun, held: Claim, reason: FailureReason, detail: str, attempt: Attempt) -> None:
    """End the run as failed, with what was tried; nothing else is stored but what was cleared before (decision 1)."""
    now = timezone.now()
    with transaction.atomic():
        try:
            lock_session(session_id=run.session_id)
            still_ours(held=held)
        except (ClaimLost, Session.DoesNotExist):
            return  # somebody else has the run now, and its end is theirs to tell; or it was erased
        kept = _keep_light_edits(run=run, attempt=attempt, now=now)
        store_failure(
            run=run, session=attempt.session, reason=reason, detail=detail, light_edits_kept=len(kept), now=now
        )
        store_steps(run=run, attempt_number=held.attempt, trail=_as_kept(attempt.trail, kept=kept))


def _keep_light_edits(*, run: CompactionRun, attempt: Attempt, now: datetime) -> list[BoundaryDraft]:
    """What was cleared before a later link failed stays: each is a valid boundary of its own (decision 1).

    All or none. Nothing that goes wrong with it keeps the run from its end.
    """
    drafts = light_drafts(attempt.trail)
    if not drafts:
        return []
    try:
        with transaction.atomic():
            commit_drafts(run=run, drafts=drafts, attempt=attempt, now=now)
    except (StaleView, InvalidContext) as problem:
        logger.info("light edits of run %s were not kept: %s", run.uuid, type(problem).__name__)
        return []
    except Exception as error:
        logger.error("light edits of run %s were not kept: unexpected %s", run.uuid, describe(error=error))
        return []
    return drafts


def _as_kept(trail: Trail, *, kept: Sequence[BoundaryDraft]) -> Trail:
    """The steps of a run that failed: what was proposed and not stored came to nothing."""
    return [(name, step if step.draft is None or step.draft in kept else undone(step)) for name, step in trail]
