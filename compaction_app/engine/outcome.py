"""How a run can end badly: the expected reasons, used as model choices and as API codes."""

from __future__ import annotations

from enum import StrEnum


class FailureReason(StrEnum):
    """Expected failures. ERROR is the unexpected one: a bug, recorded with its traceback and raised."""

    NOTHING_TO_COMPACT = "nothing_to_compact"
    NO_SUMMARY = "no_summary"
    NOT_SMALLER = "not_smaller"
    INVALID_CONTEXT = "invalid_context"
    STALE_VIEW = "stale_view"
    COMPACTION_DISABLED = "compaction_disabled"
    WORKER_LOST = "worker_lost"
    ERROR = "error"


class CompactionRefused(Exception):
    """Ends a run politely: a reason that code can act on and a sentence that a person can read."""

    def __init__(self, *, reason: FailureReason, detail: str) -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason}: {detail}")


class RunErrored(Exception):
    """A run met a bug. Says where, and never what: the original error may quote the transcript."""


class CompactionCancelled(Exception):
    """Raised from a progress report once the run was cancelled or taken away from this worker."""
