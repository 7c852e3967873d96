"""Which figures of the light links cost least: every combination of a few values, the links as they are.

Price only: what it costs to read a cleared result again is in no recording. With so few long recordings differences
of about 0.02 mean nothing; a value that is good in both windows does.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from sessions_app.policy import Policy
from tests.benchmarks import recordings
from tests.benchmarks.cache_cost import FULL_ONLY, OURS, WAYS, Recording
from tests.benchmarks.clearing_cost import WINDOWS, bills, ratios
from tests.benchmarks.measuring import say, skip

VALUES: Mapping[str, tuple[int, ...]] = {
    "cache_edit_trigger_results": (10, 20, 30, 50),
    "cache_edit_keep_results": (3, 5, 10),
    "clear_least_tokens": (10_000, 20_000, 40_000),
}
IDLE_VALUES: Mapping[str, tuple[int, ...]] = {
    "time_based_idle_ms": (150_000, 300_000, 600_000),
    "time_based_keep_results": (3, 5, 10),
}
SHOWN = 3
Setting = tuple[int, ...]


def run() -> None:
    found = recordings.all_recordings()
    if not found:
        skip("clearing_settings", why=recordings.WHY_NONE)
        return
    for window in WINDOWS:
        for values in (VALUES, IDLE_VALUES):
            _sweep(found=found, window=window, values=values)


def _sweep(*, found: Sequence[Recording], window: int, values: Mapping[str, tuple[int, ...]]) -> None:
    full = bills(found=found, way=WAYS[FULL_ONLY], window=window)
    means: dict[Setting, dict[str, float]] = {}
    for setting in itertools.product(*values.values()):
        figures = dict(zip(values, setting, strict=True))
        means[setting] = ratios(of=bills(found=found, way=WAYS[OURS], window=window, **figures), to=full)
    for index, name in enumerate(values):
        for value in values[name]:
            with_it = [mean["ratio"] for setting, mean in means.items() if setting[index] == value]
            mean = round(sum(with_it) / len(with_it), 3)
            say("clearing_settings", window=window, figure=name, value=value, mean_ratio_of_its_settings=mean)
    cheapest = sorted(means, key=lambda setting: (means[setting]["ratio"], means[setting]["ratio_added_up"]))
    in_use = tuple(getattr(Policy(), name) for name in values)
    for rank, setting in enumerate(cheapest, start=1):
        if rank <= SHOWN or setting == in_use:
            figures = dict(zip(values, setting, strict=True))
            say(
                "clearing_settings",
                window=window,
                rank=rank,
                of=len(cheapest),
                in_use=setting == in_use,
                **figures,
                **means[setting],
            )
