"""How a run can end badly: the expected reasons, used as model choices and as API codes."""

from __future__ import annotations

from enum import StrEnum


class FailureReason(StrEnum):
    """Expected failures. ERROR is the unexpected one: a bug, recorded with its traceback and raised."""

    NOTHING_TO_COMPACT = "nothing_to_compact"
    NO_SUMMARY = "no_summary"
    TRUNCATED = "truncated"
    REFUSED = "refused"
    PROMPT_TOO_LONG = "prompt_too_long"
    API_ERROR = "api_error"
    REFUSED_BY_HOOK = "refused_by_hook"
    HOOK_FAILED = "hook_failed"
    NOT_SMALLER = "not_smaller"
    INVALID_CONTEXT = "invalid_context"
    STALE_VIEW = "stale_view"
    EXCEEDS_WINDOW = "exceeds_window"
    COMPACTION_DISABLED = "compaction_disabled"
    WORKER_LOST = "worker_lost"
    ERROR = "error"


# The provider's failure, and no fault of the session: the embedded summariser may finish such a run (decision 11).
PROVIDER_FAILURES = frozenset(
    {
        FailureReason.NO_SUMMARY,
        FailureReason.TRUNCATED,
        FailureReason.REFUSED,
        FailureReason.PROMPT_TOO_LONG,
        FailureReason.API_ERROR,
    }
)


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
