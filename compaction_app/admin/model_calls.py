"""Calls of a model in words and figures: how each was asked, what went, what came, what it used and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from compaction_app.admin.cells import duration_text
from compaction_app.admin.rendering.text import Fold, bytes_text, fold, one_line
from compaction_app.engine.model_summary.calls import OK, Way
from compaction_app.engine.outcome import FailureReason
from compaction_app.engine.ports import ProviderProblem
from compaction_app.models import ModelCall

WAYS = {
    Way.CACHED_PREFIX.value: "shared prefix",
    Way.STANDALONE.value: "stand-alone",
    Way.NATIVE.value: "the provider's own compaction",
}
OUTCOMES = {
    OK: "a summary",
    "stopped": "stopped by the run",
    ProviderProblem.CREDENTIALS.value: "key not accepted",
    ProviderProblem.RATE_LIMITED.value: "rate limit reached",
    ProviderProblem.OVERLOADED.value: "provider overloaded",
    ProviderProblem.TOO_LONG.value: "request too long",
    ProviderProblem.TOO_LARGE.value: "request too large in bytes",
    # The provider's own refusal of a request, and a model that declines, are stored as the same word: HTTP tells.
    ProviderProblem.REFUSED.value: "refused",
    ProviderProblem.SERVER_ERROR.value: "the provider's own error",
    ProviderProblem.TIMEOUT.value: "no answer in time",
    ProviderProblem.UNREACHABLE.value: "provider not reached",
    ProviderProblem.UNREADABLE.value: "answer not understood",
    FailureReason.NO_SUMMARY.value: "an answer without a summary",
    FailureReason.TRUNCATED.value: "an answer that was cut off",
}
LONGEST_NAME, LONGEST_DETAIL = 200, 500  # characters on a page
SMALLEST_COST = Decimal("0.0001")  # USD


@dataclass(frozen=True, slots=True)
class Used:
    """Tokens of a `usage`. `prompt`: all that was read, from the cache or not; `read_percent`: of it from the cache."""

    prompt: int
    written: int
    read: int
    output: int

    @property
    def read_percent(self) -> int:
        return round(100 * self.read / self.prompt) if self.prompt else 0


@dataclass(frozen=True, slots=True)
class CostTold:
    """USD as text. `without_cache` and `change` are empty where the cache has changed nothing."""

    usd: str
    without_cache: str = ""
    change: str = ""


@dataclass(frozen=True, slots=True)
class CallRow:
    """One call as a page shows it."""

    number: int
    attempt: int
    way: str
    model: str
    size: str
    tokens: int
    dropped: str
    took: str
    started_at: datetime
    ok: bool
    outcome: str
    detail: str
    http_status: int | None
    request_id: str
    used: Used | None
    cost: CostTold | None
    said: Fold | None


def call_row(call: ModelCall) -> CallRow:
    return CallRow(
        number=call.ordinal,
        attempt=call.attempt,
        way=WAYS.get(call.way, call.way),
        model=one_line(call.model, limit=LONGEST_NAME),
        size=bytes_text(call.request_bytes),
        tokens=call.request_tokens,
        dropped=_dropped(call),
        took=duration_text(timedelta(seconds=call.seconds)),
        started_at=call.started_at,
        ok=call.outcome == OK,
        outcome=outcome_words(call.outcome),
        detail=one_line(call.detail, limit=LONGEST_DETAIL),
        http_status=call.status,
        request_id=one_line(call.request_id, limit=LONGEST_NAME),
        used=used_of(call.usage),
        cost=cost_told(usd=call.cost_usd, uncached=call.cost_uncached_usd),
        said=fold(call.said) if call.said else None,
    )


def outcome_words(outcome: str) -> str:
    return OUTCOMES.get(outcome) or outcome.replace("_", " ")


def _dropped(call: ModelCall) -> str:
    """ "4 of 20 rounds, about 9,000 tokens (before the first call)"; "" for a request that was whole."""
    if not call.dropped_groups and not call.dropped_tokens and not call.retry:
        return ""
    groups, remaining = call.dropped_groups, call.remaining_groups
    what = f"{groups:,} of {groups + remaining:,} rounds" if groups else "content within rounds"
    tokens = f", about {call.dropped_tokens:,} tokens" if call.dropped_tokens else ""
    when = "before the first call" if call.preflight else f"retry {call.retry}"
    return f"{what}{tokens} ({when})"


def used_of(usage: Any) -> Used | None:
    """None where nothing was billed."""
    if not isinstance(usage, Mapping) or not usage:
        return None
    plain, written, read, output = (
        _count(usage, name)
        for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    )
    return Used(prompt=plain + written + read, written=written, read=read, output=output)


def _count(usage: Mapping[str, Any], name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def cost_told(*, usd: Decimal | None, uncached: Decimal | None) -> CostTold | None:
    """None where nothing was billed, or a model has no price."""
    if usd is None:
        return None
    if not uncached or uncached == usd:
        return CostTold(usd=_dollars(usd))
    percent = abs(100 * (uncached - usd) / uncached)
    change = f"{percent:.0f}% {'saved' if usd < uncached else 'more'}"
    return CostTold(usd=_dollars(usd), without_cache=_dollars(uncached), change=change)


def _dollars(usd: Decimal) -> str:
    return f"under ${SMALLEST_COST}" if 0 < usd < SMALLEST_COST else f"${usd:,.4f}"


def tried(calls: Sequence[ModelCall]) -> str:
    """What the calls of a run have tried, in one sentence."""
    if not calls:
        return "No model was called."
    ways = list(dict.fromkeys(WAYS.get(call.way, call.way) for call in calls))
    count = "One call of a model was made" if len(calls) == 1 else f"{len(calls)} calls of a model were made"
    cuts = len({(call.way, call.attempt, call.retry) for call in calls if call.retry})
    cut = f"; the request was shortened {'once' if cuts == 1 else f'{cuts} times'}" if cuts else ""
    spent = duration_text(timedelta(seconds=sum(call.seconds for call in calls)))
    return f"{count} ({' and '.join(ways)}), {spent} in all{cut}. The last one ended with: {_end(calls[-1])}."


def _end(call: ModelCall) -> str:
    return outcome_words(call.outcome) + (f" (HTTP {call.status})" if call.status else "")
