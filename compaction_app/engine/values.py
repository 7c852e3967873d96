"""What the links of the chain are told, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from compaction_app.engine.outcome import FailureReason
from compaction_app.engine.ports import Progress, Summarizer
from sessions_app.catalog import TokenizerFamily
from sessions_app.policy import Policy
from sessions_app.transcript.boundary import BoundaryDraft
from sessions_app.transcript.messages import Message
from sessions_app.transcript.view import ContextView


class Trigger(StrEnum):
    """What asked for compaction."""

    MANUAL = "manual"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Step:
    """What a link did, or why it passed, in words with figures.

    `draft`: the boundary that it proposes, None when it passed; then `reason` says what a run that ends here failed of.
    Tokens are of the whole context.
    """

    why: str
    tokens_before: int
    tokens_after: int
    draft: BoundaryDraft | None = None
    reason: FailureReason | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Situation:
    """All that a link may know. `tokens`: the whole context with `overhead_tokens` for system prompt and tools.

    `originals(up_to)`: the stored messages of the live path at positions 1..up_to, oldest first, so that a summary is
    made from the history itself and never from an earlier summary.
    """

    view: ContextView
    tokens: int
    overhead_tokens: int
    last_position: int
    policy: Policy
    family: TokenizerFamily
    trigger: Trigger
    now: datetime
    originals: Callable[[int], Sequence[Message]]
    summarizer: Summarizer
    progress: Progress
    instructions: str = ""
    draft: BoundaryDraft | None = None

    def after(self, step: Step) -> Situation:
        """The situation once a step's proposal is taken in."""
        return replace(self, tokens=step.tokens_after, draft=step.draft or self.draft)
