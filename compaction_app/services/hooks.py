"""Hooks at work: who is asked before a compaction, who is told of what has happened, and how that gets there.

What has happened is written in the transaction of its cause, one row for each hook, and sent by the worker until it is
taken: at least once, each time under the same webhook-id.
"""

from __future__ import annotations

import functools
import uuid
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from compaction_app import signals
from compaction_app.models import CompactionRun, Hook, HookDelivery, HookEvent
from compaction_app.services import hook_http
from compaction_app.services.hook_payloads import envelope, event_data
from compaction_app.services.hook_questions import GONE, ask_pre_compact
from sessions_app import selectors as transcripts
from sessions_app.models import Session
from sessions_app.policy import Policy

__all__ = ["ask_pre_compact", "deliver", "due", "tell"]

RETRY_GROWTH = 5  # each pause is that many times the one before; meaning of the figure hook_retry_seconds
# A claim outlasts its call by this much, so that a slow database does not make another worker send the same again.
CLAIM_MARGIN = timedelta(seconds=30)
MOST_AT_ONCE = 200  # deliveries that are handed out at once
MOST_OF_A_HOOK = 5  # of these for one hook: one that is down must not hold up the compactions of everybody
_SIGNALS = {
    HookEvent.POST_COMPACT: signals.post_compact,
    HookEvent.COMPACT_FAILED: signals.compact_failed,
    HookEvent.BREAKER_OPENED: signals.breaker_opened,
}


def tell(
    *, event: str, session: Session, run: CompactionRun | None, payload: Mapping[str, Any], now: datetime
) -> list[int]:
    """Write what is to be sent, in the caller's transaction; the ids of the deliveries. One query without hooks.

    `session` with its team. Of `payload` what services/hook_payloads.py names is told, and the uuid `boundary`.
    Receivers of the signal in this process hear of all of it on commit.
    """
    told = HookEvent(event)
    send = functools.partial(
        _SIGNALS[told].send_robust, sender=CompactionRun, session=session, run=run, payload=dict(payload)
    )
    transaction.on_commit(send, robust=True)
    hooks = list(Hook.objects.filter(team_id=session.team_id, event=told, enabled=True).order_by("pk"))
    if not hooks:
        return []
    data = event_data(session=session, run=run, payload=payload)
    rows = []
    for hook in hooks:
        webhook_id = uuid.uuid4()
        body = envelope(event=told.value, webhook_id=webhook_id, data=data, now=now)
        rows.append(
            HookDelivery(
                uuid=webhook_id,
                hook=hook,
                session=session,
                run=run,
                event=told,
                payload=body,
                next_try_at=now,
                created_at=now,
            )
        )
    return [row.pk for row in HookDelivery.objects.bulk_create(rows)]


def due(*, now: datetime, most: int = MOST_AT_ONCE) -> list[int]:
    """Ids of deliveries that wait for a try, the longest waiting first; of each hook only a few."""
    waiting = HookDelivery.objects.filter(status=HookDelivery.Status.WAITING, next_try_at__lte=now)
    found: list[int] = []
    of_hook: Counter[int] = Counter()
    for pk, hook_id in waiting.order_by("next_try_at", "pk").values_list("pk", "hook_id")[:most]:
        of_hook[hook_id] += 1
        if of_hook[hook_id] <= MOST_OF_A_HOOK:
            found.append(pk)
    return found


def deliver(*, delivery_id: int, now: datetime) -> None:
    """One try, outside transactions. Nothing where it is not due: somebody else has it, or it has ended."""
    held = _claim(delivery_id=delivery_id, now=now)
    if held is None:
        return
    policy, hook = _policy(held.hook), held.hook
    if not hook.enabled:
        return _end(held=held, status=HookDelivery.Status.GIVEN_UP, detail="the hook is switched off", now=now)
    if held.tries > policy.hook_tries:
        detail = "a worker was lost while it sent it for the last time"
        return _end(held=held, status=HookDelivery.Status.GIVEN_UP, detail=detail, now=now)
    answer = hook_http.post(
        url=hook.url,
        secret=hook.secret,
        webhook_id=str(held.uuid),
        payload=held.payload,
        timeout=timeout_of(hook=hook),
        now=now,
    )
    _settle(held=held, answer=answer, now=now)


def timeout_of(*, hook: Hook) -> int:
    """Seconds that the hook may take: its own figure, else the team's."""
    return hook.timeout or _policy(hook).hook_timeout_seconds


def _claim(*, delivery_id: int, now: datetime) -> HookDelivery | None:
    """Take the delivery by compare-and-swap. A claim whose worker dies runs out, and the sweep sends again."""
    row = HookDelivery.objects.select_related("hook__team").filter(pk=delivery_id).first()
    if row is None or row.next_try_at is None or row.next_try_at > now:
        return None
    held_until = now + timedelta(seconds=timeout_of(hook=row.hook)) + CLAIM_MARGIN
    unchanged = HookDelivery.objects.filter(
        pk=row.pk, status=HookDelivery.Status.WAITING, tries=row.tries, next_try_at=row.next_try_at
    )
    row.tries += 1
    return row if unchanged.update(tries=row.tries, next_try_at=held_until) else None


def _settle(*, held: HookDelivery, answer: hook_http.HookAnswer, now: datetime) -> None:
    if not answer.problem:
        return _end(held=held, status=HookDelivery.Status.DELIVERED, detail="", now=now, http_status=answer.status)
    if answer.status == GONE:
        Hook.objects.filter(pk=held.hook_id).update(enabled=False)
    policy = _policy(held.hook)
    if answer.status == GONE or held.tries >= policy.hook_tries:
        status = HookDelivery.Status.GIVEN_UP
        return _end(held=held, status=status, detail=answer.problem, now=now, http_status=answer.status)
    _ours(held).update(
        next_try_at=now + pause_after(tries=held.tries, policy=policy), detail=answer.problem, http_status=answer.status
    )


def pause_after(*, tries: int, policy: Policy) -> timedelta:
    """How long to wait after that many tries."""
    pause = policy.hook_retry_seconds * RETRY_GROWTH ** (tries - 1)
    return timedelta(seconds=min(pause, policy.hook_longest_pause_seconds))


def _policy(hook: Hook) -> Policy:
    return transcripts.effective_policy(team=hook.team).policy


def _ours(held: HookDelivery) -> Any:
    return HookDelivery.objects.filter(pk=held.pk, status=HookDelivery.Status.WAITING, tries=held.tries)


def _end(*, held: HookDelivery, status: str, detail: str, now: datetime, http_status: int | None = None) -> None:
    """End it, unless another worker has taken it meanwhile."""
    _ours(held).update(status=status, next_try_at=None, finished_at=now, detail=detail, http_status=http_status)
