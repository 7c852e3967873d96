"""How full the window is: thresholds and levels, in tokens (S8, S9; decisions 2 and 3)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sessions_app.catalog import ModelInfo
from sessions_app.policy import Policy


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    AUTO_COMPACT = "auto_compact"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Window:
    """Thresholds of one session, in tokens; `auto_compact_bytes`: of what a request's messages hold, in bytes."""

    context_window: int
    effective_window: int
    warning_threshold: int
    error_threshold: int
    auto_compact_threshold: int
    auto_compact_bytes: int


@dataclass(frozen=True, slots=True)
class WarningState:
    """`percent_left`: share of the automatic threshold that is still free, 0 to 100."""

    level: Level
    percent_left: int


def window_of(*, policy: Policy, model: ModelInfo) -> Window:
    """effective = window - min(model's longest output, 20,000); each threshold a buffer below it.

    On windows of about 33,000 tokens and less the source's formulas go to zero and under; no threshold falls below
    a share of the effective window. A percentage override only lowers the automatic threshold.
    """
    size = policy.context_window or model.context_window
    reserve = min(model.max_output_tokens, policy.summary_output_tokens)
    effective = max(size - reserve, int(size * policy.smallest_effective_share))
    floor = int(effective * policy.smallest_threshold_share)

    def below(buffer: int) -> int:
        return max(effective - buffer, floor)

    auto = below(policy.auto_compact_buffer_tokens)
    if policy.auto_compact_pct:
        auto = min(auto, effective * policy.auto_compact_pct // 100)
    return Window(
        context_window=size,
        effective_window=effective,
        warning_threshold=min(below(policy.warning_buffer_tokens), auto),
        error_threshold=min(below(policy.error_buffer_tokens), auto),
        auto_compact_threshold=auto,
        auto_compact_bytes=policy.auto_compact_bytes,
    )


def warning_state(
    *, window: Window, context_tokens: int, overhead_tokens: int = 0, context_bytes: int = 0
) -> WarningState:
    """The level of a context. UNREACHABLE when system prompt and tools alone exceed the automatic threshold.

    A request has two limits, tokens and bytes (decision 13): media may fill the second long before the first.
    """
    threshold = window.auto_compact_threshold
    left = max(0, min(100, round(100 * (threshold - context_tokens) / threshold))) if threshold > 0 else 0
    if overhead_tokens >= threshold:
        return WarningState(level=Level.UNREACHABLE, percent_left=left)
    if context_tokens >= threshold or context_bytes >= window.auto_compact_bytes:
        return WarningState(level=Level.AUTO_COMPACT, percent_left=left)
    if context_tokens >= window.error_threshold:
        return WarningState(level=Level.ERROR, percent_left=left)
    if context_tokens >= window.warning_threshold:
        return WarningState(level=Level.WARNING, percent_left=left)
    return WarningState(level=Level.OK, percent_left=left)
