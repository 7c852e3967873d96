"""State that is restored after a compaction (S15): plan mode, the plan, files, skills, and what the client can do.

What the client has told comes first, then the history. Nothing is repeated that the kept tail shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compaction_app.engine.attachments.calls import Call, calls_of
from compaction_app.engine.attachments.deltas import delta_attachments
from compaction_app.engine.attachments.files import file_attachments
from compaction_app.engine.attachments.fitting import Purse
from compaction_app.engine.attachments.plan import plan_attachment, plan_mode_attachment
from compaction_app.engine.attachments.skills import skill_attachments
from compaction_app.engine.client_state import StateValue
from sessions_app.catalog import TokenizerFamily
from sessions_app.policy import Policy
from sessions_app.transcript.boundary import AttachmentValue
from sessions_app.transcript.messages import Message

__all__ = ["restore_attachments"]


def restore_attachments(
    *,
    history: Sequence[Message],
    tail: Sequence[Message],
    state: StateValue | None = None,
    policy: Policy,
    family: TokenizerFamily,
    room_tokens: int,
) -> tuple[AttachmentValue, ...]:
    """What to restore, in the order in which it is shown: plan mode, plan, files, skills, deltas.

    `history`: messages before the kept `tail`, oldest first; they may have gaps. `tail`: all that stays verbatim, so an
    older round that waits for a person too; it may be in the history as well. `state`: as of the boundary; None where
    the client has told nothing. `room_tokens`: most that all attachments together may take.
    """
    calls = calls_of(history=history, tail=tail)
    purse = Purse(room_tokens, family)
    state = state or StateValue()
    return tuple(_found(calls=calls, history=history, tail=tail, state=state, policy=policy, purse=purse))


def _found(
    *,
    calls: Sequence[Call],
    history: Sequence[Message],
    tail: Sequence[Message],
    state: StateValue,
    policy: Policy,
    purse: Purse,
) -> Iterator[AttachmentValue]:
    yield from plan_mode_attachment(state=state, purse=purse)
    yield from plan_attachment(calls=calls, state=state, policy=policy, purse=purse)
    yield from file_attachments(calls=calls, state=state, policy=policy, purse=purse)
    yield from skill_attachments(calls=calls, history=history, tail=tail, state=state, policy=policy, purse=purse)
    yield from delta_attachments(calls=calls, tail=tail, state=state, policy=policy, purse=purse)
