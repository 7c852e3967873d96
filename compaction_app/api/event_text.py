"""Events of a run as text (server-sent events). Pure: a run's state and what the client has seen give what to send.

The id of an event says what its client has seen then, so that one that comes again with it is told the rest.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from compaction_app.engine.run_state import RunState

MEDIA_TYPE = "text/event-stream"
HEARTBEAT = b": still there\n\n"
LAST = "done"  # id of the last event
_ID = re.compile(r"(\d{1,6})\.(\d{1,4})\.(\d{1,10})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a client has been told: how many stages, how far (per mille), how many tokens, and whether the end."""

    stages: int = 0
    per_mille: int = 0
    tokens: int = 0
    end: bool = False

    @property
    def id(self) -> str:
        return LAST if self.end else f"{self.stages}.{self.per_mille}.{self.tokens}"


def seen_by(*, last_event_id: str) -> Seen:
    """What a client has seen whose last event had this id. One that we never gave counts for nothing: whoever sends it
    is told all from the beginning."""
    text = last_event_id.strip()
    if text == LAST:
        return Seen(end=True)
    found = _ID.fullmatch(text)
    if found is None:
        return Seen()
    stages, per_mille, tokens = (int(number) for number in found.groups())
    return Seen(stages=stages, per_mille=per_mille, tokens=tokens)


def opening(*, retry_seconds: float) -> bytes:
    """The first line of a stream: when to come again after it has broken."""
    return f"retry: {round(retry_seconds * 1_000)}\n\n".encode()


def events_of(*, state: RunState, seen: Seen) -> tuple[bytes, Seen]:
    """What is new in `state` for a client that has seen `seen`, and what it has seen then. Nothing where nothing is."""
    told = b""
    for stage in state.stages[seen.stages :]:
        seen = replace(seen, stages=seen.stages + 1, per_mille=_per_mille(stage["progress"]))
        told += _event("stage", seen, {name: stage[name] for name in ("stage", "at", "attempt", "progress")})
    if state.has_ended:
        seen = replace(seen, end=True)
        return told + _event("done", seen, _end(state)), seen
    now = replace(seen, per_mille=_per_mille(state.progress), tokens=state.tokens_streamed)
    if now == seen:
        return told, seen
    data = {"progress": state.progress, "stage": state.stage, "tokens_streamed": state.tokens_streamed}
    return told + _event("progress", now, data), now


def _end(state: RunState) -> dict[str, Any]:
    return {
        "run": state.run,
        "status": state.status,
        "failure_reason": state.failure_reason,
        "detail": state.detail,
        "boundary": state.boundary,
        "tokens_before": state.tokens_before,
        "tokens_after": state.tokens_after,
    }


def _per_mille(progress: float) -> int:
    return round(progress * 1_000)


def _event(name: str, seen: Seen, data: dict[str, Any]) -> bytes:
    # ASCII with escapes: no text of anybody's can end the line, and no lone surrogate breaks the encoding.
    return f"id: {seen.id}\nevent: {name}\ndata: {json.dumps(data)}\n\n".encode("ascii")
