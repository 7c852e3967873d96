"""What a run has come to, stage by stage: kept on its row, so that whoever watches late misses none.

A stage that is told twice in a row is one. Entries are only ever added, so that a watcher can count what it has seen.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from compaction_app.models import CompactionRun
from sessions_app.policy import Policy

QUEUED, STARTING, DONE = "queued", "starting", "done"


def came_to(
    *, run: CompactionRun, stage: str, now: datetime, progress: float | None = None, attempt: int | None = None
) -> dict[str, Any]:
    """The columns of a run that comes to a stage, for the update that brings it there.

    `run`: as its row is. `progress`, `attempt`: where they change with it.
    """
    at = run.progress if progress is None else round(progress, 3)
    number = run.attempt if attempt is None else attempt
    told: dict[str, Any] = {"stage": stage, "progress": at}
    entry = {"stage": stage, "at": now.isoformat(), "attempt": number, "progress": at}
    last = run.stages[-1] if run.stages else {}
    is_new = (last.get("stage"), last.get("attempt")) != (stage, number)
    if is_new and len(run.stages) < Policy().run_stages:
        told["stages"] = [*run.stages, entry]
    return told
