"""What each way of keeping the context small costs in prompt-cache prices, on the real transcripts; full only = 1.00.

Three means: over the families of the recordings that reach the threshold (in the others full compaction never runs),
over the families of all recordings, and of the bills added up. Then the same without system prompt and tools: these
can't be cleared, and draw every ratio towards 1. The published page's policies are replayed with figures of their own;
only "ours" follows the product's policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.benchmarks import recordings
from tests.benchmarks.cache_cost import (
    FULL_ONLY,
    OURS,
    PUBLISHED,
    WAYS,
    Bill,
    Prices,
    Recording,
    Way,
    family_mean,
    out_of_order,
    replay,
)
from tests.benchmarks.measuring import say, skip

WINDOWS = (160_000, 200_000)
OURS_AT_MOST = 0.95
Bills = Mapping[str, Bill]


def run() -> None:
    found = recordings.all_recordings()
    if not found:
        skip("clearing_cost", why=recordings.WHY_NONE)
        return
    for window in WINDOWS:
        _compare(found=found, window=window, overhead="as recorded")
    alone = [replace(one, overhead_tokens=0) for one in found]
    for window in WINDOWS:
        _compare(found=alone, window=window, overhead="left out")


def bills(*, found: Sequence[Recording], way: Way, window: int, **figures: int) -> Bills:
    """Recording's name -> its bill, for a window of so many tokens."""
    return {
        one.name: replay(
            recording=one, way=way, policy=replace(recordings.policy_of(one), context_window=window, **figures)
        )
        for one in found
    }


def ratios(*, of: Bills, to: Bills) -> dict[str, float]:
    """The three means of the cost `of` relative to that of full compaction only."""
    prices = Prices()
    each = {name: bill.cost(prices) / to[name].cost(prices) for name, bill in of.items()}
    reaching = {name: ratio for name, ratio in each.items() if to[name].summaries}
    added = sum(bill.cost(prices) for bill in of.values()) / sum(bill.cost(prices) for bill in to.values())
    means = {"ratio": family_mean(reaching or each), "ratio_all": family_mean(each), "ratio_added_up": added}
    return {name: round(value, 3) for name, value in means.items()}


def _compare(*, found: Sequence[Recording], window: int, overhead: str) -> None:
    by_way = {name: bills(found=found, way=way, window=window) for name, way in WAYS.items()}
    full = by_way[FULL_ONLY]
    reaching = [bill for bill in full.values() if bill.summaries]
    say(
        "clearing_cost",
        window=window,
        overhead=overhead,
        recordings=len(full),
        calls=sum(bill.calls for bill in full.values()),
        reach_threshold=len(reaching),
        their_calls=sum(bill.calls for bill in reaching),
    )
    means = {}
    for name, found_bills in by_way.items():
        means[name] = ratios(of=found_bills, to=full)
        say(
            "clearing_cost",
            window=window,
            overhead=overhead,
            way=name,
            published=PUBLISHED.get(name),
            **means[name],
            summaries=sum(bill.summaries for bill in found_bills.values()),
            clearings=sum(bill.clearings for bill in found_bills.values()),
        )
    for mean in ("ratio", "ratio_added_up"):
        costs = {name: told[mean] for name, told in means.items()}
        say(
            "clearing_cost",
            window=window,
            overhead=overhead,
            by=mean,
            dearest_first=sorted(costs, key=lambda name: -costs[name]),
            out_of_order=out_of_order(costs),
            ours=costs[OURS],
            ours_low_enough=costs[OURS] <= OURS_AT_MOST,
        )
