"""Calls that carry a key: answered again, not done again."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from compaction_app.services import idempotency
from compaction_app.services.idempotency import HeldCall, KeptAnswer
from sessions_app.models import Team


def take_call(*, team: Team, key: str, digest: str, now: datetime) -> HeldCall | KeptAnswer:
    """The answer that the call with this key was given before, or the right to do it now. `digest`: of all that makes
    it the same call. Raises KeyConflict, CallInProgress."""
    return idempotency.take(team=team, key=key, digest=digest, now=now)


def keep_answer(*, call: HeldCall, status: int, body: Any) -> None:
    """Keep what the call is answered with. `body`: as JSON has it."""
    idempotency.keep(call=call, status=status, body=body)


def free_key(*, call: HeldCall) -> None:
    """The call was refused: its key may be sent again."""
    idempotency.free(call=call)


def hand_back_call(*, call: HeldCall, now: datetime) -> None:
    """The call broke off: the next one with its key goes on from what it has made, if anything."""
    idempotency.hand_back(call=call, now=now)
