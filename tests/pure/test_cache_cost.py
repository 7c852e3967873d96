"""The simulator of prefix-cache prices: its arithmetic on histories small enough to add up by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest

from sessions_app.policy import Policy
from sessions_app.transcript.messages import Message, MessageKind, Role
from sessions_app.transcript.tokens import estimate_content
from sessions_app.transcript.view import placeholder_tokens
from tests.benchmarks.cache_cost import (
    DROPPED,
    FULL_ONLY,
    IN_BATCHES,
    MASKED,
    OURS,
    SUMMARY_REQUEST_TOKENS,
    SUMMARY_TOKENS,
    WAYS,
    WHEN_IDLE,
    Bill,
    Prices,
    Recording,
    calls_of,
    family_mean,
    out_of_order,
    replay,
)
from tests.build import FAMILY, res, text, use

START = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
OVERHEAD = 1_000
ROOMY = replace(Policy(), context_window=1_000_000)
# Threshold of 40,000 tokens: 73,000 less 20,000 for the summary's output and the buffer of 13,000.
TIGHT = replace(Policy(), context_window=73_000)
LONG = "all of this stood in a file\n" * 400
RESULT_TOKENS = estimate_content(content=[res("c", LONG)], family=FAMILY)
FREED_TOKENS = RESULT_TOKENS - placeholder_tokens(family=FAMILY)


class Tape:
    """A recording that grows by hand: messages of given size, seconds after the one before."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.at = START
        self.responses = 0

    def add(self, role: Role, content: Any, tokens: int, *, after: float = 1, **more: Any) -> Tape:
        self.at += timedelta(seconds=after)
        number = len(self.messages) + 1
        self.messages.append(
            Message(
                position=number,
                uuid=f"m{number}",
                role=role,
                content=content,
                tokens=tokens,
                **{"sent_at": self.at, **more},
            )
        )
        return self

    def prompt(self, tokens: int, **more: Any) -> Tape:
        return self.add(Role.USER, "go on", tokens, **more)

    def answer(self, tokens: int, *, blocks: Sequence[Any] = (), same: bool = False, **more: Any) -> Tape:
        self.responses += not same
        return self.add(Role.ASSISTANT, list(blocks) or [text("done")], tokens, message_id=f"r{self.responses}", **more)

    def reads(self, count: int) -> Tape:
        """So many calls, each with a result of RESULT_TOKENS."""
        for number in range(count):
            self.answer(10, blocks=[use(f"c{number}", "Read", file_path="a.py")])
            self.add(Role.USER, [res(f"c{number}", LONG)], RESULT_TOKENS)
        return self

    def bill(self, *, way: str = FULL_ONLY, policy: Policy = ROOMY) -> Bill:
        recording = Recording(name="tape", messages=self.messages, overhead_tokens=OVERHEAD, family=FAMILY)
        return replay(recording=recording, way=WAYS[way], policy=policy)


class TestWarmCache:
    def test_a_call_reads_the_prompt_before_it_and_writes_what_came_since(self) -> None:
        bill = Tape().prompt(100).answer(20).prompt(300).answer(40).bill()
        assert bill == Bill(read=OVERHEAD + 100, written=OVERHEAD + 100 + 20 + 300, calls=2)

    def test_the_cost_is_in_input_tokens(self) -> None:
        assert Bill(read=1_000, written=100, plain=10, output=2).cost(Prices()) == 100 + 125 + 10 + 10

    def test_each_hit_keeps_it_alive(self) -> None:
        tape = Tape().prompt(100).answer(20).prompt(100, after=280).answer(20).prompt(100, after=280).answer(20)
        assert tape.bill().read == (OVERHEAD + 100) + (OVERHEAD + 220)


class TestColdCache:
    def test_after_five_minutes_everything_is_written_again(self) -> None:
        bill = Tape().prompt(100).answer(20).prompt(300, after=300).answer(40).bill()
        assert (bill.read, bill.written) == (0, 2 * (OVERHEAD + 100) + 320)

    def test_its_age_counts_from_the_request_not_from_the_answer(self) -> None:
        """The answer took 200 seconds, and the next request came 101 seconds after it."""
        bill = Tape().prompt(100).answer(20, after=200).prompt(300, after=101).answer(40).bill()
        assert bill.read == 0


class TestCalls:
    def test_lines_of_one_response_are_one_call(self) -> None:
        tape = Tape().prompt(1).answer(1).answer(1, same=True).prompt(1).answer(1)
        assert [call.position for call in calls_of(tape.messages)] == [2, 5]

    def test_it_was_sent_when_the_last_message_before_it_was_there(self) -> None:
        first, second = calls_of(Tape().prompt(1).answer(1, after=10).prompt(1, after=60).answer(1).messages)
        assert (first.at, first.answered_at) == (START + timedelta(seconds=1), None)
        assert (second.at, second.answered_at) == (START + timedelta(seconds=71), START + timedelta(seconds=11))

    def test_what_no_model_wrote_is_no_call(self) -> None:
        tape = Tape().prompt(1).answer(1, kind=MessageKind.API_ERROR).prompt(1).answer(1)
        assert [call.position for call in calls_of(tape.messages)] == [4]

    def test_a_message_without_a_time_came_with_the_one_before(self) -> None:
        tape = Tape().prompt(1).answer(1).prompt(1, after=900, sent_at=None).answer(1)
        assert calls_of(tape.messages)[1].at == START + timedelta(seconds=2)


class TestRewind:
    def test_what_was_left_behind_is_sent_no_more_and_the_rest_is_still_read(self) -> None:
        tape = Tape().prompt(100).answer(20).prompt(300, left_path_at=5).answer(40, left_path_at=5).prompt(7).answer(1)
        bill = tape.bill()
        first, second, third = OVERHEAD + 100, OVERHEAD + 420, OVERHEAD + 127
        assert bill.read == first + (OVERHEAD + 120)
        assert bill.read + bill.written == first + second + third


class TestFullOnly:
    def test_the_summary_reads_the_prefix_and_what_follows_shares_only_the_overhead(self) -> None:
        tape = Tape().prompt(30_000).answer(20).prompt(10_000).answer(40)
        bill = tape.bill(policy=TIGHT)
        before, asked = OVERHEAD + 30_000, OVERHEAD + 40_020
        assert bill.summaries == 1
        assert bill.output == SUMMARY_TOKENS
        # The summary's request, then the call itself.
        assert bill.read == before + OVERHEAD
        assert bill.plain == asked - before + SUMMARY_REQUEST_TOKENS
        assert bill.written == before + SUMMARY_TOKENS + 10_000, "what is asked now stays beside the summary"

    def test_recent_rounds_stay(self) -> None:
        tape = Tape().prompt(38_000).answer(20).prompt(1_000).answer(40)
        assert tape.bill(policy=TIGHT).written == OVERHEAD + 38_000 + SUMMARY_TOKENS + 1_000

    def test_nothing_happens_below_the_threshold(self) -> None:
        tape = Tape().prompt(30_000).answer(20).prompt(8_979).answer(40)
        assert tape.bill(policy=TIGHT).summaries == 0


class TestDroppingTheOldest:
    def test_every_call_over_the_threshold_loses_the_cache_but_for_the_overhead(self) -> None:
        tape = Tape().prompt(20_000).answer(10_000).prompt(15_000).answer(10_000).prompt(10_000).answer(1)
        bill = tape.bill(way=DROPPED, policy=TIGHT)
        assert bill.read == 2 * OVERHEAD
        assert bill.written == (OVERHEAD + 20_000) + 25_000 + 35_000
        assert bill.summaries == 0


class TestClearing:
    def test_masking_rewrites_the_rest_on_every_turn(self) -> None:
        tape = Tape().prompt(100).reads(20).answer(1)
        masked, whole = tape.bill(way=MASKED), tape.bill()
        # From the eleventh result on each call clears one, and writes again the nine cached ones that come after it.
        again = 10 * 9 * RESULT_TOKENS
        assert masked.clearings == 10
        assert again < masked.written - whole.written < 1.01 * again

    @pytest.mark.parametrize(("results", "clearings"), [(20, 0), (21, 1), (31, 1), (32, 2)])
    def test_batches_rewrite_it_once_for_each_batch(self, results: int, clearings: int) -> None:
        """With the 21st result all but the newest ten go; eleven more make twenty-one again."""
        tape = Tape().prompt(100).reads(results).answer(1)
        assert tape.bill(way=IN_BATCHES).clearings == clearings

    @pytest.mark.parametrize("way", [DROPPED, MASKED, FULL_ONLY, IN_BATCHES, WHEN_IDLE])
    def test_the_published_ways_do_not_follow_our_policy(self, way: str) -> None:
        other = replace(
            ROOMY,
            cache_edits_enabled=False,
            cache_edit_trigger_results=1,
            cache_edit_keep_results=0,
            clear_least_tokens=0,
            time_based_enabled=False,
            time_based_idle_ms=1,
            time_based_keep_results=0,
        )
        tape = Tape().prompt(100).reads(30).answer(1).prompt(50, after=400).answer(1)
        assert tape.bill(way=way, policy=other) == tape.bill(way=way)

    def test_our_trigger_waits_for_as_many_results(self) -> None:
        tape = Tape().prompt(100).reads(20).answer(1)
        reached, not_reached = (
            replace(ROOMY, cache_edit_trigger_results=count, cache_edit_keep_results=5, clear_least_tokens=1)
            for count in (19, 20)
        )
        assert tape.bill(way=OURS, policy=reached).clearings == 1
        assert tape.bill(way=OURS, policy=not_reached) == tape.bill(way=FULL_ONLY)

    @pytest.mark.parametrize(("idle_seconds", "clearings"), [(299, 0), (301, 1)])
    def test_results_go_when_the_cache_is_cold(self, idle_seconds: float, clearings: int) -> None:
        tape = Tape().prompt(100).reads(8).answer(1).prompt(50, after=idle_seconds).answer(1)
        assert tape.bill(way=WHEN_IDLE).clearings == clearings

    def test_going_first_makes_the_cold_rewrite_smaller(self) -> None:
        tape = Tape().prompt(100).reads(8).answer(1).prompt(50, after=400).answer(1)
        policy = replace(ROOMY, time_based_keep_results=5)
        cleared, whole = tape.bill(way=WHEN_IDLE, policy=policy), tape.bill()
        assert cleared.read == whole.read
        assert whole.written - cleared.written == 3 * FREED_TOKENS


class TestPublishedOrder:
    AS_PUBLISHED: ClassVar[dict[str, float]] = {
        DROPPED: 4.0,
        MASKED: 1.75,
        FULL_ONLY: 1.0,
        IN_BATCHES: 0.98,
        WHEN_IDLE: 0.91,
        OURS: 2.0,
    }

    def test_holds_whatever_ours_costs(self) -> None:
        assert out_of_order(self.AS_PUBLISHED) == []

    def test_batches_may_cost_more_than_full_only(self) -> None:
        """The page's 0.97 to 1.05 lie on both sides of 1."""
        assert out_of_order({**self.AS_PUBLISHED, IN_BATCHES: 1.05}) == []

    def test_names_each_pair_that_is_not_in_it(self) -> None:
        assert out_of_order({**self.AS_PUBLISHED, WHEN_IDLE: 1.0}) == [
            f"{FULL_ONLY} 1.000 is not above {WHEN_IDLE} 1.000",
            f"{IN_BATCHES} 0.980 is not above {WHEN_IDLE} 1.000",
        ]


class TestMean:
    def test_families_count_alike_however_many_recordings_they_have(self) -> None:
        assert family_mean({"a-1": 1.0, "a-2": 2.0, "a-3": 3.0, "b-1": 4.0}) == 3.0
