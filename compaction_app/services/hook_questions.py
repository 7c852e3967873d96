"""Asking before a compaction: receivers in this process first, then the team's hooks, one after the other.

What they say goes into the summary's prompt, or ends the run. A hook that is down, slow, or not understood is passed
over, unless it is required.
"""

from __future__ import annotations

import functools
import logging
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic
from urllib.parse import urlsplit

from django.db import transaction

from compaction_app import signals
from compaction_app.engine.outcome import CompactionRefused, FailureReason
from compaction_app.models import CompactionRun, Hook, HookDelivery, HookEvent
from compaction_app.services import hook_http
from compaction_app.services.hook_answers import REASON_CHARS, Said, plain, read_answer
from compaction_app.services.hook_payloads import envelope, question_data
from sessions_app import selectors as transcripts
from sessions_app.models import Session
from sessions_app.policy import Policy

logger = logging.getLogger(__name__)

GONE = 410  # HTTP: Standard Webhooks has it end the hook
IN_PROCESS = "a receiver in this process"


@dataclass(frozen=True, slots=True)
class Question:
    """One compaction that is about to be. `beat` renews the run's lease."""

    session: Session
    run: CompactionRun | None
    trigger: str
    tokens: int
    instructions: str
    policy: Policy
    begun: datetime
    clock: Callable[[], float]
    beat: Callable[[], None]

    def now(self) -> datetime:
        return self.begun + timedelta(seconds=self.clock())


def ask_pre_compact(
    *,
    run: CompactionRun | None,
    session: Session,
    trigger: str,
    tokens: int,
    instructions: str,
    now: datetime,
    beat: Callable[[], None] | None = None,
) -> str:
    """What they want the summary to mind, "" where nobody says anything. Call it outside transactions.

    `session` with its team; `tokens`: size of its context. `beat`: called before each hook and about once a second
    while one is waited for; what it raises ends the asking. Raises CompactionRefused. Time: the sum of the hooks'
    timeouts, at most (services/hook_setup.py bounds their number).
    """
    question = Question(
        session=session,
        run=run,
        trigger=trigger,
        tokens=tokens,
        instructions=instructions,
        policy=transcripts.effective_policy(team=session.team, session=session).policy,
        begun=now,
        clock=functools.partial(_since, monotonic()),
        beat=beat or _nothing,
    )
    said = [*_ask_receivers(question), *_ask_hooks(question)]
    return plain("\n".join(filter(None, said)), most=question.policy.hook_instruction_chars)


def _since(begun: float) -> float:
    return monotonic() - begun


def _nothing() -> None:
    pass


def _ask_receivers(question: Question) -> Iterator[str]:
    answers = signals.pre_compact.send_robust(
        sender=CompactionRun,
        session=question.session,
        run=question.run,
        trigger=question.trigger,
        tokens=question.tokens,
        instructions=question.instructions,
    )
    for _, answer in answers:
        if isinstance(answer, signals.Refuse):
            raise _refused(by=IN_PROCESS, reason=plain(str(answer.reason), most=REASON_CHARS))
        if isinstance(answer, str):
            yield plain(answer, most=question.policy.hook_instruction_chars)


def _ask_hooks(question: Question) -> Iterator[str]:
    hooks = Hook.objects.filter(team_id=question.session.team_id, event=HookEvent.PRE_COMPACT, enabled=True)
    for hook in hooks.order_by("pk"):
        question.beat()
        said = _ask(hook, question)
        if said.refusal is not None and hook.can_block:
            raise _refused(by=_host(hook), reason=said.refusal)
        if said.problem and hook.required:
            detail = f"the required hook at {_host(hook)} gave no answer: {said.problem}"
            raise CompactionRefused(reason=FailureReason.HOOK_FAILED, detail=detail)
        yield said.instructions


def _refused(*, by: str, reason: str) -> CompactionRefused:
    detail = f"refused by {by}: {reason}" if reason else f"refused by {by}, without a reason"
    return CompactionRefused(reason=FailureReason.REFUSED_BY_HOOK, detail=detail)


def _host(hook: Hook) -> str:
    """The hook's host, for people: an address may hold a token in its path."""
    return urlsplit(hook.url).hostname or "?"


def _ask(hook: Hook, question: Question) -> Said:
    """One call, and its row in the log, however it ends."""
    webhook_id, policy, asked_at = uuid.uuid4(), question.policy, question.now()
    data = question_data(
        session=question.session,
        run=question.run,
        trigger=question.trigger,
        tokens=question.tokens,
        instructions=question.instructions,
        most_chars=policy.hook_instruction_chars,
    )
    row = HookDelivery(
        uuid=webhook_id,
        hook=hook,
        session=question.session,
        run=question.run,
        event=HookEvent.PRE_COMPACT,
        payload=envelope(event=HookEvent.PRE_COMPACT, webhook_id=webhook_id, data=data, now=asked_at),
        status=HookDelivery.Status.GIVEN_UP,
        tries=1,
        detail="the run ended while the hook was asked",
        created_at=asked_at,
    )
    try:
        answer = hook_http.post(
            url=hook.url,
            secret=hook.secret,
            webhook_id=str(webhook_id),
            payload=row.payload,
            timeout=hook.timeout or policy.hook_timeout_seconds,
            now=asked_at,
            answer_bytes=policy.hook_answer_bytes,
            beat=question.beat,
        )
        said = _understood(answer, policy=policy)
        row.http_status, row.detail = answer.status, _told(said, hook)
        row.status = HookDelivery.Status.GIVEN_UP if said.problem else HookDelivery.Status.DELIVERED
    finally:
        row.finished_at = question.now()
        _log(row)
    if answer.status == GONE and not hook.required:  # a required one stands guard until a person takes it away
        Hook.objects.filter(pk=hook.pk).update(enabled=False)
    return said


def _understood(answer: hook_http.HookAnswer, *, policy: Policy) -> Said:
    if answer.problem:
        return Said(problem=answer.problem)
    return read_answer(
        body=answer.body,
        is_cut=answer.is_cut,
        most_bytes=policy.hook_answer_bytes,
        most_chars=policy.hook_instruction_chars,
    )


def _told(said: Said, hook: Hook) -> str:
    if said.problem:
        return said.problem
    if said.refusal is not None:
        heard = "refused" if hook.can_block else "refused, which this hook may not"
        return f"{heard}: {said.refusal}" if said.refusal else heard
    return f"gave instructions of {len(said.instructions):,} characters" if said.instructions else "said nothing"


def _log(row: HookDelivery) -> None:
    """Keep what became of a call. The hook may have been deleted while it was asked; that ends no run."""
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except Exception as error:
        logger.warning("the log of a hook's answer could not be kept (%s)", type(error).__name__)
