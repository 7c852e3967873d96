"""What the model sees, now and at any boundary."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from sessions_app.transcript.boundary import AttachmentValue, Boundary, BoundaryKind, Placement, PreservedSegment
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


def early(first: int, last: int) -> PreservedSegment:
    return PreservedSegment(first=first, last=last, placement=Placement.BEFORE_SUMMARY)


class TestChain:
    """Boundaries whose summaries are shown together: each stands where what it tells had stood."""

    TALK = Talk()
    for number in range(1, 21):
        TALK.u(f"{number}") if number % 2 else TALK.a(f"{number}")

    def view(self, *boundaries: Boundary) -> list[object]:
        names = {summary_content(summary=one.summary or ""): one.summary for one in boundaries}
        view = fold(messages=self.TALK.messages, boundaries=boundaries, family=FAMILY)
        return [item.position or names[str(item.content)] for item in view.items]

    FULL = boundary(4, committed_at=6, sequence=1, summary="full")
    BEHIND = boundary(
        12,
        committed_at=12,
        sequence=2,
        summary="behind",
        kind=BoundaryKind.PARTIAL_FROM,
        preserved=early(5, 8),
        base=FULL,
    )

    def test_the_base_stays_in_front_of_the_prefix(self) -> None:
        assert self.BEHIND.chain == (self.FULL, self.BEHIND)
        assert self.view(self.FULL, self.BEHIND) == ["full", 5, 6, 7, 8, "behind", *range(13, 21)]

    def test_the_prefix_hides_what_its_base_hides(self) -> None:
        wide = replace(self.BEHIND, preserved=early(1, 8))
        assert self.view(self.FULL, wide) == ["full", 5, 6, 7, 8, "behind", *range(13, 21)]

    def test_another_from_stands_behind_both(self) -> None:
        third = boundary(
            20, committed_at=20, sequence=3, summary="third", kind=BoundaryKind.PARTIAL_FROM, preserved=early(5, 15)
        )
        third = replace(third, base=self.BEHIND)
        expected = ["full", 5, 6, 7, 8, "behind", 13, 14, 15, "third"]
        assert self.view(self.FULL, self.BEHIND, third) == expected

    def test_one_within_the_prefix_has_the_later_one_folded_in(self) -> None:
        third = boundary(
            20, committed_at=20, sequence=3, summary="third", kind=BoundaryKind.PARTIAL_FROM, preserved=early(5, 6)
        )
        for base in (self.BEHIND, self.FULL):
            assert replace(third, base=base).chain[:-1] == (self.FULL,)
            assert self.view(self.FULL, self.BEHIND, replace(third, base=base)) == ["full", 5, 6, "third"]

    def test_up_to_within_the_prefix_keeps_the_summary_behind_it(self) -> None:
        kept = PreservedSegment(first=7, last=8, placement=Placement.AFTER_SUMMARY)
        third = boundary(
            12,
            committed_at=20,
            sequence=3,
            summary="third",
            kind=BoundaryKind.PARTIAL_UP_TO,
            preserved=kept,
            base=self.BEHIND,
        )
        assert third.chain == (third, self.BEHIND)
        assert third.below == (self.BEHIND, self.FULL)
        assert self.view(self.FULL, self.BEHIND, third) == ["third", 7, 8, "behind", *range(13, 21)]

    def test_without_a_prefix_the_base_alone_stands_in_front(self) -> None:
        third = boundary(20, committed_at=20, sequence=3, summary="third", kind=BoundaryKind.PARTIAL_FROM)
        assert third.keeps_prefix
        assert self.view(self.FULL, replace(third, base=self.FULL)) == ["full", "third"]
        assert self.view(third) == ["third"]

    def test_t37_a_whole_one_takes_the_place_of_all(self) -> None:
        whole = boundary(18, committed_at=20, sequence=3, summary="whole")
        assert self.view(self.FULL, self.BEHIND, whole) == ["whole", 19, 20]

    def test_what_comes_after_is_the_same_wherever_the_prefix_ends(self) -> None:
        at = fold(messages=self.TALK.messages, boundaries=[self.FULL, self.BEHIND], family=FAMILY, at=self.BEHIND)
        assert [item.position for item in at.items] == [0, 5, 6, 7, 8, 0]
