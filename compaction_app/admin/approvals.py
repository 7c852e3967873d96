"""A run that waits for approval: its candidate on the run's page, and what somebody decides about it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest
from django.utils import timezone

from compaction_app import actions, selectors
from compaction_app.admin import cells
from compaction_app.admin.findings import findings_of
from compaction_app.admin.rendering.summary import summary_sections
from compaction_app.admin.rendering.text import Fold, fold, one_line, pretty_json
from compaction_app.models import CompactionCandidate, CompactionRun, RunStatus

ACCEPT, SAVE, REJECT = "accept", "save", "reject"
WHO_CHARS = 200
MOST_REASON, MOST_SUMMARY = 2_000, 400_000  # characters


def candidate_of(run: CompactionRun) -> dict[str, Any] | None:
    """What the page shows of the run's candidate; None where it never had one."""
    candidate = selectors.candidate_of(run=run)
    if candidate is None:
        return None
    return {
        "waits": not candidate.decision and run.status == RunStatus.AWAITING_APPROVAL,
        "stale": not candidate.decision and selectors.is_stale(candidate=candidate),
        "kind": str(candidate.draft.get("kind", "")).replace("_", " "),
        "sections": summary_sections(candidate.summary),
        "text": candidate.summary,
        "signed": bool(candidate.draft.get("summary_blocks")),
        "change": cells.token_change(candidate.tokens_before, candidate.tokens_after),
        "most_reason": MOST_REASON,
        "edited": _edited(candidate),
        "decided": _decided(candidate),
        "reason": one_line(candidate.reason, limit=MOST_REASON),
        "findings": findings_of(audit=candidate.audit, session_id=run.session_id),
        "audit": _audit(candidate),
    }


def _edited(candidate: CompactionCandidate) -> str:
    if candidate.edited_at is None:
        return ""
    return f"{one_line(candidate.edited_by, limit=WHO_CHARS)}, {candidate.edited_at:%Y-%m-%d %H:%M} UTC"


def _decided(candidate: CompactionCandidate) -> str:
    if not candidate.decision or candidate.decided_at is None:
        return ""
    who = one_line(candidate.decided_as, limit=WHO_CHARS)
    return f"{candidate.decision} by {who}, {candidate.decided_at:%Y-%m-%d %H:%M} UTC"


def _audit(candidate: CompactionCandidate) -> Fold | None:
    return fold(pretty_json(candidate.audit)) if candidate.audit else None


def decide(request: HttpRequest, run: CompactionRun) -> None:
    """Do what the posted form asks for, and say what came of it."""
    by, now = actions.Decider(user=request.user), timezone.now()
    summary = request.POST.get("summary", "").replace("\r\n", "\n")[:MOST_SUMMARY]
    wanted = request.POST.get("do")
    try:
        if wanted == ACCEPT:
            actions.accept_candidate(run=run, by=by, now=now, summary=summary or None)
            messages.success(request, "Accepted: the summary stands for what it covers now.")
        elif wanted == SAVE:
            actions.edit_candidate(run=run, summary=summary, by=by, now=now)
            messages.success(request, "Saved. It goes on waiting, with this text.")
        elif wanted == REJECT:
            reason = request.POST.get("reason", "").strip()[:MOST_REASON]
            actions.reject_candidate(run=run, reason=reason, by=by, now=now)
            messages.success(request, "Rejected: nothing of it was stored.")
        else:
            messages.error(request, "Nothing was decided.")
    except actions.NotAwaiting as gone:
        messages.warning(request, f"Somebody was faster. {gone}")
    except actions.StaleView as stale:
        messages.error(request, f"It can not be stored any more: {stale}. The run has failed.")
    except (actions.BadEdit, actions.CannotAccept) as problem:
        messages.error(request, f"Not stored, and it goes on waiting: {problem}")
