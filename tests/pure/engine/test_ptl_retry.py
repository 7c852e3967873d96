"""A summary request that is too long (S16): what goes, what is told of it, and when it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from compaction_app.engine.outcome import CompactionRefused, FailureReason
from compaction_app.engine.overflow import Overflow, OverflowKind
from compaction_app.engine.ports import ProviderProblem
from sessions_app.policy import Policy
from sessions_app.transcript.view import fold
from tests.build import FAMILY, Talk, boundary, res, thinking, use
from tests.pure.engine.model_calls import asking, conversation_of, failed, request_of, said, small_window

BOTH = [True, False]


def talk(turns: int = 20, size: int = 200) -> Talk:
    made = Talk()
    for number in range(turns):
        made.u(f"do step {number}").a(thinking(), use(f"c{number}", file_path=f"/p/{number}.py"))
        made.u(res(f"c{number}", f"line {number}\n" * size)).a(f"step {number} is done")
    return made


def too_long(prompt: int | None = None, limit: int | None = None, **more: Any) -> Exception:
    over = Overflow(kind=OverflowKind.TOKENS, prompt_tokens=prompt, limit_tokens=limit)
    return failed(ProviderProblem.TOO_LONG, status=400, overflow=over, **more)


@pytest.mark.parametrize("shared", BOTH)
class TestRounds:
    def test_the_named_gap_is_covered(self, shared: bool) -> None:
        messages = talk().messages
        asked = asking(too_long(210_000, 200_000), said())
        asked.summarize(request_of(messages, policy=Policy(cache_prefix=shared)))
        first, second = asked.book.calls
        assert first.cut is None
        assert second.cut is not None
        assert second.cut.gap_tokens == 10_000
        scale = 210_000 / first.request_tokens
        assert second.cut.dropped_tokens * scale >= 10_000 * 1.05
        assert second.is_new_cut

    def test_without_a_gap_a_fifth_of_the_groups(self, shared: bool) -> None:
        asked = asking(too_long(), said())
        asked.summarize(request_of(talk().messages, policy=Policy(cache_prefix=shared)))
        cut = asked.book.calls[1].cut
        assert cut is not None
        total = cut.dropped_groups + cut.remaining_groups
        assert cut.dropped_groups / total == pytest.approx(0.2, abs=0.05)

    def test_three_retries_and_no_more(self, shared: bool) -> None:
        asked = asking(too_long())
        with pytest.raises(CompactionRefused) as caught:
            asked.summarize(request_of(talk().messages, policy=Policy(cache_prefix=shared)))
        assert caught.value.reason is FailureReason.PROMPT_TOO_LONG
        assert [call.cut.retry if call.cut else 0 for call in asked.book.calls] == [0, 1, 2, 3]
        remaining = [call.cut.remaining_groups for call in asked.book.calls if call.cut]
        assert remaining == sorted(remaining, reverse=True)

    def test_t19_t31_what_went_is_told_once_and_the_first_request_survives(self, shared: bool) -> None:
        asked = asking(too_long(), too_long(), said())
        asked.summarize(request_of(talk().messages, policy=Policy(cache_prefix=shared)))
        for request in asked.model.requests[1:]:
            told = json.dumps(request.messages)
            assert told.count("had to be left out") == 1
            assert "do step 0" in told
            assert request.messages[0]["role"] == "user"

    def test_nothing_left_to_drop(self, shared: bool) -> None:
        messages = Talk().u("go").a("I go " * 500).messages
        with pytest.raises(CompactionRefused) as caught:
            asking(too_long(210_000, 200_000)).summarize(request_of(messages, policy=Policy(cache_prefix=shared)))
        assert caught.value.reason is FailureReason.PROMPT_TOO_LONG

    def test_preflight_the_first_cut_comes_before_the_first_call(self, shared: bool) -> None:
        asked = asking(said(), limits=small_window(30_000))
        asked.summarize(request_of(talk(60, size=400).messages, policy=Policy(cache_prefix=shared)))
        [call] = asked.book.calls
        assert call.cut is not None
        assert call.cut.preflight
        assert call.request_tokens <= 30_000 - asked.model.requests[0].max_tokens

    def test_the_windows_end_counts_as_too_long(self, shared: bool) -> None:
        asked = asking(said("half", stop_reason="model_context_window_exceeded"), said())
        asked.summarize(request_of(talk().messages, policy=Policy(cache_prefix=shared)))
        assert asked.book.outcomes == ["too_long", "ok"]
        assert asked.book.calls[1].cut is not None


class TestOutput:
    def test_less_output_goes_before_rounds_do(self) -> None:
        over = Overflow(kind=OverflowKind.OUTPUT, prompt_tokens=190_000, limit_tokens=200_000, max_tokens=20_000)
        asked = asking(failed(ProviderProblem.TOO_LONG, overflow=over), said())
        asked.summarize(request_of(talk().messages))
        assert [request.max_tokens for request in asked.model.requests] == [20_000, 10_000]
        assert asked.book.calls[1].cut is not None
        assert asked.book.calls[1].cut.dropped_groups == 0

    def test_too_little_output_is_none(self) -> None:
        over = Overflow(kind=OverflowKind.OUTPUT, prompt_tokens=199_000, limit_tokens=200_000, max_tokens=20_000)
        asked = asking(failed(ProviderProblem.TOO_LONG, overflow=over), said())
        asked.summarize(request_of(talk().messages))
        cut = asked.book.calls[1].cut
        assert cut is not None
        assert cut.dropped_groups > 0

    def test_t41_never_more_output_than_the_model_has(self) -> None:
        asked = asking(said(), limits=small_window(200_000))
        asked.summarize(request_of(talk().messages))
        assert asked.model.requests[0].max_tokens == 8_000


class TestBytes:
    IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD" * 2_000}}

    def with_images(self) -> Talk:
        made = talk(10)
        made.u("look", self.IMAGE).a(use("shot")).u(res("shot", [self.IMAGE])).a("seen")
        return made

    def test_media_go_first_and_no_round(self) -> None:
        over = Overflow(kind=OverflowKind.BYTES)
        asked = asking(failed(ProviderProblem.TOO_LARGE, status=413, overflow=over), said())
        asked.summarize(request_of(self.with_images().messages))
        first, second = asked.model.requests
        assert json.dumps(first.messages).count("QUJD") > 0
        assert json.dumps(second.messages).count("QUJD") == 0
        assert "[image]" in json.dumps(second.messages)
        cut = asked.book.calls[1].cut
        assert cut is not None
        assert (cut.dropped_groups, cut.media) == (0, 2)

    def test_then_rounds_do(self) -> None:
        over = Overflow(kind=OverflowKind.BYTES)
        large = failed(ProviderProblem.TOO_LARGE, status=413, overflow=over)
        asked = asking(large, large, said())
        asked.summarize(request_of(self.with_images().messages))
        cut = asked.book.calls[2].cut
        assert cut is not None
        assert cut.dropped_groups > 0

    def test_preflight_knows_the_limit(self) -> None:
        asked = asking(said())
        policy = Policy(request_bytes=20_000)
        asked.summarize(request_of(self.with_images().messages, policy=policy))
        [call] = asked.book.calls
        assert call.cut is not None
        assert call.cut.preflight

    def test_alone_there_are_no_media_at_all(self) -> None:
        asked = asking(said())
        asked.summarize(request_of(self.with_images().messages, policy=Policy(cache_prefix=False)))
        assert "QUJD" not in json.dumps(asked.model.requests[0].messages)


def test_a_cut_request_marks_no_cache() -> None:
    asked = asking(too_long(), said())
    asked.summarize(request_of(talk().messages, conversation=conversation_of(talk().messages, warm=True)))
    assert "cache_control" in json.dumps(asked.model.requests[0].messages)
    assert "cache_control" not in json.dumps(asked.model.requests[1].messages)
    assert "signature" not in json.dumps(asked.model.requests[1].messages), "thinking is bound to what went"


@pytest.mark.parametrize("digest", [0, 1, 100, 600])
def test_any_size_of_digest(digest: int) -> None:
    asked = asking(too_long(), said())
    asked.summarize(request_of(talk().messages, policy=Policy(ptl_digest_tokens=digest)))
    told = json.dumps(asked.model.requests[1].messages)
    assert told.count("had to be left out") == 1
    assert ("<digest>" in told) is (digest > 0)


def test_retries_are_counted_over_both_ways() -> None:
    asked = asking(too_long(), too_long(), said(" "), too_long(), too_long(), said())
    with pytest.raises(CompactionRefused) as caught:
        asked.summarize(request_of(talk(40).messages))
    assert caught.value.reason is FailureReason.PROMPT_TOO_LONG
    assert [call.way.value for call in asked.book.calls] == ["cached_prefix"] * 3 + ["standalone"] * 2


@pytest.mark.parametrize("shared", BOTH)
def test_an_earlier_summary_is_never_dropped(shared: bool) -> None:
    messages = talk().messages
    old = boundary(4, committed_at=4, summary="the ledger was migrated")
    view = fold(messages=messages, boundaries=[old], family=FAMILY)
    shown = list(view.messages)
    asked = asking(too_long(), too_long(), too_long(), said())
    asked.summarize(
        request_of(
            shown,
            conversation=conversation_of(shown, view=view),
            earlier_summary="the ledger was migrated",
            policy=Policy(cache_prefix=shared),
        )
    )
    assert all("the ledger was migrated" in json.dumps(request.messages) for request in asked.model.requests)
    first = asked.model.requests[-1].messages[0]["content"]
    assert "the ledger was migrated" in first[0]["text"], "in front, the marker behind it"
