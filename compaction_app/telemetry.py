"""The telemetry events (S18): their names and fields, and nothing else."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from compaction_app.models import CompactionRun, TelemetryEvent
from sessions_app.models import CompactBoundary, Session
from sessions_app.transcript.boundary import Clearing

COMPACT = "tengu_compact"
COMPACT_FAILED = "tengu_compact_failed"
PARTIAL_COMPACT_FAILED = "tengu_partial_compact_failed"
COMPACT_PTL_RETRY = "tengu_compact_ptl_retry"
BOUNDARY_REVERTED = "boundary_reverted"
BOUNDARY_RESTORED = "boundary_restored"
MEMORY_EXTRACTED = "session_memory_extracted"
MEMORY_FAILED = "session_memory_failed"
CANDIDATE_DECIDED = "compact_candidate_decided"
CACHED_MICROCOMPACT = "tengu_cached_microcompact"
TIME_BASED_MICROCOMPACT = "tengu_time_based_microcompact"
BREAKER_OPENED = "breaker_opened"
BREAKER_CLOSED = "breaker_closed"


def emit_compact(*, run: CompactionRun, payload: dict[str, Any], now: datetime) -> TelemetryEvent:
    """A success: tokens before and after, usage of the call, trigger, recompaction."""
    return _emit(name=COMPACT, session=run.session, run=run, payload=payload, now=now)


def emit_compact_failed(*, run: CompactionRun, payload: dict[str, Any], now: datetime) -> TelemetryEvent:
    """A failure: its reason and what there was to compact."""
    return _emit(name=COMPACT_FAILED, session=run.session, run=run, payload=payload, now=now)


def emit_partial_failed(*, run: CompactionRun, payload: dict[str, Any], now: datetime) -> TelemetryEvent:
    """A failure of a part that was asked for by a message: its reason, and the direction (`up_to`, `from`)."""
    return _emit(name=PARTIAL_COMPACT_FAILED, session=run.session, run=run, payload=payload, now=now)


def emit_of_session(*, name: str, session: Session, payload: dict[str, Any], now: datetime) -> TelemetryEvent:
    """What was done with a session outside of a run: one of the names above that belong to no run."""
    return _emit(name=name, session=session, run=None, payload=payload, now=now)


def emit_candidate_decided(*, run: CompactionRun, payload: dict[str, Any], now: datetime) -> TelemetryEvent:
    """Somebody has accepted or rejected a candidate, or it was stale: `decision`, `edited`, `by`."""
    return _emit(name=CANDIDATE_DECIDED, session=run.session, run=run, payload=payload, now=now)


def emit_ptl_retry(*, run: CompactionRun, payload: dict[str, Any], now: datetime) -> TelemetryEvent:
    """A summary request was too long and is made again without its oldest rounds: attempt, dropped, remaining."""
    return _emit(name=COMPACT_PTL_RETRY, session=run.session, run=run, payload=payload, now=now)


def emit_cleared(
    *, boundary: CompactBoundary, session: Session, run: CompactionRun | None, now: datetime
) -> TelemetryEvent:
    """Tool results cleared: their number and ids, what that frees, and who asked."""
    by_edits = boundary.clearing == Clearing.API_EDIT
    payload = {
        "trigger": boundary.trigger,
        "boundary": str(boundary.uuid),
        "count": len(boundary.cleared_results),
        "tool_ids": [result["tool_use_id"] for result in boundary.cleared_results],
        "tokens_freed": sum(result["tokens_freed"] for result in boundary.cleared_results),
        "tokens_before": boundary.tokens_before,
        "tokens_after": boundary.tokens_after,
        "why": boundary.why,
    }
    name = CACHED_MICROCOMPACT if by_edits else TIME_BASED_MICROCOMPACT
    return _emit(name=name, session=session, run=run, payload=payload, now=now)


def emit_breaker_opened(*, session: Session, payload: dict[str, Any], now: datetime) -> TelemetryEvent:
    """Automatic compaction has stopped by itself: what opened the breaker, and the counts that did."""
    return _emit(name=BREAKER_OPENED, session=session, run=None, payload=payload, now=now)


def emit_breaker_closed(*, session: Session, payload: dict[str, Any], now: datetime) -> TelemetryEvent:
    """Automatic compaction may start again: what closed the breaker."""
    return _emit(name=BREAKER_CLOSED, session=session, run=None, payload=payload, now=now)


def _emit(
    *, name: str, session: Session, run: CompactionRun | None, payload: dict[str, Any], now: datetime
) -> TelemetryEvent:
    return TelemetryEvent.objects.create(
        team_id=session.team_id, session=session, run=run, name=name, payload=payload, at=now
    )
