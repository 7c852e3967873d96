"""What calls used, and what that costs by the policy's price table (facts: Anthropic API, sections 9 and 12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from sessions_app.policy import Policy

COUNTED = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
FIVE_MINUTES, ONE_HOUR = "ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"
PLACES = Decimal("0.000001")
MILLION = Decimal(1_000_000)


@dataclass(frozen=True, slots=True)
class Cost:
    """USD with the cache as it was used, and without any."""

    usd: Decimal
    uncached_usd: Decimal


def cost_of(*, usage: Mapping[str, Any], model: str, policy: Policy) -> Cost | None:
    """What a `usage` costs; None for a model that has no price, or where nothing was counted."""
    price = policy.prices.price_of(model)
    parts = [part for part in _parts(usage) if any(_count(part, name) for name in COUNTED)]
    if price is None or not parts:
        return None
    given, written = (Decimal(str(one)) / MILLION for one in price)
    usd = sum((_cached(part, given, policy) + _count(part, "output_tokens") * written for part in parts), Decimal(0))
    bare = sum((_prompt(part) * given + _count(part, "output_tokens") * written for part in parts), Decimal(0))
    return Cost(usd=_rounded(usd), uncached_usd=_rounded(bare))


def total_usage(usages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The counted fields of all of them together, tokens written to the cache by how long they stay."""
    parts = [part for usage in usages for part in _parts(usage)]
    total: dict[str, Any] = {name: sum(_count(part, name) for part in parts) for name in COUNTED}
    total["cache_creation"] = {
        name: sum(_count(_written(part), name) for part in parts) for name in (FIVE_MINUTES, ONE_HOUR)
    }
    return total


def _parts(usage: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A compaction's own iteration is not in the totals, so where there are iterations, their sum is the bill."""
    iterations = usage.get("iterations")
    found = [one for one in iterations if isinstance(one, Mapping)] if isinstance(iterations, list) else []
    return found or [usage]


def _cached(part: Mapping[str, Any], given: Decimal, policy: Policy) -> Decimal:
    written = _count(part, "cache_creation_input_tokens")
    for_an_hour = min(_count(_written(part), ONE_HOUR), written)
    factors = (
        (_count(part, "input_tokens"), 1.0),
        (written - for_an_hour, policy.price_write_factor),
        (for_an_hour, policy.price_long_write_factor),
        (_count(part, "cache_read_input_tokens"), policy.price_read_factor),
    )
    return sum((tokens * given * Decimal(str(factor)) for tokens, factor in factors), Decimal(0))


def _prompt(part: Mapping[str, Any]) -> int:
    return sum(_count(part, name) for name in COUNTED if name != "output_tokens")


def _written(part: Mapping[str, Any]) -> Mapping[str, Any]:
    written = part.get("cache_creation")
    return written if isinstance(written, Mapping) else {}


def _count(part: Mapping[str, Any], name: str) -> int:
    value = part.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _rounded(value: Decimal) -> Decimal:
    return value.quantize(PLACES, rounding=ROUND_HALF_EVEN)
