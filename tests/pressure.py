"""Sessions that are nearly full with a handful of messages, and summarisers that fail."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from compaction_app import actions
from compaction_app.engine.breaker import BreakerState
from compaction_app.engine.outcome import CompactionRefused, FailureReason
from compaction_app.engine.ports import Progress, SummaryRequest, SummaryResult
from compaction_app.models import CompactionRun, CompactionState
from compaction_app.selectors import breaker_value
from compaction_app.services import runs
from sessions_app.models import Session, Team
from tests.factories import NOW, append, assistant, make_session, turns

# Thresholds at 8,000 (warning), 9,000 (error) and 10,000 tokens (automatic); no light link, which would help by itself.
FIGURES: dict[str, Any] = {
    "context_window": 12_000,
    "summary_output_tokens": 0,
    "warning_buffer_tokens": 4_000,
    "error_buffer_tokens": 3_000,
    "auto_compact_buffer_tokens": 2_000,
    "time_based_enabled": False,
    "cache_edits_enabled": False,
}
TURNS_BELOW = 22  # of tests/factories.py: 9,992 tokens


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now

    def move(self, **by: float) -> datetime:
        self.now += timedelta(**by)
        return self.now


class FailingSummarizer:
    def summarize(self, *, request: SummaryRequest, progress: Progress) -> SummaryResult:
        raise CompactionRefused(reason=FailureReason.NO_SUMMARY, detail="nobody writes")


def almost_full(team: Team | None = None, **figures: Any) -> Session:
    """A session just below its automatic threshold."""
    session = make_session(team, policy_overrides={**FIGURES, **figures})
    append(session, *turns(TURNS_BELOW))
    assert session.level == "error"
    return session


def answer(session: Session, content: Any = "and so on " * 20, *, now: datetime = NOW, **more: Any) -> actions.Turn:
    """One more response of the model, as a client appends it; about fifty tokens."""
    turn = actions.append_turn(session=session, incoming=[assistant(content, **more)], now=now)
    session.refresh_from_db()
    return turn


def execute(run: CompactionRun | None) -> CompactionRun:
    assert run is not None
    done = runs.execute(run_id=run.pk)
    assert done is not None
    return done


def failed_ever() -> bool:
    """Whether anything is remembered of the breaker of any session. A row may be there for the session's memory."""
    return any(breaker_value(row=row) != BreakerState() for row in CompactionState.objects.all())
