"""Deciding about a candidate: a summary that waits for somebody who accepts it, before anything of it is stored.

Whoever decides holds the session's lock and finds the run still waiting, so of two that decide at once one wins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import transaction

from compaction_app import telemetry
from compaction_app.engine.decision import switched_off
from compaction_app.engine.outcome import FailureReason
from compaction_app.engine.summary import missing_sections, says_nothing
from compaction_app.models import CompactionCandidate, CompactionRun, RunStatus, RunStep
from compaction_app.services import breaker
from compaction_app.services.candidates import audited, draft_of, has_sections, trail_of
from compaction_app.services.run_records import NOT_STORED, close_run, store_failure, store_success
from compaction_app.services.situations import Attempt
from sessions_app import selectors as transcripts
from sessions_app.catalog import tokenizer_family
from sessions_app.models import ApiKey, Session
from sessions_app.models.fields import storable_text
from sessions_app.services.append import lock_session
from sessions_app.services.boundaries import InvalidContext, StaleView
from sessions_app.transcript.tokens import estimate_text
from sessions_app.transcript.view import summary_content

NAME_CHARS = 200  # the columns that keep who it was


class NotAwaiting(Exception):
    """The run has no candidate that waits: somebody has decided, or it never had one. `run`: as it is now."""

    def __init__(self, *, run: CompactionRun) -> None:
        self.run = run
        super().__init__(f"Run {run.uuid} does not wait for approval: it is {run.status}.")


class BadEdit(Exception):
    """The text can't stand for the candidate's summary: `code` for programs, the message for people."""

    def __init__(self, *, code: str, detail: str) -> None:
        self.code = code
        super().__init__(detail)


class CannotAccept(Exception):
    """The candidate as it is can't be stored, and goes on waiting: `code` for programs, the message for people."""

    def __init__(self, *, code: str, detail: str) -> None:
        self.code = code
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class Decider:
    """Who edits or decides: a user, or a client by its key."""

    user: Any = None
    key: ApiKey | None = None

    @property
    def name(self) -> str:
        """For people: it stays after user and key are gone."""
        if self.user is not None:
            return storable_text(str(self.user.get_username()))[:NAME_CHARS]
        return storable_text(f"API key {self.key}" if self.key else "somebody")[:NAME_CHARS]

    @property
    def reference(self) -> str:
        """For programs."""
        if self.user is not None:
            return f"user:{self.user.pk}"
        return f"key:{self.key.uuid}" if self.key else ""


def edit(*, run: CompactionRun, summary: str, by: Decider, now: datetime) -> None:
    """Put another text in the place of the candidate's summary. Raises NotAwaiting, BadEdit; CannotAccept (stale_view)
    where what it was made of is not there any more: nobody's time is to go into a text that can't be stored. The run
    goes on waiting, to be rejected, or to be accepted in vain.
    """
    try:
        found = _checked(run=run, summary=summary)
        with transaction.atomic():
            lock_session(session_id=run.session_id)
            candidate = _awaiting(run)
            _refuse_stale(candidate)
            _revise(candidate=candidate, summary=summary, found=found, by=by, now=now)
    except StaleView as stale:
        detail = f"It can not be stored any more: {stale}. Reject it."
        raise CannotAccept(code=FailureReason.STALE_VIEW.value, detail=detail) from stale


def accept(*, run: CompactionRun, by: Decider, now: datetime, summary: str | None = None) -> None:
    """Store what the run has proposed, as its worker would have; `summary`: in the place of the text that stands there.

    Raises NotAwaiting, BadEdit; CannotAccept, where the candidate stays as it was; StaleView, where the run has failed,
    because what it was made of is not there any more.
    """
    if summary is not None and CompactionCandidate.objects.filter(run=run, summary=summary).exists():
        summary = None  # as it stands already: no edit
    try:
        found = None if summary is None else _checked(run=run, summary=summary)
        with transaction.atomic():
            locked = lock_session(session_id=run.session_id)
            candidate = _awaiting(run)
            if summary is not None and found is not None:
                _revise(candidate=candidate, summary=summary, found=found, by=by, now=now)
            _store(candidate=candidate, session=locked, by=by, now=now)
    except InvalidContext as invalid:
        raise CannotAccept(code=FailureReason.INVALID_CONTEXT.value, detail=str(invalid)) from invalid
    except StaleView as stale:
        _end_as_stale(run=run, why=str(stale), by=by, now=now)
        raise


def reject(*, run: CompactionRun, reason: str, by: Decider, now: datetime) -> None:
    """End the run; nothing of it is stored, and none starts by itself until something else is shown. Raises
    NotAwaiting."""
    told = f"rejected by {by.name}: {reason}" if reason else f"rejected by {by.name}"
    _reject(run=run, told=told, reason=reason, by=by, now=now)


def cancel(*, run: CompactionRun, by: Decider, now: datetime) -> None:
    """The same by somebody who cancels the run. Raises NotAwaiting."""
    _reject(run=run, told=f"cancelled by {by.name}", reason="the run was cancelled", by=by, now=now)


def _reject(*, run: CompactionRun, told: str, reason: str, by: Decider, now: datetime) -> None:
    with transaction.atomic():
        locked = lock_session(session_id=run.session_id)
        candidate = _awaiting(run)
        close_run(run_id=run.pk, now=now, status=RunStatus.CANCELLED, detail=told)
        _undo_steps(run=run)
        _decide(candidate=candidate, decision=CompactionCandidate.Decision.REJECTED, by=by, now=now, reason=reason)
        breaker.note_rejection(session=locked, now=now)


def supersede(*, run: CompactionRun, why: str, now: datetime) -> None:
    """End a run whose candidate nobody has decided about, because another run takes its place. The caller holds the
    session's lock. Does nothing where somebody has decided meanwhile."""
    try:
        candidate = _awaiting(run)
    except NotAwaiting:
        return
    close_run(run_id=run.pk, now=now, status=RunStatus.CANCELLED, detail=why)
    _undo_steps(run=run)
    _tell(candidate=candidate, decision="superseded", by=Decider(), now=now)


def _store(*, candidate: CompactionCandidate, session: Session, by: Decider, now: datetime) -> None:
    """The transaction of an acceptance. Raises StaleView, InvalidContext, CannotAccept."""
    run = candidate.run
    resolved = transcripts.effective_policy(team=session.team, session=session)
    if off := switched_off(resolved=resolved, automatic=False):
        raise CannotAccept(code=FailureReason.COMPACTION_DISABLED.value, detail=off)
    shown_before = session.view_tokens
    attempt = Attempt(
        session=session,
        view=transcripts.context_view(session=session),
        head_id=candidate.head_id,
        newest_id=candidate.newest_id,
        as_of=candidate.as_of,
        trail=trail_of(candidate=candidate),
    )
    worked = candidate.created_at - run.started_at if run.started_at else None
    draft = draft_of(candidate=candidate)
    store_success(run=run, drafts=[draft], attempt=attempt, shown_before=shown_before, now=now, worked=worked)
    if candidate.edited_at:
        _refuse_longer(session=session, shown_before=shown_before)
    _decide(candidate=candidate, decision=CompactionCandidate.Decision.ACCEPTED, by=by, now=now)


def _refuse_longer(*, session: Session, shown_before: int) -> None:
    """An edit must not make the context longer than it was; what was not edited has been measured."""
    shown = Session.objects.values_list("view_tokens", flat=True).get(pk=session.pk)
    if shown >= shown_before:
        detail = f"what is shown would go from {shown_before:,} to {shown:,} tokens: the edited summary is too long"
        raise CannotAccept(code=FailureReason.NOT_SMALLER.value, detail=detail)


def _end_as_stale(*, run: CompactionRun, why: str, by: Decider, now: datetime) -> None:
    """The run fails, unless somebody else has ended it meanwhile."""
    with transaction.atomic():
        locked = lock_session(session_id=run.session_id)
        candidate = _awaiting(run)
        store_failure(
            run=candidate.run,
            session=locked,
            reason=FailureReason.STALE_VIEW,
            detail=why,
            light_edits_kept=0,
            now=now,
        )
        _undo_steps(run=run)
        _tell(candidate=candidate, decision="stale", by=by, now=now)


def _awaiting(run: CompactionRun) -> CompactionCandidate:
    """The candidate with its run, both locked. The caller holds the session's lock. Raises NotAwaiting."""
    waiting = CompactionCandidate.objects.select_related("run__session__team").select_for_update(of=("self", "run"))
    found = waiting.filter(run=run, run__status=RunStatus.AWAITING_APPROVAL).first()
    if found is None:
        raise NotAwaiting(run=CompactionRun.objects.get(pk=run.pk))
    return found


def _refuse_stale(candidate: CompactionCandidate) -> None:
    session = candidate.run.session
    if why := transcripts.gone_stale(session=session, head_id=candidate.head_id, as_of=candidate.as_of):
        raise StaleView(why)


def _checked(*, run: CompactionRun, summary: str) -> dict[str, Any]:
    """What the audit says of an edited text. Outside of any lock: it reads history. Raises NotAwaiting, StaleView,
    BadEdit, in this order: a text is of no use where nobody waits for it."""
    candidate = CompactionCandidate.objects.select_related("run__session__team").filter(run=run).first()
    if candidate is None or candidate.run.status != RunStatus.AWAITING_APPROVAL:
        raise NotAwaiting(run=candidate.run if candidate else run)
    _refuse_stale(candidate)
    draft = draft_of(candidate=candidate)
    if draft.summary_blocks:
        detail = "The summary is a block that the provider has signed: it is taken as it is, or not at all."
        raise BadEdit(code="signed_block", detail=detail)
    if says_nothing(text=summary):
        raise BadEdit(code="blank", detail="The summary says nothing.")
    missing = missing_sections(text=summary) if has_sections(draft=draft) else []
    if missing:
        detail = f"The summary lacks sections, each of which needs its numbered heading: {', '.join(missing)}."
        raise BadEdit(code="missing_sections", detail=detail)
    return audited(run=run, draft=replace(draft, summary=summary), as_of=candidate.as_of)


def _revise(*, candidate: CompactionCandidate, summary: str, found: dict[str, Any], by: Decider, now: datetime) -> None:
    family = tokenizer_family(candidate.run.session.model)
    tokens = estimate_text(text=summary_content(summary=summary), family=family)
    candidate.tokens_after = max(candidate.tokens_after + tokens - candidate.draft["summary_tokens"], 0)
    candidate.draft = {**candidate.draft, "summary": summary, "summary_tokens": tokens}
    candidate.summary, candidate.audit = summary, found
    candidate.edited_at, candidate.edited_by = now, by.name
    candidate.save(update_fields=["draft", "summary", "audit", "tokens_after", "edited_at", "edited_by"])


def _undo_steps(*, run: CompactionRun) -> None:
    """What its links have proposed came to nothing."""
    steps = list(RunStep.objects.filter(run=run, ran=True))
    for step in steps:
        step.ran, step.tokens_after, step.why = False, step.tokens_before, f"{step.why}; {NOT_STORED}"
    RunStep.objects.bulk_update(steps, ["ran", "tokens_after", "why"])


def _decide(*, candidate: CompactionCandidate, decision: str, by: Decider, now: datetime, reason: str = "") -> None:
    candidate.decision, candidate.decided_at, candidate.reason = decision, now, reason
    candidate.decided_by, candidate.decided_as = by.user, by.name
    candidate.save(update_fields=["decision", "decided_at", "decided_by", "decided_as", "reason"])
    _tell(candidate=candidate, decision=decision, by=by, now=now)


def _tell(*, candidate: CompactionCandidate, decision: str, by: Decider, now: datetime) -> None:
    payload = {
        "decision": decision,
        "edited": candidate.edited_at is not None,
        "by": by.reference,
        "trigger": candidate.run.trigger,
        "kind": candidate.draft["kind"],
        "tokens_before": candidate.tokens_before,
        "tokens_after": candidate.tokens_after,
        "waited_seconds": (now - candidate.created_at).total_seconds(),
    }
    telemetry.emit_candidate_decided(run=candidate.run, payload=payload, now=now)
