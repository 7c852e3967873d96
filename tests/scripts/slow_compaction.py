"""A worker process for the kill test: compacts one run with a summariser that takes its time.

Usage: python -m tests.scripts.slow_compaction RUN_ID. Prints "summarizing" once it is in the middle of the work.
"""

from __future__ import annotations

import os
import sys
import time

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "compaction_site.settings")
django.setup()

from compaction_app.engine.ports import Progress, SummaryRequest, SummaryResult  # noqa: E402
from compaction_app.llm import factory  # noqa: E402
from compaction_app.llm.extractive import ExtractiveSummarizer  # noqa: E402
from compaction_app.services import runs  # noqa: E402


class SlowSummarizer(ExtractiveSummarizer):
    def summarize(self, *, request: SummaryRequest, progress: Progress) -> SummaryResult:
        progress.report(stage="summarizing", fraction=0.5)
        print("summarizing", flush=True)
        time.sleep(60)
        return ExtractiveSummarizer.summarize(self, request=request, progress=progress)


factory.SUMMARIZERS["extractive"] = SlowSummarizer

if __name__ == "__main__":
    runs.execute(run_id=int(sys.argv[1]))
