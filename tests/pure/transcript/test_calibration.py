"""What a session's own responses teach about its estimates."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from sessions_app.policy import Policy
from sessions_app.transcript.calibration import Calibration

FIGURES = Policy()


def taught(*steps: tuple[int, int]) -> Calibration:
    """After steps of (billed, estimated) tokens."""
    calibration = Calibration.begun(model="m", figures=FIGURES)
    for billed, estimated in steps:
        calibration = calibration.learned(billed=billed, estimated=estimated, figures=FIGURES)
    return calibration


def ratio(*steps: tuple[int, int]) -> float:
    return taught(*steps).ratio(figures=FIGURES)


class TestRatio:
    def test_is_one_while_nothing_was_learned(self) -> None:
        assert ratio() == 1

    @pytest.mark.parametrize("truth", [0.7, 1.0, 1.3, 2.0])
    def test_comes_to_what_is_billed(self, truth: float) -> None:
        assert ratio(*[(round(2_000 * truth), 2_000)] * 200) == pytest.approx(truth, rel=0.01)

    def test_moves_towards_it_with_each_step_and_not_beyond(self) -> None:
        ratios = [ratio(*[(2_800, 2_000)] * count) for count in range(30)]
        assert all(before < after for before, after in pairwise(ratios))
        assert max(ratios) < 1.4
        assert ratios[20] > 1.2, "after 40,000 tokens more than half of the way is gone"

    def test_follows_a_change_and_forgets_what_was_before(self) -> None:
        before = [(2_600, 2_000)] * 100
        assert ratio(*before, *[(1_600, 2_000)] * 150) == pytest.approx(0.8, abs=0.02)

    @pytest.mark.parametrize(("billed", "bound"), [(1, 0.6), (10_000_000, 2.5)])
    def test_stays_within_the_published_bounds(self, billed: int, bound: float) -> None:
        assert ratio(*[(billed, 5_000)] * 200) == pytest.approx(bound, abs=0.001)
        assert 0.6 <= ratio(*[(billed, 5_000)] * 200) <= 2.5


class TestLearned:
    def test_one_small_step_cannot_swing_it(self) -> None:
        assert ratio((12_000, 400)) < 1.05, "a file of 11,600 tokens that the client attached unseen"

    def test_a_large_step_says_more_than_a_small_one(self) -> None:
        assert ratio((13_000, 10_000)) > ratio((650, 500)) > 1

    @pytest.mark.parametrize("step", [(0, 500), (-4_000, 500), (300, 99), (300, 0)])
    def test_a_step_that_tells_nothing_is_passed_over(self, step: tuple[int, int]) -> None:
        assert taught(step) == taught()

    def test_it_comes_back_from_json(self) -> None:
        calibration = taught((1_234, 1_000), (777, 900))
        assert Calibration.from_json(json.loads(json.dumps(calibration.as_json()))) == calibration
        assert Calibration.from_json(None) is None

    def test_what_is_stored_does_not_grow(self) -> None:
        assert len(json.dumps(taught(*[(1_317, 1_001)] * 2_000).as_json())) < 100
