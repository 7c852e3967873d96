"""All that a link may ask of the outside: somebody who writes a summary, and somewhere to report progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sessions_app.catalog import TokenizerFamily
from sessions_app.policy import Policy
from sessions_app.transcript.messages import Message


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """What a summary is wanted of. `history`: originals of all that it replaces, oldest first; `tail`: what stays
    verbatim after it; `budget_tokens`: most that the text may take."""

    history: Sequence[Message]
    tail: Sequence[Message]
    budget_tokens: int
    family: TokenizerFamily
    policy: Policy
    instructions: str = ""


@dataclass(frozen=True, slots=True)
class SummaryResult:
    """The text, who wrote it, and what the call used (`usage`, as the API tells it; empty without a call)."""

    text: str
    summarizer: str
    usage: Mapping[str, Any] = field(default_factory=dict)


class Progress(Protocol):
    def report(self, *, stage: str, fraction: float) -> None:
        """Say how far the work is, 0 to 1. Raises CompactionCancelled when it should stop."""


class Summarizer(Protocol):
    def summarize(self, *, request: SummaryRequest, progress: Progress) -> SummaryResult:
        """The nine-section summary. Raises CompactionRefused with the reason when there is none to be had."""
