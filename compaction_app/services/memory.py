"""The memory of a session (S6): given by its client, or extracted in the background as the session grows."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction

from compaction_app import selectors, telemetry
from compaction_app.engine.decision import switched_off
from compaction_app.engine.model_summary.calls import CallRecord
from compaction_app.engine.offer import summary_request
from compaction_app.engine.outcome import CompactionRefused
from compaction_app.engine.ports import Silent, SummaryResult
from compaction_app.engine.segment import Segment, whole_segment
from compaction_app.engine.values import Trigger
from compaction_app.llm.factory import Outside, as_text, make_summarizer, summarizer_name
from compaction_app.models import CompactionState, SessionMemory
from compaction_app.services.situations import situation_as_found
from sessions_app import selectors as transcripts
from sessions_app.catalog import tokenizer_family
from sessions_app.models import Message, Session
from sessions_app.policy import Policy
from sessions_app.services.append import lock_session
from sessions_app.transcript.messages import MessageKind
from sessions_app.transcript.tokens import estimate_text
from sessions_app.transcript.view import ContextView

logger = logging.getLogger(__name__)


class MemoryRefused(Exception):
    """What a memory is said to cover can't be covered: `code` for programs, the message for people."""

    def __init__(self, *, code: str, detail: str) -> None:
        self.code = code
        super().__init__(detail)


def put_memory(*, session: Session, content: str, covers: str, now: datetime) -> SessionMemory:
    """Keep the client's document in the place of what was there. `covers`: uuid of the last message that it covers, ""
    for the newest. Raises MemoryRefused: unknown_uuid, not_on_live_path, no_messages."""
    with transaction.atomic():
        locked = lock_session(session_id=session.pk)
        message = _covered(session=locked, covers=covers)
        row = _store(
            session=locked,
            values={
                "content": content,
                "covers_uuid": message.uuid,
                "covers_position": message.position,
                "source": SessionMemory.Source.CLIENT,
                "summarizer": "",
                "model": "",
                "generation": 1,
                "tokens": estimate_text(text=content, family=tokenizer_family(locked.model)) if content else 0,
                "updated_at": now,
            },
        )
        _note_written(session=locked)
    return row


def _covered(*, session: Session, covers: str) -> Message:
    live = Message.objects.filter(
        session=session, left_path_at__isnull=True, is_sidechain=False, kind=MessageKind.NORMAL
    )
    if not covers:
        newest = live.order_by("-position").only("uuid", "position").first()
        if newest is None:
            raise MemoryRefused(code="no_messages", detail="The session has no message that a memory could cover.")
        return newest
    found = live.filter(uuid=covers).only("uuid", "position").first()
    if found is not None:
        return found
    if Message.objects.filter(session=session, uuid=covers).exists():
        raise MemoryRefused(
            code="not_on_live_path", detail="This message is not part of the conversation as it goes on."
        )
    raise MemoryRefused(code="unknown_uuid", detail="This session has no message with this uuid.")


def _store(*, session: Session, values: dict[str, Any]) -> SessionMemory:
    row, _ = SessionMemory.objects.update_or_create(session=session, defaults=values)
    return row


def _note_written(*, session: Session) -> None:
    """The next extraction counts from here. The caller holds the session's lock."""
    values = {
        "memory_at_tokens": session.appended_tokens,
        "memory_at_calls": session.appended_calls,
        "memory_asked_at": None,
    }
    CompactionState.objects.update_or_create(session=session, defaults=values)


def is_due(*, session: Session, now: datetime) -> bool:
    """Whether enough was appended since a memory was last written. From columns: no query where the session's state is
    loaded, else one."""
    resolved = transcripts.effective_policy(team=session.team, session=session)
    policy = resolved.policy
    if (
        not policy.memory_extraction
        or not policy.memory_enabled
        or session.appended_tokens < policy.memory_first_tokens
    ):
        return False
    if switched_off(resolved=resolved, automatic=True):
        return False
    row = getattr(session, "compaction_state", None)
    if row is None:
        return True
    if row.is_extracting(now=now, policy=policy):
        return False
    if not row.memory_at_tokens:
        return True
    return (
        session.appended_tokens - row.memory_at_tokens >= policy.memory_step_tokens
        and session.appended_calls - row.memory_at_calls >= policy.memory_step_calls
    )


def ask(*, session: Session, now: datetime) -> bool:
    """Note that an extraction is handed out; False where it is not due any more, or a client keeps the memory."""
    with transaction.atomic():
        locked = lock_session(session_id=session.pk)
        if not is_due(session=locked, now=now):
            return False
        kept = selectors.memory(session=locked)
        if kept is not None and kept.is_kept_by_client:
            _note_written(session=locked)
            return False
        CompactionState.objects.update_or_create(session=locked, defaults={"memory_asked_at": now})
    return True


@dataclass(slots=True)
class _Calls:
    """The calls of an extraction, which belong to no run."""

    made: list[CallRecord] = field(default_factory=list)

    def record(self, *, call: CallRecord) -> None:
        self.made.append(call)

    def told(self) -> dict[str, Any]:
        costs = [call.cost_usd for call in self.made if call.cost_usd is not None]
        return {
            "calls": len(self.made),
            "usage": [dict(call.usage) for call in self.made if call.usage],
            "cost_usd": str(sum(costs)) if costs else None,
            "model": self.made[-1].model if self.made else "",
        }


def extract(*, session_id: int, now: datetime) -> SessionMemory | None:
    """Have the configured summariser write the memory. None where there is nothing to cover, where it failed, or where
    what it was made of changed meanwhile. No transaction is open while a model is called."""
    session = Session.objects.select_related("team").get(pk=session_id)
    policy = transcripts.effective_policy(team=session.team, session=session).policy
    view = transcripts.context_view(session=session)
    behind = view.boundary.covers_to if view.boundary else 0
    segment = whole_segment(messages=view.messages, tail_tokens=0, waiting_tokens=0, behind=behind)
    calls = _Calls()
    if segment is None or not segment.compacted:
        _give_up(session=session, reason="nothing_to_compact", calls=calls, now=now, told=False)
        return None
    try:
        result = _written(session=session, view=view, segment=segment, policy=policy, calls=calls, now=now)
    except CompactionRefused as refused:
        _give_up(session=session, reason=refused.reason.value, calls=calls, now=now)
        return None
    except Exception:
        _give_up(session=session, reason="error", calls=calls, now=now)
        raise
    chain = view.boundary.chain if view.boundary else ()
    generation = 1 if result.from_originals else 1 + max((one.generation for one in chain), default=0)
    return _keep(session=session, segment=segment, result=result, generation=generation, calls=calls, now=now)


def _written(
    *, session: Session, view: ContextView, segment: Segment, policy: Policy, calls: _Calls, now: datetime
) -> SummaryResult:
    name = summarizer_name(setting=settings.COMPACTION_SUMMARIZER, key_set=settings.ANTHROPIC_KEY_SET)
    summarizer = make_summarizer(
        name=as_text(name=name),
        outside=Outside(
            calls=calls,
            override_model=settings.COMPACTION_MODEL,
            limits_of=lambda model: transcripts.model_limits(model=model),
            now=lambda: now,
        ),
    )
    situation = situation_as_found(session=session, view=view, policy=policy, trigger=Trigger.AUTO)
    request = summary_request(situation=situation, segment=segment, budget_tokens=policy.memory_tokens)
    return summarizer.summarize(request=request, progress=Silent())


def _keep(
    *,
    session: Session,
    segment: Segment,
    result: SummaryResult,
    generation: int,
    calls: _Calls,
    now: datetime,
) -> SessionMemory | None:
    covered = segment.compacted[-1]
    with transaction.atomic():
        locked = lock_session(session_id=session.pk)
        _note_written(session=locked)
        live = Message.objects.filter(session=locked, position=covered.position, left_path_at__isnull=True)
        before = selectors.memory(session=locked)
        newer = before is not None and before.covers_position > covered.position
        if (before is not None and before.is_kept_by_client) or newer or not live.exists():
            return None
        row = _store(
            session=locked,
            values={
                "content": result.text,
                "covers_uuid": covered.uuid,
                "covers_position": covered.position,
                "source": SessionMemory.Source.EXTRACTED,
                "summarizer": result.summarizer,
                "model": result.model,
                "generation": generation,
                "tokens": estimate_text(text=result.text, family=tokenizer_family(locked.model)),
                "updated_at": now,
            },
        )
        payload = {
            "tokens": row.tokens,
            "covers_position": row.covers_position,
            "summarizer": row.summarizer,
            "generation": generation,
            **calls.told(),
        }
        telemetry.emit_of_session(name=telemetry.MEMORY_EXTRACTED, session=locked, payload=payload, now=now)
    return row


def _give_up(*, session: Session, reason: str, calls: _Calls, now: datetime, told: bool = True) -> None:
    """No try before the next step."""
    with transaction.atomic():
        locked = lock_session(session_id=session.pk)
        _note_written(session=locked)
        if told:
            payload = {"reason": reason, **calls.told()}
            telemetry.emit_of_session(name=telemetry.MEMORY_FAILED, session=locked, payload=payload, now=now)
