"""What is asked of the outside: somebody who writes a summary, somewhere to report progress, somebody who counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from sessions_app.catalog import TokenizerFamily
from sessions_app.policy import Policy
from sessions_app.transcript.messages import Message
from sessions_app.transcript.request import MessagesRequest


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


class Silent:
    """Progress that nobody watches."""

    def report(self, *, stage: str, fraction: float) -> None:
        pass


class ProviderProblem(StrEnum):
    """Why a call to the provider gave nothing."""

    CREDENTIALS = "credentials"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    TOO_LARGE = "too_large"
    REFUSED = "refused"
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    UNREADABLE = "unreadable"


class ProviderError(Exception):
    """A call to the provider gave nothing. `status`: of HTTP, None where there was no answer.

    The text holds neither key nor content: a provider's own message may quote the transcript.
    """

    def __init__(self, *, problem: ProviderProblem, status: int | None = None, request_id: str = "") -> None:
        self.problem, self.status, self.request_id = problem, status, request_id
        told = [problem.value, f"HTTP {status}" if status else "", f"request {request_id}" if request_id else ""]
        super().__init__(", ".join(part for part in told if part))


class TokenCounter(Protocol):
    def count(self, *, model: str, request: MessagesRequest) -> int:
        """Size of the whole context, system prompt and tools with it, in tokens. Raises ProviderError."""


class Summarizer(Protocol):
    def summarize(self, *, request: SummaryRequest, progress: Progress) -> SummaryResult:
        """The nine-section summary. Raises CompactionRefused with the reason when there is none to be had."""
