"""The decision after an append: the gates in their order, and what each says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from compaction_app.engine.breaker import BreakerState, OpenedBy
from compaction_app.engine.decision import Facts, Outcome, Verdict, decide, elsewhere, hindrance, switched_off
from sessions_app.catalog import model_info
from sessions_app.policy import Policy, ResolvedPolicy, resolve
from sessions_app.transcript.window import warning_state, window_of

NOW = datetime(2026, 11, 3, 9, 12, tzinfo=UTC)
OPEN = BreakerState(failures=3, last_failure="no_summary", opened_at=NOW, opened_by=OpenedBy.FAILURES)


def facts(
    context_tokens: int,
    *,
    overhead_tokens: int = 0,
    breaker: BreakerState = BreakerState(),  # noqa: B008
    resolved: ResolvedPolicy | None = None,
    **more: Any,
) -> Facts:
    resolved = resolved or ResolvedPolicy(policy=Policy(), origins={})
    window = window_of(policy=resolved.policy, model=model_info("claude-sonnet-4-5"))
    state = warning_state(window=window, context_tokens=context_tokens, overhead_tokens=overhead_tokens)
    return Facts(
        context_tokens=context_tokens,
        overhead_tokens=overhead_tokens,
        window=window,
        level=state.level,
        percent_left=state.percent_left,
        resolved=resolved,
        breaker=breaker,
        **more,
    )


def decided(given: Facts, *, answered: bool = True, now: datetime = NOW) -> Verdict:
    return decide(facts=given, answered=answered, now=now)


class TestDecide:
    def test_it_works(self) -> None:
        verdict = decided(facts(167_000))
        assert verdict == Verdict(Outcome.REQUESTED, "167,000 tokens; the threshold of 167,000 is reached")

    def test_below_the_threshold(self) -> None:
        verdict = decided(facts(166_999))
        assert verdict.outcome is Outcome.BELOW_THRESHOLD
        assert verdict.why == "166,999 tokens; automatic compaction starts at 167,000"

    def test_without_a_response_of_the_model_nothing_is_decided(self) -> None:
        assert decided(facts(190_000), answered=False).outcome is Outcome.NO_ASSISTANT_MESSAGE

    @pytest.mark.parametrize("layer", ["environment", "team", "session"])
    @pytest.mark.parametrize(
        ("switch", "outcome", "words"),
        [
            ("compaction_enabled", Outcome.COMPACTION_DISABLED, "compaction is switched off by the "),
            ("auto_compact_enabled", Outcome.AUTO_COMPACT_DISABLED, "automatic compaction is switched off by the "),
        ],
    )
    def test_off_means_off(self, switch: str, outcome: Outcome, words: str, layer: str) -> None:
        layers: Any = {layer: {switch: False}}
        verdict = decided(facts(190_000, breaker=OPEN, resolved=resolve(**layers)))
        assert verdict == Verdict(outcome, words + layer)

    def test_out_of_reach_names_the_overhead(self) -> None:
        """T9: a 32,768-token window with 29,000 tokens of system prompt and tools."""
        small = resolve(session={"context_window": 32_768})
        given = facts(29_500, overhead_tokens=29_000, resolved=small, breaker=OPEN)
        assert given.window.effective_window == 12_768
        verdict = decided(given)
        assert verdict.outcome is Outcome.UNREACHABLE
        assert "system prompt and tools alone take 29,000 tokens" in verdict.why
        assert "threshold of 6,384" in verdict.why

    def test_an_open_breaker_says_why(self) -> None:
        verdict = decided(facts(170_000, breaker=OPEN))
        assert verdict.outcome is Outcome.BREAKER_OPEN
        assert verdict.why == (
            "breaker open since 2026-11-03 09:12 UTC after 3 failures in a row (the last: no_summary); "
            "one try is allowed from 10:12 UTC on, or reset it"
        )

    def test_the_try_of_an_open_breaker(self) -> None:
        verdict = decided(facts(170_000, breaker=OPEN), now=NOW + timedelta(hours=1))
        assert (verdict.outcome, verdict.is_try) == (Outcome.REQUESTED, True)
        assert "the one try after the cool-down of a breaker open since 2026-11-03 09:12" in verdict.why

    @pytest.mark.parametrize(
        ("shown", "outcome"),
        [
            (20_000, Outcome.NOTHING_TO_COMPACT),
            (21_999, Outcome.NOTHING_TO_COMPACT),
            (22_000, Outcome.REQUESTED),
            (18_001, Outcome.NOTHING_TO_COMPACT),
            (18_000, Outcome.REQUESTED),  # smaller: something was cleared or compacted meanwhile
        ],
    )
    @pytest.mark.parametrize("tokens", [170_000, 400_000])
    def test_where_there_was_nothing_it_waits_until_something_else_is_shown(
        self, shown: int, tokens: int, outcome: Outcome
    ) -> None:
        """Whatever the context's size: that of a client that did not give its history grows with each response."""
        verdict = decided(facts(tokens, shown_tokens=shown, breaker=BreakerState(nothing_at_tokens=20_000)))
        assert verdict.outcome is outcome
        if outcome is Outcome.NOTHING_TO_COMPACT:
            assert verdict.why == (
                "a run found nothing to compact, or nothing that was accepted, in the 20,000 tokens that were shown; "
                f"the next one waits until they have changed by 2,000 (now {shown:,})"
            )


class TestNear:
    @pytest.mark.parametrize(("tokens", "near"), [(143_999, False), (144_000, True), (500_000, True)])
    def test_from_nine_tenths_of_the_lowest_threshold_on(self, tokens: int, near: bool) -> None:
        assert facts(tokens).is_near is near

    def test_the_share_is_a_figure(self) -> None:
        everything = resolve(team={"decision_near_share": 0})
        assert facts(0, resolved=everything).is_near


class TestHindrance:
    def test_nothing_stops_it(self) -> None:
        assert hindrance(facts=facts(170_000)) is None
        assert hindrance(facts=facts(10)) is None

    def test_it_says_what_the_decision_says(self) -> None:
        off = resolve(session={"auto_compact_enabled": False})
        small = resolve(session={"context_window": 32_768})
        found_nothing = BreakerState(nothing_at_tokens=20_000)
        for given in (
            facts(170_000, breaker=OPEN),
            facts(170_000, resolved=off),
            facts(170_000, shown_tokens=20_000, breaker=found_nothing),
            facts(29_500, overhead_tokens=29_000, resolved=small),
        ):
            assert hindrance(facts=given) == decided(given).why

    def test_an_open_breaker_is_told_below_the_threshold_too(self) -> None:
        assert "3 failures in a row" in (hindrance(facts=facts(10, breaker=OPEN)) or "")

    def test_nothing_found_matters_over_the_threshold_only(self) -> None:
        given = facts(10, breaker=replace(BreakerState(), nothing_at_tokens=10))
        assert hindrance(facts=given) is None

    def test_a_threshold_that_is_within_reach_again_hinders_nothing(self) -> None:
        """The stored breaker closes with the next decision."""
        stored = BreakerState(opened_at=NOW, opened_by=OpenedBy.UNREACHABLE)
        assert hindrance(facts=facts(10, breaker=stored)) is None


class TestSwitchedOff:
    """One wording wherever it is told."""

    @pytest.mark.parametrize(
        ("figures", "automatic", "words"),
        [
            ({}, True, None),
            ({"compaction_enabled": False}, False, "compaction is switched off by the team"),
            (
                {"compaction_enabled": False, "auto_compact_enabled": False},
                True,
                "compaction is switched off by the team",
            ),
            ({"auto_compact_enabled": False}, True, "automatic compaction is switched off by the team"),
            ({"auto_compact_enabled": False}, False, None),
        ],
    )
    def test_it_says_who(self, figures: dict[str, bool], automatic: bool, words: str | None) -> None:
        assert switched_off(resolved=resolve(team=figures), automatic=automatic) == words


class TestElsewhere:
    """A client that goes on with a context of its own, which no compaction of ours makes smaller."""

    WORDS = (
        "the last response's prompt had 258,060 tokens, but what is handed out has about 21,303: "
        "the client goes on without context/ or prepare/"
    )

    def test_it_is_told_below_the_threshold(self) -> None:
        given = facts(21_303, ignored_prompt_tokens=258_060)
        assert elsewhere(facts=given) == self.WORDS
        assert decided(given).why == f"21,303 tokens; automatic compaction starts at 167,000; {self.WORDS}"

    def test_it_hinders_nothing_and_is_told_where_it_is_so_only(self) -> None:
        assert hindrance(facts=facts(21_303, ignored_prompt_tokens=258_060)) is None
        assert elsewhere(facts=facts(21_303)) is None
