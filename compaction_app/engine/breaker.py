"""When automatic compaction stops by itself, and when it may try again (S10; decision 9)."""

from __future__ import annotations

from enum import StrEnum


class OpenedBy(StrEnum):
    """What opened a breaker: failures in a row, runs in a row that did not help, or a threshold out of reach."""

    FAILURES = "failures"
    INEFFECTIVE = "ineffective"
    UNREACHABLE = "unreachable"
