"""What the benchmarks share: a line of output, a time, one act on histories of several lengths."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

ROUNDS = 60
History = TypeVar("History")


def say(name: str, **figures: Any) -> None:
    print(json.dumps({"benchmark": name, **figures}), flush=True)


def skip(name: str, *, why: str) -> None:
    say(name, skipped=why)


def milliseconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return 1_000 * (time.perf_counter() - began)


def by_size(
    name: str, act: Callable[[History, int], object], histories: Mapping[int, History], *, rounds: int = ROUNDS
) -> None:
    """The same act on histories of several lengths in turn; the ratio of medians to the shortest."""
    taken: dict[int, list[float]] = {size: [] for size in histories}
    for number in range(rounds):
        for size, history in histories.items():
            taken[size].append(milliseconds(lambda h=history, n=number: act(h, n)))  # type: ignore[misc]
    medians = {size: statistics.median(values) for size, values in taken.items()}
    shortest = medians[min(medians)]
    for size, median in medians.items():
        say(name, history=size, median_ms=round(median, 2), ratio_to_shortest=round(median / shortest, 2))
