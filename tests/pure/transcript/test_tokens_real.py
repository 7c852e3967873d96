"""The estimator against what the API billed for recorded sessions (docs/token-estimation.md has the same table).

Bounds are the bars of the facts page where they are reached, else just above what was measured; each says which.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import time
from types import ModuleType

import pytest

from sessions_app.catalog import TokenizerFamily
from sessions_app.policy import Policy
from sessions_app.transcript.tokens import estimate_text
from tests.real_transcripts import FOLDER, ROOT, needs_transcripts

OLD, NEW = TokenizerFamily.UNTIL_OPUS_4_6, TokenizerFamily.FROM_OPUS_4_7

pytestmark = [pytest.mark.transcripts, needs_transcripts]


@pytest.fixture(scope="module")
def fitting() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fit_token_weights", ROOT / "tools" / "fit_token_weights.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def steps(fitting):
    return fitting.read_steps(folder=FOLDER / "claude-code")


@pytest.fixture(scope="module")
def in_use(fitting):
    tables = {family: fitting.table(family) for family in TokenizerFamily}
    return lambda step: tables[step.family]


class TestStepReader:
    def test_finds_enough_steps_of_each_family_to_say_something(self, steps):
        assert sum(step.family is OLD for step in steps) >= 1_200
        assert sum(step.family is NEW for step in steps) >= 600

    def test_counts_a_response_once(self, steps):
        keys = [(step.file, step.run, step.prompt_tokens, step.grown_tokens) for step in steps]
        assert len(keys) == len(set(keys))


class TestWholeStep:
    @pytest.mark.parametrize(
        ("family", "median", "p90"), [(OLD, 0.08, 0.25), (NEW, 0.06, 0.18)], ids=["until-opus-4-6", "from-opus-4-7"]
    )
    def test_is_within_the_bar(self, fitting, steps, in_use, family, median, p90):
        errors = fitting.step_errors(steps=[s for s in steps if s.family is family], weights=in_use)
        assert errors.median <= median
        assert errors.p90 <= p90
        assert 0.95 <= errors.ratio <= 1.05

    def test_is_within_the_bar_on_repositories_that_the_weights_never_saw(self, fitting, steps):
        # Two repositories stand for the seven of the older family, to keep the test short: the largest, and the one
        # that fits worst. The tool's report has all.
        chosen = [step for step in steps if step.family is OLD]
        for name in ("entire", "episodic"):
            unseen = [step for step in chosen if step.repository == name]
            weights = fitting.fit(steps=[step for step in chosen if step.repository != name], family=OLD)
            errors = fitting.step_errors(steps=unseen, weights=lambda _, weights=weights: weights)
            assert errors.median <= 0.10, name

    def test_is_near_the_bar_on_a_newer_repository_that_the_weights_never_saw(self, fitting, steps):
        # Not the bar (8%): 32 steps of one session, four of them with attachments. Measured: 14%.
        chosen = [step for step in steps if step.family is NEW]
        weights = fitting.fit(steps=[step for step in chosen if step.repository != "numwordify"], family=NEW)
        unseen = [step for step in chosen if step.repository == "numwordify"]
        errors = fitting.step_errors(steps=unseen, weights=lambda _: weights)
        assert errors.median <= 0.16


class TestReplies:
    def test_in_korean_are_within_the_bar(self, fitting, steps, in_use):
        errors = fitting.korean_errors(steps=steps, weights=in_use)
        assert errors.count >= 20
        assert errors.median <= 0.25


class TestAnchoredContext:
    """Twenty steps after the last usage, as a session tells it: calibrated on the steps before."""

    @pytest.fixture
    def errors(self, fitting, steps):
        def of(family, estimate, figures):
            chosen = [step for step in steps if step.family is family]
            return fitting.anchored_errors(steps=chosen, estimate=estimate, figures=figures)

        return of

    def test_of_the_older_family_is_within_the_bar(self, fitting, errors, in_use):
        # The bar: 0.9% and 3.5%. Measured: 0.41% and 2.35%.
        found = errors(OLD, fitting.by_weights(in_use), Policy())
        assert found.median <= 0.005
        assert found.p90 <= 0.027

    def test_of_the_older_family_is_better_for_the_calibration(self, fitting, errors, in_use):
        estimate = fitting.by_weights(in_use)
        assert errors(OLD, estimate, Policy()).median <= 0.8 * errors(OLD, estimate, None).median

    def test_of_the_newer_family_is_near_the_bar(self, fitting, errors, in_use):
        # Not the bar for the median (0.9%): files that changed are sent unseen in nearly every window, 4,000 tokens
        # each, and no ratio foretells them. Measured: 1.14% and 2.95%.
        found = errors(NEW, fitting.by_weights(in_use), Policy())
        assert found.median <= 0.0125
        assert found.p90 <= 0.032

    def test_of_the_newer_family_is_within_the_bar_where_attachments_are_counted(self, fitting, errors, in_use):
        # Measured: 0.22% and 1.9%.
        found = errors(NEW, fitting.by_weights_and_attachments(in_use), Policy())
        assert found.median <= 0.005
        assert found.p90 <= 0.025

    @pytest.mark.parametrize("family", [OLD, NEW])
    def test_is_better_than_a_quarter_of_the_characters_calibrated_likewise(self, fitting, errors, in_use, family):
        ours = errors(family, fitting.by_weights(in_use), Policy())
        quarter = errors(family, fitting.by_chars, fitting.CHARS_FIGURES)
        assert ours.median < quarter.median
        assert ours.p90 < quarter.p90

    def test_of_a_newer_repository_that_the_weights_never_saw_is_better_for_the_calibration(self, fitting, steps):
        # 617 steps by weights from 32: measured 1.58% and 5.1% without, 1.44% and 4.0% with it.
        chosen = [step for step in steps if step.family is NEW]
        weights = fitting.fit(steps=[step for step in chosen if step.repository != "gitsync"], family=NEW)
        unseen = [step for step in chosen if step.repository == "gitsync"]
        estimate = fitting.by_weights(lambda _: weights)
        raw = fitting.anchored_errors(steps=unseen, estimate=estimate)
        calibrated = fitting.anchored_errors(steps=unseen, estimate=estimate, figures=Policy())
        assert calibrated.median < raw.median
        assert calibrated.p90 <= 0.9 * raw.p90


class TestSpeed:
    def test_is_as_fast_as_splitting_the_text_into_words(self):
        """That took 78 ms for this text where the estimate's bar, 20 MB/s, is 74 ms. Side by side in one run, so that
        a busy machine slows both."""
        text = (FOLDER / "claude-code" / "episodic-headless-start-ansi.jsonl").read_text(
            encoding="utf-8", errors="replace"
        )
        ours = split = float("inf")
        for _ in range(5):
            started = time.perf_counter()
            estimate_text(text=text, family=OLD)
            between = time.perf_counter()
            re.findall(r"\w+|\s+|[^\w\s]", text)
            ours, split = min(ours, between - started), min(split, time.perf_counter() - between)
        assert ours <= split
