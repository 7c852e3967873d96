"""What calls cost, by the price table."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from compaction_app.engine.model_summary.cost import cost_of, total_usage
from sessions_app.figures import PriceTable
from sessions_app.policy import Policy

MODEL = "claude-sonnet-4-5"
POLICY = Policy(prices=PriceTable((("claude-sonnet", 3, 15),)))


def usd(**usage: Any) -> tuple[Decimal, Decimal]:
    cost = cost_of(usage=usage, model=MODEL, policy=POLICY)
    assert cost is not None
    return cost.usd, cost.uncached_usd


@pytest.mark.parametrize(
    ("usage", "cached", "uncached"),
    [
        ({"input_tokens": 1_000_000}, "3", "3"),
        ({"output_tokens": 1_000_000}, "15", "15"),
        ({"cache_read_input_tokens": 1_000_000}, "0.3", "3"),
        ({"cache_creation_input_tokens": 1_000_000}, "3.75", "3"),
        (
            {"cache_creation_input_tokens": 1_000_000, "cache_creation": {"ephemeral_1h_input_tokens": 1_000_000}},
            "6",
            "3",
        ),
        (
            {
                "input_tokens": 0,
                "output_tokens": 0,
                "iterations": [{"type": "compaction", "input_tokens": 1_000_000, "output_tokens": 0}],
            },
            "3",
            "3",
        ),
        ({"input_tokens": 1_000_000, "output_tokens": None, "cache_read_input_tokens": "x"}, "3", "3"),
    ],
)
def test_each_bucket_has_its_price(usage: dict[str, Any], cached: str, uncached: str) -> None:
    assert usd(**usage) == (Decimal(cached), Decimal(uncached))


def test_unknown_is_not_nothing() -> None:
    assert cost_of(usage={"input_tokens": 5}, model="gpt-9", policy=POLICY) is None
    assert cost_of(usage={}, model=MODEL, policy=POLICY) is None


def test_all_calls_together() -> None:
    total = total_usage([{"input_tokens": 1, "output_tokens": 2}, {"input_tokens": 3, "cache_read_input_tokens": 4}])
    assert (total["input_tokens"], total["output_tokens"], total["cache_read_input_tokens"]) == (4, 2, 4)
