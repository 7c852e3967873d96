"""What the model sees, now and at any boundary."""

from __future__ import annotations

from datetime import UTC, datetime

from sessions_app.transcript.boundary import AttachmentValue, BoundaryKind, Placement, PreservedSegment
from sessions_app.transcript.messages import MessageKind, Role
from sessions_app.transcript.view import ContextView, attachment_content, fold, summary_content
from tests.build import FAMILY, Talk, boundary, res, use


def shown(view: ContextView) -> list[object]:
    return [item.position or item.content for item in view.items]


TALK = Talk().u("1").a("2").u("3").a("4").u("5").a("6")


class TestFold:
    def test_without_boundary_everything_is_shown(self) -> None:
        assert shown(fold(messages=TALK.messages, boundaries=[], family=FAMILY)) == [1, 2, 3, 4, 5, 6]

    def test_a_boundary_puts_its_summary_and_attachments_before_what_stays(self) -> None:
        plan = AttachmentValue(kind="plan", text="the plan", tokens=3)
        view = fold(
            messages=TALK.messages,
            boundaries=[boundary(4, committed_at=6, attachments=(plan,))],
            family=FAMILY,
        )
        assert shown(view) == [summary_content(summary="what was"), attachment_content(text="the plan"), 5, 6]

    def test_t25_a_message_that_came_during_the_run_is_last(self) -> None:
        talk = Talk().u("1").a("2").u("3").a("4").u("late")
        view = fold(messages=talk.messages, boundaries=[boundary(2, committed_at=5)], family=FAMILY)
        assert shown(view)[1:] == [3, 4, 5]

    def test_an_early_prefix_stands_before_the_summary_and_a_recent_suffix_after(self) -> None:
        early = PreservedSegment(first=1, last=2, placement=Placement.BEFORE_SUMMARY)
        late = PreservedSegment(first=3, last=4, placement=Placement.AFTER_SUMMARY)
        text = summary_content(summary="what was")
        for segment, expected in ((early, [1, 2, text, 5, 6]), (late, [text, 3, 4, 5, 6])):
            view = fold(
                messages=TALK.messages, boundaries=[boundary(4, committed_at=6, preserved=segment)], family=FAMILY
            )
            assert shown(view) == expected

    def test_t37_only_one_summary_is_ever_shown(self) -> None:
        both = [boundary(2, committed_at=2, sequence=1, summary="first"), boundary(4, committed_at=4, sequence=2)]
        view = fold(messages=TALK.messages, boundaries=both, family=FAMILY)
        assert shown(view) == [summary_content(summary="what was"), 5, 6]

    def test_at_gives_the_context_right_after_that_boundary(self) -> None:
        first = boundary(2, committed_at=3, sequence=1, summary="first")
        second = boundary(4, committed_at=6, sequence=2)
        view = fold(messages=TALK.messages, boundaries=[first, second], family=FAMILY, at=first)
        assert shown(view) == [summary_content(summary="first"), 3]

    def test_a_reverted_boundary_is_gone_now_and_still_there_at_its_time(self) -> None:
        gone = boundary(4, committed_at=4, sequence=1, reverted_at=datetime(2027, 1, 1, tzinfo=UTC))
        assert shown(fold(messages=TALK.messages, boundaries=[gone], family=FAMILY)) == [1, 2, 3, 4, 5, 6]
        then = fold(messages=TALK.messages, boundaries=[gone], family=FAMILY, at=gone)
        assert shown(then) == [summary_content(summary="what was")]

    def test_an_abandoned_branch_is_not_shown_but_was_before_it_was_left(self) -> None:
        talk = Talk().u("1").a("2").u("left", left_path_at=4).u("other").a("5")
        assert shown(fold(messages=talk.messages, boundaries=[], family=FAMILY)) == [1, 2, 4, 5]
        early = boundary(1, committed_at=3, sequence=1)
        assert shown(fold(messages=talk.messages, boundaries=[early], family=FAMILY, at=early))[1:] == [2, 3]

    def test_sidechains_summaries_of_clients_and_errors_are_never_shown(self) -> None:
        talk = Talk().u("1").a("side", is_sidechain=True).summary("theirs").a("oops", kind=MessageKind.API_ERROR).u("5")
        assert shown(fold(messages=talk.messages, boundaries=[], family=FAMILY)) == [1, 5]

    def test_clearing_results_lowers_the_estimate_by_what_it_saves(self) -> None:
        talk = Talk().u("go").a(use("A")).u(res("A", "word " * 2_000)).a("ok")
        micro = boundary(0, committed_at=4, kind=BoundaryKind.MICROCOMPACT, cleared_tool_use_ids=frozenset({"A"}))
        before = fold(messages=talk.messages, boundaries=[], family=FAMILY)
        after = fold(messages=talk.messages, boundaries=[micro], family=FAMILY)
        assert before.tokens - after.tokens > 1_000
        assert [item.role for item in after.items] == [Role.USER, Role.ASSISTANT, Role.USER, Role.ASSISTANT]
