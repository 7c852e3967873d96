"""The breaker: what opens it, what closes it, and the one try that it allows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from compaction_app.engine import breaker
from compaction_app.engine.breaker import NO_FAILURE, BreakerState, OpenedBy
from compaction_app.engine.outcome import FailureReason
from sessions_app.policy import Policy

NOW = datetime(2026, 11, 3, 9, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
FIGURES = Policy()
SHOWN = 20_000  # tokens that a run has found shown


def failed(
    state: BreakerState,
    *,
    times: int = 1,
    reason: FailureReason = FailureReason.NO_SUMMARY,
    automatic: bool = True,
    now: datetime = NOW,
    policy: Policy = FIGURES,
) -> BreakerState:
    for _ in range(times):
        state = breaker.after_failure(
            state=state, reason=reason, automatic=automatic, shown_tokens=SHOWN, policy=policy, now=now
        )
    return state


def succeeded(
    state: BreakerState,
    *,
    effective: bool,
    times: int = 1,
    automatic: bool = True,
    now: datetime = NOW,
    policy: Policy = FIGURES,
) -> BreakerState:
    for _ in range(times):
        state = breaker.after_success(state=state, effective=effective, automatic=automatic, policy=policy, now=now)
    return state


NEW = BreakerState()
OPEN = failed(NEW, times=3)


class TestOpening:
    def test_it_works(self) -> None:
        assert not failed(NEW, times=2).is_open
        assert BreakerState(failures=3, last_failure="no_summary", opened_at=NOW, opened_by=OpenedBy.FAILURES) == OPEN

    def test_three_runs_that_did_not_help(self) -> None:
        assert not succeeded(NEW, effective=False, times=2).is_open
        state = succeeded(NEW, effective=False, times=3)
        assert (state.opened_at, state.opened_by, state.ineffective) == (NOW, OpenedBy.INEFFECTIVE, 3)

    def test_only_failures_in_a_row_count(self) -> None:
        for effective in (True, False):
            state = succeeded(failed(NEW, times=2), effective=effective)
            assert (state.failures, state.last_failure) == (0, "")
            assert not failed(state, times=2).is_open

    def test_a_failure_between_does_not_make_runs_helpful(self) -> None:
        state = failed(succeeded(NEW, effective=False, times=2))
        assert succeeded(state, effective=False).opened_by is OpenedBy.INEFFECTIVE

    @pytest.mark.parametrize("reason", [FailureReason.STALE_VIEW, FailureReason.COMPACTION_DISABLED])
    def test_what_is_no_failure(self, reason: FailureReason) -> None:
        assert failed(NEW, times=9, reason=reason) == NEW
        assert failed(OPEN, reason=reason, now=NOW + HOUR) == OPEN

    def test_where_nothing_was_found_it_is_noted_at_what_was_shown(self) -> None:
        reason = FailureReason.NOTHING_TO_COMPACT
        assert failed(NEW, times=9, reason=reason) == BreakerState(nothing_at_tokens=SHOWN)
        assert failed(OPEN, reason=reason, now=NOW + HOUR) == replace(OPEN, nothing_at_tokens=SHOWN)

    def test_a_summary_that_is_no_smaller_did_not_help_and_is_not_asked_for_again_at_once(self) -> None:
        reason = FailureReason.NOT_SMALLER
        twice = failed(NEW, times=2, reason=reason)
        assert twice == BreakerState(ineffective=2, nothing_at_tokens=SHOWN)
        assert failed(twice, reason=reason).opened_by is OpenedBy.INEFFECTIVE

    @pytest.mark.parametrize("reason", sorted(set(FailureReason) - NO_FAILURE))
    def test_every_other_reason_is_one(self, reason: FailureReason) -> None:
        state = failed(NEW, times=3, reason=reason)
        assert (state.is_open, state.last_failure) == (True, reason.value)

    def test_the_limits_are_figures(self) -> None:
        once = Policy(breaker_failures=1, breaker_ineffective=1)
        assert failed(NEW, policy=once).is_open
        assert succeeded(NEW, effective=False, policy=once).is_open

    def test_runs_by_hand_open_it_too(self) -> None:
        assert failed(NEW, times=3, automatic=False) == OPEN
        assert succeeded(NEW, effective=False, times=3, automatic=False).opened_by is OpenedBy.INEFFECTIVE

    @pytest.mark.parametrize(
        ("before", "after", "over", "effective"),
        [
            (170_000, 20_000, False, True),
            (100_000, 95_000, False, True),
            (100_000, 95_001, False, False),
            (400_000, 170_000, True, False),
            (100_000, 120_000, False, False),
        ],
    )
    def test_whether_a_run_has_helped(self, before: int, after: int, over: bool, effective: bool) -> None:
        """Decision 9: less than a twentieth freed, or still over the threshold, is no help."""
        found = breaker.is_effective(tokens_before=before, tokens_after=after, over_threshold=over, policy=FIGURES)
        assert found is effective


class TestClosing:
    def test_a_success_that_helped_and_a_reset_forget_everything(self) -> None:
        for state in (OPEN, failed(NEW, times=2), failed(NEW, reason=FailureReason.NOT_SMALLER)):
            assert succeeded(state, effective=True) == NEW
        assert breaker.after_reset() == NEW

    def test_a_success_that_did_not_help_closes_nothing(self) -> None:
        state = succeeded(OPEN, effective=False, now=NOW + HOUR)
        assert (state.opened_at, state.opened_by, state.failures, state.ineffective) == (NOW, OpenedBy.FAILURES, 0, 1)


class TestTheOneTry:
    def may(self, state: BreakerState, now: datetime) -> bool:
        return breaker.may_start(state=state, policy=FIGURES, now=now).allowed

    def test_closed_it_holds_nothing_back(self) -> None:
        permission = breaker.may_start(state=failed(NEW, times=2), policy=FIGURES, now=NOW)
        assert (permission.allowed, permission.is_try, permission.why) == (True, False, "")

    def test_after_the_cool_down_one_is_allowed(self) -> None:
        just_before = NOW + HOUR - timedelta(seconds=1)
        assert not self.may(OPEN, just_before)
        permission = breaker.may_start(state=OPEN, policy=FIGURES, now=NOW + HOUR)
        assert (permission.allowed, permission.is_try) == (True, True)
        tried = breaker.after_request(state=OPEN, now=NOW + HOUR)
        assert tried.tried_at == NOW + HOUR
        assert not self.may(tried, NOW + HOUR)
        assert self.may(tried, NOW + 2 * HOUR)

    def test_a_closed_breaker_has_no_try_to_use_up(self) -> None:
        assert breaker.after_request(state=NEW, now=NOW) == NEW

    def test_a_try_that_ends_badly_begins_the_cool_down_anew(self) -> None:
        tried = breaker.after_request(state=OPEN, now=NOW + HOUR)
        ended = NOW + HOUR + timedelta(minutes=30)
        for state in (failed(tried, now=ended), succeeded(tried, effective=False, now=ended)):
            assert state.opened_at == NOW
            assert not self.may(state, ended + HOUR - timedelta(seconds=1))
            assert self.may(state, ended + HOUR)

    def test_a_run_by_hand_that_ends_badly_pushes_no_try_away(self) -> None:
        ended = NOW + timedelta(minutes=59)
        for state in (
            failed(OPEN, automatic=False, now=ended),
            succeeded(OPEN, effective=False, automatic=False, now=ended),
        ):
            assert state.opened_at == NOW
            assert self.may(state, NOW + HOUR)

    def test_a_try_that_helps_closes_it(self) -> None:
        tried = breaker.after_request(state=OPEN, now=NOW + HOUR)
        assert succeeded(tried, effective=True, now=NOW + HOUR) == NEW


class TestUnreachable:
    def test_it_opens_once_and_closes_by_itself(self) -> None:
        state = breaker.when_unreachable(state=NEW, now=NOW)
        assert (state.opened_at, state.opened_by) == (NOW, OpenedBy.UNREACHABLE)
        assert breaker.when_unreachable(state=state, now=NOW + HOUR) == state
        assert breaker.when_reachable(state=state) == NEW

    def test_time_alone_allows_no_try(self) -> None:
        state = breaker.when_unreachable(state=NEW, now=NOW)
        assert breaker.retry_at(state=state, policy=FIGURES) is None
        assert not breaker.may_start(state=state, policy=FIGURES, now=NOW + 99 * HOUR).allowed

    def test_what_opened_it_first_stays(self) -> None:
        assert breaker.when_unreachable(state=OPEN, now=NOW + HOUR) == OPEN
        assert breaker.when_reachable(state=OPEN) == OPEN

    def test_failures_meanwhile_are_counted_and_change_no_cause(self) -> None:
        state = failed(breaker.when_unreachable(state=NEW, now=NOW), times=4, now=NOW + HOUR)
        assert (state.failures, state.opened_by, state.opened_at) == (4, OpenedBy.UNREACHABLE, NOW)
        state = breaker.when_reachable(state=state)
        assert (state.failures, state.is_open) == (4, False)


class TestAsTold:
    """What is stored follows the level with the next decision; what is told is true at once."""

    def test_out_of_reach_it_is_open_for_that_whatever_is_stored(self) -> None:
        for state in (NEW, OPEN, breaker.when_unreachable(state=NEW, now=NOW)):
            told = breaker.as_told(state=state, unreachable=True)
            assert (told.is_open, told.opened_by, told.opened_at) == (True, OpenedBy.UNREACHABLE, state.opened_at)
            assert breaker.retry_at(state=told, policy=FIGURES) is None

    def test_within_reach_it_is_not_open_for_that(self) -> None:
        told = breaker.as_told(state=breaker.when_unreachable(state=NEW, now=NOW), unreachable=False)
        assert told == NEW
        for state in (NEW, OPEN):
            assert breaker.as_told(state=state, unreachable=False) == state


class TestWords:
    def test_they_say_since_when_why_and_until_when(self) -> None:
        assert breaker.advised(state=OPEN, policy=FIGURES) == (
            "breaker open since 2026-11-03 09:12 UTC after 3 failures in a row (the last: no_summary); "
            "one try is allowed from 10:12 UTC on, or reset it"
        )

    def test_another_day_is_named(self) -> None:
        late = replace(OPEN, opened_at=NOW + 14 * HOUR)
        assert "one try is allowed from 2026-11-04 00:12 UTC on" in breaker.advised(state=late, policy=FIGURES)

    def test_a_count_that_was_set_back_is_not_told(self) -> None:
        state = succeeded(OPEN, effective=False)
        assert breaker.told(state=state) == "breaker open since 2026-11-03 09:12 UTC after failures in a row"
        assert "0" not in breaker.told(state=state).split("UTC")[1]

    def test_runs_that_did_not_help(self) -> None:
        state = succeeded(NEW, effective=False, times=3)
        assert "after 3 compactions in a row that did not help;" in breaker.advised(state=state, policy=FIGURES)

    def test_out_of_reach(self) -> None:
        state = breaker.when_unreachable(state=NEW, now=NOW)
        assert breaker.advised(state=state, policy=FIGURES) == (
            "breaker open since 2026-11-03 09:12 UTC because no compaction could reach the threshold; "
            "it closes by itself once one could"
        )

    def test_a_moment_that_is_not_known_is_not_told(self) -> None:
        state = breaker.as_told(state=NEW, unreachable=True)
        assert breaker.told(state=state) == "breaker open because no compaction could reach the threshold"

    def test_nothing_is_said_of_a_closed_one(self) -> None:
        assert breaker.told(state=NEW) == ""
