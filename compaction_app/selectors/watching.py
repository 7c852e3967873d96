"""Runs as their watchers are told of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from compaction_app.engine.run_state import RunState
from compaction_app.models import FINAL, CompactionRun
from compaction_app.models.runs import RunQuerySet
from sessions_app.models import Team

AT_ONCE = 500  # ids of one statement: below what any database takes as parameters


def run_state(*, team: Team, uuid: UUID) -> RunState | None:
    """The team's run; None where it has none of this id. One query."""
    return next(iter(_states(CompactionRun.objects.for_team(team).filter(uuid=uuid))), None)


def run_states(*, keys: Sequence[int]) -> dict[int, RunState]:
    """The runs of these rows that are still there, whatever their team: each was looked up in its team (`run_state`)
    when somebody began to watch it. One query for each 500."""
    found: dict[int, RunState] = {}
    for begin in range(0, len(keys), AT_ONCE):
        rows = CompactionRun.objects.filter(pk__in=keys[begin : begin + AT_ONCE])
        found |= {state.key: state for state in _states(rows)}
    return found


def _states(rows: RunQuerySet) -> list[RunState]:
    columns = (
        "pk",
        "uuid",
        "status",
        "stage",
        "stages",
        "progress",
        "tokens_streamed",
        "failure_reason",
        "detail",
        "boundary__uuid",
        "tokens_before",
        "tokens_after",
    )
    return [_state(row) for row in rows.values(*columns)]


def _state(row: dict[str, Any]) -> RunState:
    return RunState(
        key=row["pk"],
        run=str(row["uuid"]),
        status=row["status"],
        has_ended=row["status"] in FINAL,
        stage=row["stage"],
        stages=tuple(row["stages"]),
        progress=row["progress"],
        tokens_streamed=row["tokens_streamed"],
        failure_reason=row["failure_reason"] or None,
        detail=row["detail"],
        boundary=str(row["boundary__uuid"]) if row["boundary__uuid"] else None,
        tokens_before=row["tokens_before"],
        tokens_after=row["tokens_after"],
    )
