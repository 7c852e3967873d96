"""The summariser that asks a model: ways, retries, deadline, what is recorded."""

from __future__ import annotations

from typing import Any

import pytest

from compaction_app.engine.outcome import CompactionCancelled, CompactionRefused, FailureReason
from compaction_app.engine.ports import ProviderProblem
from sessions_app.policy import Policy
from tests.build import Talk, res, use
from tests.pure.engine.model_calls import SUMMARY, Asked, Heard, asking, conversation_of, failed, request_of, said


def talk(turns: int = 6) -> Talk:
    made = Talk()
    for number in range(turns):
        made.u(f"do step {number}").a(use(f"c{number}", file_path=f"/p/{number}.py"))
        made.u(res(f"c{number}", "line\n" * 50)).a(f"step {number} is done")
    return made


def refused(asked: Asked, **more: Any) -> CompactionRefused:
    with pytest.raises(CompactionRefused) as caught:
        asked.summarize(request_of(talk().messages, **more))
    return caught.value


class TestSuccess:
    def test_what_comes_of_it(self) -> None:
        asked = asking(said())
        result = asked.summarize(request_of(talk().messages))
        assert result.text.splitlines() == SUMMARY.replace("\n## ", "\n\n## ").splitlines()
        assert (result.summarizer, result.response_id, result.shared_prefix) == ("anthropic", "msg_1", True)
        assert result.usage["output_tokens"] == 200
        [call] = asked.book.calls
        assert (call.outcome, call.said, call.cut) == ("ok", "", None)
        assert call.cost_usd is not None
        assert call.request_bytes > call.request_tokens > 0

    def test_progress_never_goes_back_and_tells_tokens(self) -> None:
        asked = asking(failed(ProviderProblem.OVERLOADED), said())
        asked.summarize(request_of(talk().messages))
        fractions = [fraction for _, fraction, _ in asked.progress.told]
        assert fractions == sorted(fractions)
        assert max(tokens for *_, tokens in asked.progress.told) > 50

    @pytest.mark.parametrize(
        ("override", "prefix", "shared"), [("", True, True), ("", False, False), ("x", True, False)]
    )
    def test_which_way(self, override: str, prefix: bool, shared: bool) -> None:
        asked = asking(said(), override=override)
        result = asked.summarize(request_of(talk().messages, policy=Policy(cache_prefix=prefix)))
        assert result.shared_prefix is shared
        [request] = asked.model.requests
        assert (request.system == "be careful") is shared
        assert request.model == (override or "claude-sonnet-4-5")

    def test_no_model_is_known(self) -> None:
        told = refused(asking(said()), conversation=conversation_of(talk().messages, model=""))
        assert told.reason is FailureReason.API_ERROR
        assert "COMPACTION_MODEL" in told.detail


NO_SUMMARY = {
    "blank": said("   "),
    "only thinking": said("", blocks=("thinking",)),
    "a tool call": said("", stop_reason="tool_use", blocks=("tool_use",)),
    "a tool call beside text": said(blocks=("text", "tool_use")),
    "sections missing": said("<summary>\n## 1. Primary Request and Intent\n- x\n</summary>"),
    "paused": said("", stop_reason="pause_turn"),
}


class TestRefusals:
    @pytest.mark.parametrize("answer", NO_SUMMARY.values(), ids=NO_SUMMARY)
    def test_t18_what_is_no_summary_is_refused_in_both_ways(self, answer: Any) -> None:
        asked = asking(answer)
        assert refused(asked).reason is FailureReason.NO_SUMMARY
        assert [call.way.value for call in asked.book.calls] == ["cached_prefix", "standalone"]
        assert [call.said for call in asked.book.calls] == [answer.text, answer.text]
        assert all(call.usage for call in asked.book.calls), "it was billed all the same"

    @pytest.mark.parametrize(
        ("stop", "reason"),
        [("max_tokens", FailureReason.TRUNCATED), ("refusal", FailureReason.REFUSED)],
    )
    def test_stop_reasons(self, stop: str, reason: FailureReason) -> None:
        assert refused(asking(said(stop_reason=stop))).reason is reason

    def test_the_second_way_mends_the_first(self) -> None:
        asked = asking(said(" "), said())
        result = asked.summarize(request_of(talk().messages))
        assert result.shared_prefix is False
        assert asked.book.outcomes == ["no_summary", "ok"]
        assert result.usage["output_tokens"] == 400, "both were billed"

    def test_never_the_other_way(self) -> None:
        asked = asking(said(" "))
        refused(asked, policy=Policy(cache_prefix=False))
        assert len(asked.book.calls) == 1


class TestRetries:
    @pytest.mark.parametrize(
        "problem",
        [
            ProviderProblem.RATE_LIMITED,
            ProviderProblem.OVERLOADED,
            ProviderProblem.SERVER_ERROR,
            ProviderProblem.TIMEOUT,
            ProviderProblem.UNREACHABLE,
        ],
    )
    def test_what_passes_is_tried_again(self, problem: ProviderProblem) -> None:
        asked = asking(failed(problem), failed(problem), said())
        asked.summarize(request_of(talk().messages))
        assert asked.book.outcomes == [problem.value, problem.value, "ok"]
        assert asked.model.clock.now == pytest.approx(1 + 2), "doubling pauses"

    def test_there_is_an_end_to_it(self) -> None:
        asked = asking(failed(ProviderProblem.OVERLOADED))
        told = refused(asked)
        assert told.reason is FailureReason.API_ERROR
        assert "overloaded" in told.detail
        assert len(asked.book.calls) == 1 + Policy().summary_retries

    @pytest.mark.parametrize(
        "problem", [ProviderProblem.CREDENTIALS, ProviderProblem.REFUSED, ProviderProblem.UNREADABLE]
    )
    def test_what_does_not_pass_is_not(self, problem: ProviderProblem) -> None:
        asked = asking(failed(problem))
        told = refused(asked)
        assert told.reason is FailureReason.API_ERROR
        assert "ANTHROPIC" in told.detail
        assert len(asked.book.calls) == 1

    def test_it_waits_as_it_is_asked_to(self) -> None:
        asked = asking(failed(ProviderProblem.RATE_LIMITED, retry_after=7.0), said())
        asked.summarize(request_of(talk().messages))
        assert asked.model.clock.now == pytest.approx(7)
        assert len(asked.progress.told) > 7, "who waits tells that he is still there"

    def test_but_not_for_an_hour(self) -> None:
        asked = asking(failed(ProviderProblem.RATE_LIMITED, retry_after=3_600.0), said())
        assert "3,600" in refused(asked).detail
        assert asked.model.clock.now == 0

    def test_a_stream_that_ends_without_an_end_is_tried_again(self) -> None:
        asked = asking(said("half", stop_reason=None), said())
        assert asked.summarize(request_of(talk().messages)).shared_prefix is True
        told = refused(asking(said("half", stop_reason=None)))
        assert told.reason is FailureReason.TRUNCATED

    def test_one_deadline_for_all_calls(self) -> None:
        asked = asking(failed(ProviderProblem.TIMEOUT))
        asked.model.takes_seconds = 400
        told = refused(asked)
        assert told.reason is FailureReason.API_ERROR
        assert "600 s" in told.detail
        assert len(asked.book.calls) == 2

    def test_it_is_one_deadline_for_a_second_summary_too(self) -> None:
        asked = asking(said())
        asked.model.takes_seconds = 599.5
        asked.summarize(request_of(talk().messages))
        asked.model.clock.now += 1
        assert "600 s" in refused(asked).detail

    def test_a_pause_can_be_cancelled(self) -> None:
        class Cancelling(Heard):
            def report(self, *, stage: str, fraction: float, tokens: int = 0) -> None:
                super().report(stage=stage, fraction=fraction, tokens=tokens)
                if len(self.told) > 3:
                    raise CompactionCancelled

        asked = asking(failed(ProviderProblem.RATE_LIMITED, retry_after=30.0), said(), progress=Cancelling())
        with pytest.raises(CompactionCancelled):
            asked.summarize(request_of(talk().messages))
        assert asked.model.clock.now < 5

    def test_a_call_that_is_cancelled_is_recorded(self) -> None:
        asked = asking(said())
        asked.model.answers = [CompactionCancelled()]
        with pytest.raises(CompactionCancelled):
            asked.summarize(request_of(talk().messages))
        assert asked.book.outcomes == ["stopped"]

    def test_a_deadline_tells_what_stood_in_the_way(self) -> None:
        asked = asking(failed(ProviderProblem.OVERLOADED, retry_after=30.0))
        asked.model.takes_seconds = 580
        told = refused(asked)
        assert told.reason is FailureReason.API_ERROR
        assert "overloaded" in told.detail
        assert "600 s" in told.detail
        assert asked.model.clock.now == 580, "no pause that can't help"

    def test_what_was_said_is_kept_where_the_window_ended_it(self) -> None:
        asked = asking(said("half of it", stop_reason="model_context_window_exceeded"), said())
        result = asked.summarize(request_of(talk().messages))
        assert [call.said for call in asked.book.calls] == ["half of it", ""]
        assert result.usage["output_tokens"] == 400

    def test_a_call_that_failed_after_it_began_was_billed(self) -> None:
        asked = asking(failed(ProviderProblem.SERVER_ERROR, usage={"input_tokens": 5, "output_tokens": 7}), said())
        result = asked.summarize(request_of(talk().messages))
        assert result.usage["output_tokens"] == 207
        assert asked.book.calls[0].cost_usd is not None

    def test_retries_are_counted_over_both_ways(self) -> None:
        down = failed(ProviderProblem.OVERLOADED)
        asked = asking(down, down, said(" "), down, down, said())
        assert refused(asked).reason is FailureReason.API_ERROR
        assert asked.book.outcomes == ["overloaded", "overloaded", "no_summary", "overloaded", "overloaded"]
