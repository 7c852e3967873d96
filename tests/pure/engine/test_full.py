"""The full link: what is cut where, what is refused, what is attached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from compaction_app.engine.attachments import restore_attachments
from compaction_app.engine.extractive import summarize
from compaction_app.engine.links.full import FULL
from compaction_app.engine.outcome import CompactionRefused, FailureReason
from compaction_app.engine.ports import Progress, SummaryRequest, SummaryResult
from compaction_app.engine.segment import whole_segment
from compaction_app.engine.summary import SECTIONS, heading
from compaction_app.engine.values import Situation, Trigger
from sessions_app.catalog import model_info
from sessions_app.policy import Policy
from sessions_app.transcript.boundary import Boundary
from sessions_app.transcript.messages import Message
from sessions_app.transcript.view import fold
from sessions_app.transcript.window import window_of
from tests.build import FAMILY, Talk, boundary, res, use

GOOD = "\n".join(f"{heading(number)}\n- x" for number in range(1, 10))


@dataclass
class FixedSummarizer:
    text: str = GOOD
    requests: list[SummaryRequest] = field(default_factory=list)

    def summarize(self, *, request: SummaryRequest, progress: Progress) -> SummaryResult:
        self.requests.append(request)
        return SummaryResult(text=self.text, summarizer="fixed")


class NoProgress:
    def report(self, *, stage: str, fraction: float) -> None: ...


def situation(
    messages: Sequence[Message],
    *,
    boundaries: Sequence[Boundary] = (),
    summarizer: FixedSummarizer | None = None,
    policy: Policy | None = None,
    overhead: int = 0,
) -> Situation:
    view = fold(messages=messages, boundaries=boundaries, family=FAMILY)
    return Situation(
        view=view,
        tokens=view.tokens + overhead,
        overhead_tokens=overhead,
        last_position=len(messages),
        policy=policy or Policy(),
        family=FAMILY,
        trigger=Trigger.MANUAL,
        now=datetime(2026, 1, 1, tzinfo=UTC),
        window=window_of(policy=policy or Policy(), model=model_info("claude-sonnet-4-5")),
        originals=lambda up_to: [m for m in messages if m.position <= up_to],
        summarizer=summarizer or FixedSummarizer(),
        progress=NoProgress(),
    )


def long_talk(turns: int = 30) -> Talk:
    talk = Talk()
    for number in range(turns):
        talk.u(f"please do step {number}")
        talk.a(use(f"c{number}", file_path=f"/p/f{number % 7}.py"))
        talk.u(res(f"c{number}", f"line of file {number % 7}\n" * 200))
        talk.a(f"step {number} is done")
    return talk


class TestWholeSegment:
    def test_keeps_the_newest_whole_turns_that_fit(self) -> None:
        talk = long_talk()
        segment = whole_segment(messages=talk.messages, tail_tokens=3_000, waiting_tokens=8_000)
        assert segment is not None
        assert segment.tail[0].content == "please do step 28" or str(segment.tail[0].content).startswith("please do")
        assert sum(m.tokens for m in segment.tail) <= 3_000
        assert segment.compacted[-1].position + 1 == segment.tail[0].position == segment.covers_to + 1

    def test_no_tail_when_the_policy_says_so(self) -> None:
        talk = long_talk()
        segment = whole_segment(messages=talk.messages, tail_tokens=0, waiting_tokens=8_000)
        assert segment is not None
        assert segment.tail == ()
        assert segment.covers_to == len(talk.messages)

    def test_t5_the_open_round_stays_even_when_it_is_too_big(self) -> None:
        talk = long_talk().u("and now").a("big " * 5_000, use("open"))
        segment = whole_segment(messages=talk.messages, tail_tokens=10, waiting_tokens=8_000)
        assert segment is not None
        assert [m.position for m in segment.tail] == [len(talk.messages)]

    def test_t8_a_question_that_waits_is_preserved_where_there_is_room(self) -> None:
        talk = Talk().u("go").a(use("Q", "AskUserQuestion", question="which?"))
        for number in range(40):
            talk.u(f"meanwhile {number} " * 20).a(f"answer {number} " * 20)
        segment = whole_segment(messages=talk.messages, tail_tokens=3_000, waiting_tokens=8_000)
        assert segment is not None
        assert segment.preserved is not None
        assert segment.preserved.first == 2

    def test_a_kept_question_does_not_bring_back_what_is_hidden(self) -> None:
        """The question at 2 was preserved, 3 to 60 are hidden, and what is shown goes on at 61."""
        talk = Talk().u("go").a(use("Q", "AskUserQuestion", question="which?"))
        for number in range(80):
            talk.u(f"meanwhile {number} " * 20).a(f"answer {number} " * 20)
        shown = [m for m in talk.messages if m.position <= 2 or m.position > 60]
        segment = whole_segment(messages=shown, tail_tokens=3_000, waiting_tokens=8_000)
        assert segment is not None
        assert segment.preserved is not None
        assert (segment.preserved.first, segment.preserved.last) == (2, 2)
        assert segment.preserved_tokens == talk.messages[1].tokens > 0

    def test_nothing_to_compact_in_one_open_round(self) -> None:
        assert whole_segment(messages=Talk().a(use("open")).messages, tail_tokens=100, waiting_tokens=8_000) is None


class TestFullLink:
    def test_proposes_a_boundary_that_is_much_smaller(self) -> None:
        talk = long_talk()
        step = FULL.attempt(situation(talk.messages))
        assert step.draft is not None
        assert step.draft.summary == GOOD
        assert step.tokens_after < 0.31 * step.tokens_before
        assert str(step.draft.covers_to) in step.why

    def test_t33_the_summariser_reads_originals_of_the_whole_past(self) -> None:
        talk = long_talk()
        summarizer = FixedSummarizer()
        old = boundary(40, committed_at=40, summary="an older summary", summary_tokens=10)
        FULL.attempt(situation(talk.messages, boundaries=[old], summarizer=summarizer))
        read = summarizer.requests[0].history
        assert read[0].position == 1
        assert "an older summary" not in str([m.content for m in read])

    def test_summary_and_tail_stay_within_the_budget(self) -> None:
        summarizer = FixedSummarizer()
        FULL.attempt(situation(long_talk(200).messages, summarizer=summarizer))
        request = summarizer.requests[0]
        assert request.budget_tokens + sum(m.tokens for m in request.tail) <= Policy().full_budget_tokens

    def test_t23_what_is_not_smaller_is_not_offered(self) -> None:
        summarizer = FixedSummarizer(text=GOOD + " word" * 60_000)
        with pytest.raises(CompactionRefused) as refused:
            FULL.attempt(situation(long_talk().messages, summarizer=summarizer))
        assert refused.value.reason == FailureReason.NOT_SMALLER

    @pytest.mark.parametrize(
        "bad",
        [
            "",
            "   \n",
            "all fine",
            GOOD.replace(heading(6), ""),
            "\n".join(heading(number) for number in range(1, 10)),
            f"```\n{GOOD}\n```",
        ],
    )
    def test_t18_a_summary_that_is_none_is_refused(self, bad: str) -> None:
        with pytest.raises(CompactionRefused) as refused:
            FULL.attempt(situation(long_talk().messages, summarizer=FixedSummarizer(text=bad)))
        assert refused.value.reason == FailureReason.NO_SUMMARY

    def test_a_session_without_messages_passes(self) -> None:
        step = FULL.attempt(situation([]))
        assert step.draft is None
        assert step.reason == FailureReason.NOTHING_TO_COMPACT

    def test_a_second_compaction_of_the_same_state_does_nothing(self) -> None:
        talk = long_talk()
        first = FULL.attempt(situation(talk.messages)).draft
        assert first is not None
        summarizer = FixedSummarizer()
        made = boundary(first.covers_to, committed_at=len(talk.messages), summary=GOOD, summary_tokens=200)
        again = FULL.attempt(situation(talk.messages, boundaries=[made], summarizer=summarizer))
        assert again.reason == FailureReason.NOTHING_TO_COMPACT
        assert summarizer.requests == [], "no summary is asked for when there is nothing to compact"

    def test_what_is_too_small_for_a_summary_is_nothing_to_compact(self) -> None:
        step = FULL.attempt(situation(Talk().u("hi").a("hello").u("bye").a("bye").messages))
        assert (step.draft, step.reason) == (None, FailureReason.NOTHING_TO_COMPACT)

    def test_a_usage_that_is_reported_far_too_small_does_not_stand_in_the_way(self) -> None:
        told = replace(situation(long_talk().messages), tokens=100)
        assert FULL.attempt(told).draft is not None


class TestUnansweredPrompt:
    """What a person has asked and nobody has acted on stays verbatim, however long it is."""

    @pytest.mark.parametrize("words", [5, 2_000, 9_000])
    def test_it_stays_whole(self, words: int) -> None:
        talk = long_talk().u("one more thing: " + "and look " * words + "please fix QEND?")
        step = FULL.attempt(situation(talk.messages))
        assert step.draft is not None
        assert step.draft.covers_to < talk.messages[-1].position

    def test_with_all_that_was_said_since_the_response(self) -> None:
        talk = long_talk().u("first " * 3_000).u("second " * 3_000)
        step = FULL.attempt(situation(talk.messages))
        assert step.draft is not None
        assert step.draft.covers_to < talk.messages[-2].position

    def test_where_nothing_was_answered_there_is_nothing_to_compact(self) -> None:
        step = FULL.attempt(situation(Talk().u("first " * 9_000).u("second " * 9_000).messages))
        assert (step.draft, step.reason) == (None, FailureReason.NOTHING_TO_COMPACT)

    def test_an_answered_one_may_go(self) -> None:
        talk = long_talk().u("and look " * 9_000).a("done")
        step = FULL.attempt(situation(talk.messages))
        assert step.draft is not None
        assert step.draft.covers_to >= talk.messages[-2].position


def test_a_picture_leaves_its_mark_in_the_summary() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    talk = long_talk(3).u("see this", image).a("I see").u(image).a("and this")
    text = summarize(
        request=SummaryRequest(history=talk.messages, tail=(), budget_tokens=2_000, family=FAMILY, policy=Policy())
    )
    assert "see this [with image]" in text
    assert "- [with image]" in text


class TestRestoreAttachments:
    def restore(self, talk: Talk, *, tail: int = 0, room: int = 50_000, policy: Policy | None = None):  # type: ignore[no-untyped-def]
        split = len(talk.messages) - tail
        return restore_attachments(
            history=talk.messages[:split],
            tail=talk.messages[split:],
            policy=policy or Policy(),
            family=FAMILY,
            room_tokens=room,
        )

    def test_the_five_files_read_last_newest_first(self) -> None:
        found = self.restore(long_talk(7))
        assert [a.payload["path"] for a in found] == [f"/p/f{n}.py" for n in (6, 5, 4, 3, 2)]

    def test_a_file_edited_after_it_was_read_says_so(self) -> None:
        talk = Talk().u("go").a(use("r", file_path="/a.py")).u(res("r", "x = 1\n" * 300))
        talk.a(use("e", "Edit", file_path="/a.py", old_string="1", new_string="2")).u(res("e", "edited"))
        assert "edited 1 times after that" in self.restore(talk)[0].text

    def test_a_written_file_is_restored_from_what_was_written(self) -> None:
        body = "print('x')\n" * 300
        talk = Talk().u("go").a(use("w", "Write", file_path="/a.py", content=body)).u(res("w", "written"))
        assert "print('x')" in self.restore(talk)[0].text

    def test_what_the_tail_shows_is_not_repeated(self) -> None:
        assert len(self.restore(long_talk(3), tail=4)) == 2

    def test_a_long_file_is_cut_at_a_line_with_a_mark_within_its_budget(self) -> None:
        talk = Talk().u("go").a(use("r", file_path="/a.py")).u(res("r", "some line of code = 1\n" * 5_000))
        found = self.restore(talk)[0]
        assert found.tokens <= Policy().attached_file_tokens
        assert "more lines]" in found.text
        assert found.payload["truncated"] is True

    def test_no_room_no_attachment(self) -> None:
        assert self.restore(long_talk(), room=100) == ()

    def test_failed_reads_and_parts_of_files_are_not_restored(self) -> None:
        talk = Talk().u("go").a(use("r", file_path="/a.py")).u(res("r", "no such file", is_error=True))
        talk.a(use("p", file_path="/b.py", offset=5, limit=3)).u(res("p", "part " * 500))
        assert self.restore(talk) == ()

    def test_an_approved_plan_comes_first_and_a_refused_one_not(self) -> None:
        plan = "1. do this\n2. do that\n" * 50
        talk = Talk().u("go").a(use("p", "ExitPlanMode", plan=plan)).u(res("p", "approved"))
        assert self.restore(talk)[0].kind == "plan"
        talk = Talk().u("go").a(use("p", "ExitPlanMode", plan=plan)).u(res("p", "no", is_error=True))
        assert self.restore(talk) == ()

    @pytest.mark.parametrize("hostile", [{"file_path": 5}, {}, "x", None])
    def test_hostile_inputs_never_raise(self, hostile: object) -> None:
        talk = Talk().u("go").a({"type": "tool_use", "id": "x", "name": "Read", "input": hostile}).u(res("x", None))
        assert self.restore(talk) == ()


def test_the_sections_are_nine() -> None:
    assert len(SECTIONS) == 9
    assert replace(Policy()).full_budget_tokens > 0
