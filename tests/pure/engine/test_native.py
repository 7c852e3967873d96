"""The provider's own compaction as a summariser: what is asked for, what is taken, what stands in for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from compaction_app.engine.command import Scope
from compaction_app.engine.links.cache_edits import CACHE_EDITS
from compaction_app.engine.links.full import FULL
from compaction_app.engine.model_summary.native import NativeSummarizer
from compaction_app.engine.model_summary.native_request import MOST_INSTRUCTIONS
from compaction_app.engine.outcome import CompactionCancelled, CompactionRefused
from compaction_app.engine.ports import Completion, ProviderProblem, SummaryResult
from sessions_app.policy import Policy
from sessions_app.transcript.boundary import BoundaryKind, ClearedResult, Clearing
from sessions_app.transcript.native import COMPACTION_BETA, UNREADABLE, betas_for, is_signed, readable
from sessions_app.transcript.request import build_request
from sessions_app.transcript.validation import validate_messages
from sessions_app.transcript.view import fold
from tests.build import FAMILY, Talk, boundary, res, text, thinking, use
from tests.pure.engine.model_calls import (
    MODEL,
    Asked,
    ScriptedModel,
    asking,
    conversation_of,
    failed,
    request_of,
    said,
    small_window,
)
from tests.pure.engine.situations import reads, situation_of

P = ProviderProblem
BLOCK = {"signature": "c2ln", "type": "compaction", "x": {"b": 1, "a": "é"}, "content": "what was", "tool_changes": []}
USED = {
    "input_tokens": 0,
    "output_tokens": 0,
    "iterations": [{"type": "compaction", "input_tokens": 900, "output_tokens": 100}],
}


def compacted(*blocks: Any, stop: str | None = "compaction", **more: Any) -> Completion:
    found = blocks or (BLOCK,)
    values: dict[str, Any] = {"usage": USED, "compactions": found, "blocks": tuple(b["type"] for b in found)}
    return said("", stop_reason=stop, **{**values, **more})


def empty(stop: str | None) -> Completion:
    return compacted(stop=stop, compactions=(), blocks=())


@dataclass
class Native:
    """A native summariser with all that it touches."""

    asked: Asked

    def summarize(self, request: Any) -> SummaryResult:
        return NativeSummarizer(own=self.asked.summarizer).summarize(request=request, progress=self.asked.progress)

    @property
    def ways(self) -> list[str]:
        return [call.way.value for call in self.asked.book.calls]

    @property
    def sent(self) -> list[Any]:
        return self.asked.model.requests


def native(*answers: Any, **more: Any) -> Native:
    return Native(asking(*(answers or (compacted(),)), **more))


def talk_of(rounds: int = 6) -> Talk:
    talk = Talk()
    for number in range(rounds):
        talk.u(f"step {number}").a(thinking(), use(f"c{number}")).u(res(f"c{number}", "x" * 900)).a(f"done {number}")
    return talk


class TestRequest:
    def test_it_asks_for_what_is_compacted_and_leaves_the_tail_out(self) -> None:
        talk = talk_of()
        told = native()
        told.summarize(request_of(talk.messages, tail=4))
        [sent] = told.sent
        shown = build_request(view=fold(messages=talk.messages[:-4], boundaries=[], family=FAMILY)).messages
        assert [m["role"] for m in sent.messages] == [m["role"] for m in shown]
        assert "step 4" in repr(sent.messages)
        assert "step 5" not in repr(sent.messages)
        assert sent.messages[-1]["role"] == "assistant", "nothing is put behind it"
        assert (sent.model, sent.system, sent.betas) == (MODEL, "be careful", (COMPACTION_BETA,))
        assert set(sent.body()) == {"model", "max_tokens", "messages", "system", "compaction"}
        assert sent.compaction == {"type": "summarize"}
        assert "hm" in repr(sent.messages), "thinking stands on the prefix that it was made from"

    def test_a_warm_prefix_is_read_from_the_cache(self) -> None:
        talk = talk_of()
        for warm in (True, False):
            told = native()
            told.summarize(request_of(talk.messages, tail=4, conversation=conversation_of(talk.messages, warm=warm)))
            assert repr(told.sent[0].messages).count("cache_control") == (1 if warm else 0)

    def test_a_block_at_the_head_goes_first_and_nothing_else_of_the_kind(self) -> None:
        talk = talk_of()
        head = boundary(8, committed_at=8, summary_blocks=({**BLOCK, "signature": "first"},))
        view = fold(messages=talk.messages, boundaries=[head], family=FAMILY)
        told = native()
        result = told.summarize(
            request_of(talk.messages[8:], tail=4, conversation=conversation_of(talk.messages, view=view))
        )
        [sent] = told.sent
        assert sent.messages[0]["content"][0] == {**BLOCK, "signature": "first"}
        assert repr(sent.messages).count("'compaction'") == 1
        assert result.blocks == (BLOCK,), "the newest takes its place"

    def test_results_that_edits_clear_go_whole_and_no_edits_with_them(self) -> None:
        talk = talk_of()
        gone = ClearedResult(tool_use_id="c0", tool="Read", position=3, tokens_freed=9, reason="old")
        micro = boundary(
            0,
            committed_at=20,
            kind=BoundaryKind.MICROCOMPACT,
            clearing=Clearing.API_EDIT,
            cleared_tool_use_ids=frozenset({"c0"}),
            cleared_at=frozenset({(3, gone.tool_use_id)}),
        )
        view = fold(messages=talk.messages, boundaries=[micro], family=FAMILY, edits_at_api=True)
        assert any(item.edited for item in view.items)
        told = native()
        told.summarize(request_of(talk.messages, tail=4, conversation=conversation_of(talk.messages, view=view)))
        [sent] = told.sent
        assert not sent.context_management
        assert repr(sent.messages).count("x" * 900) == 5
        assert "_edited" not in repr(sent.messages)

    def test_words_of_ours_only_where_somebody_wants_something(self) -> None:
        talk = talk_of()
        told = native()
        result = told.summarize(request_of(talk.messages, instructions="Keep </custom_instructions> the SQL."))
        asked = told.sent[0].compaction["instructions"]
        assert "Keep &lt;/custom_instructions> the SQL." in asked
        assert "call no tool" in asked
        assert len(asked) <= MOST_INSTRUCTIONS
        assert result.prompt_version == "native-1"
        told = native()
        told.summarize(request_of(talk.messages, hook_instructions="Name the tickets."))
        assert "Name the tickets." in told.sent[0].compaction["instructions"]
        told = native()
        assert told.summarize(request_of(talk.messages, instructions="  ")).prompt_version == "provider"
        assert "instructions" not in told.sent[0].compaction

    def test_it_counts_what_it_sends(self) -> None:
        talk = talk_of()
        told = native()
        told.summarize(request_of(talk.messages, tail=4))
        [call] = told.asked.book.calls
        assert call.request_tokens > sum(m.tokens for m in talk.messages[:-4]) * 0.9
        assert call.request_bytes > 4_000


class TestResult:
    def test_the_block_stands_for_the_summary(self) -> None:
        told = native()
        result = told.summarize(request_of(talk_of().messages, tail=4))
        assert result.text == "what was"
        assert list(result.blocks[0].items()) == list(BLOCK.items())
        assert (result.summarizer, result.model, result.response_id) == ("anthropic_native", MODEL, "msg_1")
        assert (result.usage["input_tokens"], result.usage["output_tokens"]) == (900, 100)
        assert not result.from_originals
        assert not result.note
        [call] = told.asked.book.calls
        assert (call.way.value, call.outcome, call.stop_reason) == ("native", "ok", "compaction")
        assert call.cost_usd

    def test_one_that_can_not_be_read_is_taken_too(self) -> None:
        block = {**BLOCK, "content": None, "encrypted_content": "abc"}
        assert native(compacted(block)).summarize(request_of(talk_of().messages)).text == UNREADABLE

    def test_while_it_is_waited_for_the_run_is_kept(self) -> None:
        told = native()
        told.summarize(request_of(talk_of().messages))
        assert {stage for stage, _, _ in told.asked.progress.told} == {"summarizing"}


# What comes in place of a block -> words of the note.
NOTHING: dict[str, tuple[Any, str]] = {
    "max_tokens": (empty("max_tokens"), "cut off"),
    "model_context_window_exceeded": (empty("model_context_window_exceeded"), "window"),
    "tool_use": (empty("tool_use"), "called a tool"),
    "refusal": (empty("refusal"), "refused"),
    "end_turn": (empty("end_turn"), "wrote nothing"),
    "another stop": (empty("tomorrow"), "tomorrow"),
    "no block": (empty("compaction"), "0 blocks"),
    "no signature": (compacted({**BLOCK, "signature": ""}), "not signed"),
    "null signature": (compacted({**BLOCK, "signature": None}), "not signed"),
    "no content": (compacted({**BLOCK, "content": None}), "says nothing"),
    "two": (compacted(BLOCK, BLOCK), "2 blocks"),
    "and a text": (compacted(compactions=(BLOCK,), blocks=("compaction", "text")), "2 blocks"),
    "another stop with a block": (compacted(stop="stop_sequence"), "stop_sequence"),
    "misplaced": (failed(P.REFUSED, status=400, code="compaction_block_misplaced"), "compaction_block_misplaced"),
    "not supported": (failed(P.REFUSED, status=400), "HTTP 400"),
    "too long": (failed(P.TOO_LONG, status=400), "too_long"),
    "too large": (failed(P.TOO_LARGE, status=413), "too_large"),
    "no key": (failed(P.CREDENTIALS, status=401), "ANTHROPIC_API_KEY"),
    "garbage": (failed(P.UNREADABLE), "Messages API"),
    "a long wait": (failed(P.RATE_LIMITED, status=429, retry_after=3_600.0), "rate limit"),
}


class TestFallBack:
    @pytest.mark.parametrize(("answer", "words"), NOTHING.values(), ids=list(NOTHING))
    def test_our_own_summary_stands_in(self, answer: Any, words: str) -> None:
        told = native(answer, said())
        result = told.summarize(request_of(talk_of().messages, tail=4))
        assert (result.summarizer, result.blocks) == ("anthropic", ())
        assert result.text.startswith("## 1.")
        assert words in result.note
        assert told.ways == ["native", "cached_prefix"]
        assert told.asked.book.calls[0].outcome != "ok"

    @pytest.mark.parametrize("problem", [P.OVERLOADED, P.RATE_LIMITED, P.SERVER_ERROR, P.TIMEOUT, P.UNREACHABLE])
    def test_what_may_pass_is_tried_once_more(self, problem: ProviderProblem) -> None:
        told = native(failed(problem), compacted())
        assert told.summarize(request_of(talk_of().messages)).blocks
        told = native(failed(problem), failed(problem), said())
        assert told.summarize(request_of(talk_of().messages)).summarizer == "anthropic"
        assert told.ways == ["native", "native", "cached_prefix"]

    def test_a_stream_that_was_cut_off_is_tried_once_more(self) -> None:
        told = native(empty(None), compacted())
        assert told.summarize(request_of(talk_of().messages)).blocks
        told = native(empty(None), empty(None), said())
        assert told.summarize(request_of(talk_of().messages)).summarizer == "anthropic"
        assert told.asked.book.outcomes == ["truncated", "truncated", "ok"]

    def test_all_that_was_used_is_told(self) -> None:
        told = native(compacted(BLOCK, BLOCK), said())
        used = told.summarize(request_of(talk_of().messages)).usage
        assert (used["input_tokens"], used["output_tokens"]) == (1_900, 300)

    def test_both_fail(self) -> None:
        told = native(empty("refusal"), failed(P.CREDENTIALS, status=401))
        with pytest.raises(CompactionRefused) as caught:
            told.summarize(request_of(talk_of().messages))
        assert caught.value.reason == "api_error"
        assert "the model refused" in caught.value.detail
        assert "ANTHROPIC_API_KEY" in caught.value.detail

    @pytest.mark.parametrize(
        ("more", "how", "words"),
        [
            ({"scope": Scope.FROM}, {}, "in front of it"),
            ({"kept_before": talk_of(1).messages}, {}, "in front of it"),
            ({}, {"override": "claude-haiku-5-5"}, "COMPACTION_MODEL"),
            ({}, {"limits": small_window(3_000)}, "no room"),
            ({"policy": Policy(request_bytes=10_000)}, {}, "too large"),
            ({"instructions": "x" * MOST_INSTRUCTIONS}, {}, "characters"),
            ({"generation": 3, "earlier_summary": "what was"}, {}, "made from them"),
        ],
        ids=["from", "kept before", "another model", "no room", "too large", "long instructions", "many generations"],
    )
    def test_where_it_is_not_even_asked_for(self, more: dict[str, Any], how: dict[str, Any], words: str) -> None:
        told = native(said(), **how)
        result = told.summarize(request_of(talk_of(20).messages, **more))
        assert words in result.note
        assert "native" not in told.ways
        assert result.summarizer == "anthropic"

    def test_up_to_is_a_part_that_begins_with_the_session(self) -> None:
        assert native().summarize(request_of(talk_of().messages, tail=8, scope=Scope.UP_TO)).blocks

    def test_one_deadline_for_both(self) -> None:
        model = ScriptedModel(answers=[failed(P.TIMEOUT), said()], takes_seconds=400.0)
        told = Native(Asked(model=model))
        result = told.summarize(request_of(talk_of().messages, policy=Policy(summary_deadline_seconds=600)))
        assert told.ways == ["native", "cached_prefix"], "half of the time is left for the other way"
        assert result.summarizer == "anthropic"
        assert told.asked.summarizer.until == 600.0

    def test_a_cancelled_run_asks_nobody_else(self) -> None:
        def stop(**_: Any) -> None:
            raise CompactionCancelled

        told = native()
        told.asked.progress.report = stop  # type: ignore[method-assign]
        with pytest.raises(CompactionCancelled):
            told.summarize(request_of(talk_of().messages))
        assert told.ways == []


class TestOffer:
    def test_the_draft_holds_the_block_and_the_context_is_valid(self) -> None:
        talk = reads(30)
        situation = replace(
            situation_of(talk.messages), conversation=conversation_of(talk.messages), summarizer=_as(compacted())
        )
        draft = FULL.attempt(situation).draft
        assert draft is not None
        assert draft.summary_blocks == (BLOCK,)
        assert (draft.summary, draft.summarizer, draft.generation) == ("what was", "anthropic_native", 1)
        head = draft.as_boundary(committed_at=len(talk.messages), created_at=situation.now, sequence=1)
        built = build_request(view=fold(messages=talk.messages, boundaries=[head], family=FAMILY))
        assert validate_messages(messages=built.messages) == []
        assert built.messages[0]["content"][0] == BLOCK
        assert built.betas == (COMPACTION_BETA,)

    def test_a_note_is_part_of_why(self) -> None:
        talk = reads(30)
        situation = replace(
            situation_of(talk.messages),
            conversation=conversation_of(talk.messages),
            summarizer=_as(empty("refusal"), said()),
        )
        step = FULL.attempt(situation)
        assert "the model refused" in step.why
        assert step.draft is not None
        assert step.draft.summary_blocks == ()


def _as(*answers: Any) -> Any:
    return NativeSummarizer(own=asking(*answers).summarizer)


def client_block(talk: Talk, block: dict[str, Any], *, later: Callable[[Talk], Any] = lambda talk: talk) -> Talk:
    talk.a(block).u("and now?").a("done")
    later(talk)
    return talk


class TestClientsOwn:
    """Blocks in what a client has appended."""

    def request(self, talk: Talk) -> Any:
        built = build_request(view=fold(messages=talk.messages, boundaries=[], family=FAMILY))
        assert validate_messages(messages=built.messages) == []
        return built

    def test_signed_and_first_it_stays_to_the_letter(self) -> None:
        built = self.request(client_block(Talk(), {**BLOCK, "id": 7, "cache_control": {"type": "ephemeral"}}))
        assert built.messages[0] == {"role": "assistant", "content": [{**BLOCK, "id": 7}]}
        assert built.betas == (COMPACTION_BETA,)

    @pytest.mark.parametrize("signature", [None, "", " ", 5])
    def test_without_a_signature_it_is_its_text(self, signature: Any) -> None:
        built = self.request(client_block(Talk(), {**BLOCK, "signature": signature}))
        assert built.messages[1]["content"] == [text("what was")]
        assert built.betas == ()

    def test_behind_something_it_is_its_text(self) -> None:
        built = self.request(client_block(Talk().u("go"), BLOCK))
        assert built.messages[1]["content"] == [text("what was")]
        assert built.betas == ()

    def test_of_two_the_first_is_one(self) -> None:
        built = self.request(client_block(Talk().a(BLOCK, {**BLOCK, "content": "another"}), BLOCK))
        assert built.messages[0]["content"] == [BLOCK, text("another"), text("what was")]

    def test_one_that_has_failed_is_left_out(self) -> None:
        built = self.request(client_block(Talk().u("go"), {"type": "compaction", "content": None}))
        assert "compaction" not in repr(built.messages)

    def test_in_a_users_message_it_is_its_text(self) -> None:
        assert self.request(Talk().u(BLOCK, "go")).messages[0]["content"] == [text("what was"), text("go")]

    def test_a_summary_of_ours_in_front_of_it_makes_it_text_or_hides_it(self) -> None:
        talk = client_block(Talk(), BLOCK)
        view = fold(messages=talk.messages, boundaries=[boundary(2, committed_at=3)], family=FAMILY)
        assert "compaction'" not in repr(build_request(view=view).messages)

    def test_edits_are_never_sent_beside_it(self) -> None:
        talk = client_block(Talk(), BLOCK, later=lambda talk: talk.a(use("c0")).u(res("c0", "x" * 900)).a("ok"))
        micro = boundary(
            0,
            committed_at=6,
            kind=BoundaryKind.MICROCOMPACT,
            clearing=Clearing.API_EDIT,
            cleared_tool_use_ids=frozenset({"c0"}),
            cleared_at=frozenset({(5, "c0")}),
        )
        view = fold(messages=talk.messages, boundaries=[micro], family=FAMILY, edits_at_api=True)
        built = build_request(view=view)
        assert built.edited == ()
        assert "x" * 900 not in repr(built.messages)


class TestCacheEdits:
    @pytest.mark.parametrize("leads", [True, False])
    def test_the_link_passes_where_a_block_leads(self, leads: bool) -> None:
        talk = reads(60)
        blocks = (BLOCK,) if leads else ()
        head = boundary(4, committed_at=4, summary_blocks=blocks)
        step = CACHE_EDITS.attempt(situation_of(talk.messages, boundaries=[head]))
        assert (step.draft is None) == leads
        assert ("compaction block" in step.why) == leads


@pytest.mark.parametrize(
    ("block", "signed", "told"),
    [
        (BLOCK, True, "what was"),
        ({**BLOCK, "content": " ", "encrypted_content": "x"}, True, UNREADABLE),
        ({**BLOCK, "content": 5}, False, ""),
        ({"type": "compaction"}, False, ""),
        ({"type": "text", "text": "x", "signature": "s"}, False, ""),
    ],
)
def test_what_a_block_is(block: dict[str, Any], signed: bool, told: str) -> None:
    assert (is_signed(block), readable(block)) == (signed, told)
    assert betas_for([{"role": "assistant", "content": [block]}]) == ((COMPACTION_BETA,) if signed else ())


def test_nothing_has_no_betas() -> None:
    assert betas_for([]) == betas_for([{"role": "user", "content": "x"}]) == betas_for([{"role": "user"}]) == ()


class TestOurOwnBehindABlock:
    """A later summary of ours, of a conversation that begins with a block."""

    def request(self) -> Any:
        talk = talk_of()
        head = boundary(8, committed_at=8, summary_blocks=(BLOCK,))
        view = fold(messages=talk.messages, boundaries=[head], family=FAMILY)
        conversation = conversation_of(talk.messages, view=view)
        return request_of(talk.messages[8:], tail=4, conversation=conversation, earlier_summary="what was")

    def test_it_carries_the_block_with_its_beta(self) -> None:
        told = asking(said())
        told.summarize(self.request())
        [sent] = told.model.requests
        assert sent.messages[0]["content"] == [BLOCK]
        assert sent.betas == (COMPACTION_BETA,)
        assert not sent.context_management

    @pytest.mark.parametrize(
        "error",
        [
            failed(P.REFUSED, status=400, code="compaction_signature_invalid"),
            failed(P.REFUSED, status=400),
            failed(P.OVERLOADED, status=529, code="compaction_unavailable"),
        ],
        ids=["signature", "unknown to it", "unavailable"],
    )
    def test_refused_for_the_block_it_asks_with_its_text(self, error: Exception) -> None:
        told = asking(error, said())
        assert told.summarize(self.request()).blocks == ()
        assert [call.way.value for call in told.book.calls] == ["cached_prefix", "standalone"]
        assert "what was" in repr(told.model.requests[1].messages)
        assert told.model.requests[1].betas == ()

    def test_refused_for_anything_else_it_fails(self) -> None:
        told = asking(failed(P.CREDENTIALS, status=401), said())
        with pytest.raises(CompactionRefused):
            told.summarize(self.request())

    def test_a_native_one_that_is_refused_for_it_ends_in_a_summary_of_ours(self) -> None:
        refused = failed(P.REFUSED, status=400, code="compaction_content_mismatch")
        told = native(refused, refused, said())
        result = told.summarize(self.request())
        assert told.ways == ["native", "cached_prefix", "standalone"]
        assert (result.blocks, result.summarizer) == ((), "anthropic")
