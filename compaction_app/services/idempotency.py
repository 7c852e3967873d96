"""Calls that carry a key, so that the same call sent again is answered and not done again.

A key is held by one call at a time, whose row says so until it has an answer. What the call makes is noted in the
transaction that makes it: whoever takes the key over from a server that went away finds either that, or nothing done.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction

from compaction_app.models import IdempotentCall
from sessions_app.models import Team
from sessions_app.policy import Policy

# Each round somebody else has changed the row in between; three times in a row is nobody's normal day.
ROUNDS = 3


class KeyConflict(Exception):
    """The key was sent before, with another call."""

    def __init__(self) -> None:
        super().__init__("This Idempotency-Key was sent with another call before: another body, address or method.")


class CallInProgress(Exception):
    """The first call with the key is not answered yet. `retry_after`: seconds."""

    def __init__(self) -> None:
        self.retry_after = Policy().idempotency_retry_seconds
        super().__init__("The first call with this Idempotency-Key is not answered yet.")


@dataclass(frozen=True, slots=True)
class HeldCall:
    """A call that holds its key. `subject`: what an earlier try of it has made, by uuid; it is not to be made again."""

    row: int
    holder: uuid.UUID
    subject: uuid.UUID | None = None


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    status: int
    body: Any


def take(*, team: Team, key: str, digest: str, now: datetime) -> HeldCall | KeptAnswer:
    """The answer that this call was given before, or the right to do it. `digest`: of all that makes it the same call.

    Raises KeyConflict, CallInProgress.
    """
    for _ in range(ROUNDS):
        row = IdempotentCall.objects.filter(team=team, key=key).first()
        if row is None:
            taken = _insert(team=team, key=key, digest=digest, now=now)
        elif row.created_at <= _oldest_kept(now):
            taken = _replace(row=row, digest=digest, now=now)
        elif row.digest != digest:
            raise KeyConflict
        elif row.status is not None:
            return KeptAnswer(status=row.status, body=row.answer)
        elif row.held_at > _oldest_held(now):
            raise CallInProgress
        else:
            taken = _take_over(row=row, now=now)
        if taken is not None:
            return taken
    raise CallInProgress


def note(*, call: HeldCall, subject: uuid.UUID) -> None:
    """Say what the call has made, within the transaction that makes it. Raises CallInProgress where somebody has taken
    the key over, who does it now."""
    if not _held(call).update(subject=subject):
        raise CallInProgress


def keep(*, call: HeldCall, status: int, body: Any) -> None:
    """Keep the answer. `body`: as JSON has it."""
    _held(call).update(status=status, answer=body)


def free(*, call: HeldCall) -> None:
    """Nothing came of the call: the key may be sent again, with it or with another."""
    _held(call).delete()


def hand_back(*, call: HeldCall, now: datetime) -> None:
    """The call broke off. What it has made, if anything, is what the next call with the key is answered with."""
    if not _held(call).filter(subject__isnull=True).delete()[0]:
        _held(call).update(held_at=_oldest_held(now))


def purge(*, now: datetime) -> int:
    """Delete answers that are kept for long enough, a bounded number; how many."""
    old = IdempotentCall.objects.filter(created_at__lte=_oldest_kept(now))
    ids = list(old.order_by("created_at").values_list("pk", flat=True)[: Policy().idempotency_purge_rows])
    return old.filter(pk__in=ids).delete()[0] if ids else 0


def _oldest_kept(now: datetime) -> datetime:
    return now - timedelta(hours=Policy().idempotency_hours)


def _oldest_held(now: datetime) -> datetime:
    return now - timedelta(seconds=Policy().idempotency_lost_seconds)


def _held(call: HeldCall) -> Any:
    return IdempotentCall.objects.filter(pk=call.row, holder=call.holder)


def _insert(*, team: Team, key: str, digest: str, now: datetime) -> HeldCall | None:
    """None where somebody was faster."""
    try:
        with transaction.atomic():
            row = IdempotentCall.objects.create(team=team, key=key, digest=digest, created_at=now, held_at=now)
    except IntegrityError:
        return None
    return HeldCall(row=row.pk, holder=row.holder)


def _replace(*, row: IdempotentCall, digest: str, now: datetime) -> HeldCall | None:
    """Use a row whose time is over as if it weren't there. None where somebody was faster."""
    fresh = HeldCall(row=row.pk, holder=uuid.uuid4())
    done = IdempotentCall.objects.filter(pk=row.pk, holder=row.holder).update(
        holder=fresh.holder, digest=digest, subject=None, status=None, answer=None, created_at=now, held_at=now
    )
    return fresh if done else None


def _take_over(*, row: IdempotentCall, now: datetime) -> HeldCall | None:
    """Go on with what a server left that went away. None where it has answered after all, or somebody was faster."""
    holder = uuid.uuid4()
    silent = IdempotentCall.objects.filter(pk=row.pk, holder=row.holder, status__isnull=True)
    if not silent.update(holder=holder, held_at=now):
        return None
    # Read anew: until now the other one could note something.
    subject = IdempotentCall.objects.values_list("subject", flat=True).get(pk=row.pk)
    return HeldCall(row=row.pk, holder=holder, subject=subject)
