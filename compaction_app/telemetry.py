"""The telemetry events (S18): their names and fields, and nothing else."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from compaction_app.models import CompactionRun, TelemetryEvent

COMPACT = "tengu_compact"
COMPACT_FAILED = "tengu_compact_failed"


def emit_compact(*, run: CompactionRun, payload: dict[str, Any], now: datetime) -> TelemetryEvent:
    """A success: tokens before and after, usage of the call, trigger, recompaction."""
    return _emit(name=COMPACT, run=run, payload=payload, now=now)


def emit_compact_failed(*, run: CompactionRun, payload: dict[str, Any], now: datetime) -> TelemetryEvent:
    """A failure: its reason and what there was to compact."""
    return _emit(name=COMPACT_FAILED, run=run, payload=payload, now=now)


def _emit(*, name: str, run: CompactionRun, payload: dict[str, Any], now: datetime) -> TelemetryEvent:
    return TelemetryEvent.objects.create(
        team_id=run.session.team_id, session_id=run.session_id, run=run, name=name, payload=payload, at=now
    )
