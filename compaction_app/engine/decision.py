"""Whether compaction starts by itself, and what is said about it: one decision after each appended message."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """What was decided near a threshold. REQUESTED: a run was queued; APPLIED: a light link cleared something; the
    others say why nothing was done."""

    REQUESTED = "requested"
    APPLIED = "applied"
    BELOW_THRESHOLD = "below_threshold"
    NO_ASSISTANT_MESSAGE = "no_assistant_message"
    COMPACTION_DISABLED = "compaction_disabled"
    AUTO_COMPACT_DISABLED = "auto_compact_disabled"
    UNREACHABLE = "unreachable"
    BREAKER_OPEN = "breaker_open"
    ACTIVE_RUN = "active_run"
    NOTHING_TO_COMPACT = "nothing_to_compact"
    NOTHING_TO_CLEAR = "nothing_to_clear"
    ERROR = "error"
