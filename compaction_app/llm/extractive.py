"""The embedded summariser behind the engine's port: no key, no network, the same text each time."""

from __future__ import annotations

from dataclasses import dataclass

from compaction_app.engine.extractive import summarize
from compaction_app.engine.ports import Progress, SummaryRequest, SummaryResult

NAME = "extractive"
# Of a run's progress, reading comes before and storing after.
FIRST, SHARE = 0.1, 0.75


@dataclass(frozen=True, slots=True)
class ExtractiveSummarizer:
    def summarize(self, *, request: SummaryRequest, progress: Progress) -> SummaryResult:
        def report(fraction: float) -> None:
            progress.report(stage="summarizing", fraction=FIRST + SHARE * fraction)

        return SummaryResult(text=summarize(request=request, progress=report), summarizer=NAME, from_originals=True)
