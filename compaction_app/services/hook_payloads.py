"""What a hook is told: ids, figures and reasons. No transcript, no summary: addresses in the API stand for them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from compaction_app.models import CompactionRun
from compaction_app.services.hook_answers import plain
from sessions_app.models import Session

API = "/api/v1/"
TEXT_CHARS = 500  # of each text
# What of an event's payload is told; whatever else is in it is not.
TOLD = (
    "trigger",
    "kind",
    "tokens_before",
    "tokens_after",
    "reason",
    "detail",
    "opened_by",
    "opened_at",
    "consecutive_failures",
    "consecutive_ineffective",
    "last_failure",
    "context_tokens",
)


def envelope(*, event: str, webhook_id: uuid.UUID, data: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The body of a request, in the shape that Standard Webhooks suggests."""
    return {"type": str(event), "id": str(webhook_id), "timestamp": now.isoformat(), "data": dict(data)}


def subject(*, session: Session, run: CompactionRun | None) -> dict[str, Any]:
    """Whom an event is about. `session` with its team."""
    return {
        "team": session.team.slug,
        "session": {
            "id": str(session.uuid),
            "external_id": session.external_id,
            "title": session.title,
            "url": f"{API}sessions/{session.uuid}/",
        },
        "run": {"id": str(run.uuid), "url": f"{API}runs/{run.uuid}/"} if run else None,
    }


def event_data(*, session: Session, run: CompactionRun | None, payload: Mapping[str, Any]) -> dict[str, Any]:
    """What is told of something that has happened."""
    boundary = payload.get("boundary")
    return {
        **subject(session=session, run=run),
        **({"trigger": str(run.trigger)} if run else {}),
        "boundary": {"id": str(boundary), "url": f"{API}boundaries/{boundary}/"} if boundary else None,
        **{name: _scalar(payload[name]) for name in TOLD if name in payload},
    }


def question_data(
    *, session: Session, run: CompactionRun | None, trigger: str, tokens: int, instructions: str, most_chars: int
) -> dict[str, Any]:
    """What a pre_compact hook is asked with. `instructions`: of whoever asked for the compaction."""
    return {
        **subject(session=session, run=run),
        "trigger": str(trigger),
        "tokens_before": tokens,
        "instructions": plain(instructions, most=most_chars),
    }


def _scalar(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    return plain(str(value), most=TEXT_CHARS)
