"""What is kept of each call of a model: how it was asked, what had to go so that it fits, what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Protocol

OK = "ok"
STOPPED = "stopped"  # the run was cancelled, or taken away, while it waited


class Way(StrEnum):
    """How the summary is asked for.

    CACHED_PREFIX: the conversation as its client sends it, one user message behind it (S17). STANDALONE: a small
    request of its own that holds the conversation as text. NATIVE: the provider's own compaction of the conversation.
    """

    CACHED_PREFIX = "cached_prefix"
    STANDALONE = "standalone"
    NATIVE = "native"


@dataclass(frozen=True, slots=True)
class PromptCut:
    """What had to go so that a request fits (S16), all cuts together.

    `retry`: 1 to 3 for a request that was refused; 0 where the estimate alone told before the first call. Groups are
    API rounds; tokens are estimates as they are billed. `gap_tokens`: as the provider named it, None where it did not.
    `media`: images and documents that went, for a body that was too large.
    """

    retry: int
    dropped_groups: int
    remaining_groups: int
    dropped_tokens: int
    remaining_tokens: int
    gap_tokens: int | None = None
    media: int = 0

    @property
    def preflight(self) -> bool:
        return self.retry == 0


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One request and its end. `outcome`: OK, STOPPED, a FailureReason, or a ProviderProblem; `detail`: in words.

    `cut`: None where the request was whole; `is_new_cut`: made for this call. Costs in USD by the policy's price table,
    with and without any cache; None for a model that has no price. `said`: what the model said where that was not taken
    as a summary; "" else.
    """

    way: Way
    model: str
    prompt_version: str
    started_at: datetime
    seconds: float
    request_tokens: int
    request_bytes: int
    outcome: str
    detail: str = ""
    cut: PromptCut | None = None
    is_new_cut: bool = False
    status: int | None = None
    request_id: str = ""
    response_id: str = ""
    stop_reason: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)
    cost_usd: Decimal | None = None
    cost_uncached_usd: Decimal | None = None
    said: str = ""


class CallBook(Protocol):
    def record(self, *, call: CallRecord) -> None:
        """Keep a call that has ended; with a new cut, tell of it too (tengu_compact_ptl_retry)."""


class NoBook:
    """Keeps nothing."""

    def record(self, *, call: CallRecord) -> None:
        pass
