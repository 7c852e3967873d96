"""The estimator against what the API billed for recorded sessions (docs/token-estimation.md has the same table).

Bounds are the bars of the facts page where they are reached, else just above what was measured; each says which.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from types import ModuleType

import pytest

from sessions_app.catalog import TokenizerFamily
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
    def test_of_the_older_family_is_within_the_bar(self, fitting, steps, in_use):
        errors = fitting.anchored_errors(steps=[s for s in steps if s.family is OLD], weights=in_use)
        assert errors.median <= 0.009
        assert errors.p90 <= 0.035

    def test_of_the_newer_family_is_near_the_bar(self, fitting, steps, in_use):
        # Not the bar for the median (0.9%): attached files and reminders are in nearly every window. Measured: 1.1%.
        errors = fitting.anchored_errors(steps=[s for s in steps if s.family is NEW], weights=in_use)
        assert errors.median <= 0.0125
        assert errors.p90 <= 0.035


class TestSpeed:
    def test_reaches_twenty_megabytes_a_second(self):
        text = (FOLDER / "claude-code" / "episodic-headless-start-ansi.jsonl").read_text(
            encoding="utf-8", errors="replace"
        )
        megabytes = len(text.encode()) / 1e6
        best = float("inf")
        for _ in range(5):
            started = time.perf_counter()
            estimate_text(text=text, family=OLD)
            best = min(best, time.perf_counter() - started)
        assert megabytes / best >= 20
