"""Where one may cut. Shapes of the known failures are named by their row."""

from __future__ import annotations

from sessions_app.transcript.rounds import call_spans, cut_points, group_by_api_round, waiting_approvals
from tests.build import Talk, res, use


def spans(talk: Talk) -> list[tuple[int, int]]:
    return [(one.first, one.last) for one in group_by_api_round(talk.messages)]


class TestGroupByApiRound:
    def test_a_new_id_opens_a_round_and_results_stay_with_it(self) -> None:
        talk = Talk().u("go").a(use("A")).u(res("A")).a("done").u("next").a("ok")
        assert spans(talk) == [(1, 1), (2, 3), (4, 5), (6, 6)]

    def test_entries_of_one_response_are_one_round(self) -> None:
        talk = Talk().u("go").a(use("A")).u(res("A")).a(use("B"), same=True).u(res("B")).a("done")
        assert spans(talk) == [(1, 1), (2, 5), (6, 6)]

    def test_without_ids_each_assistant_message_is_a_round(self) -> None:
        talk = Talk().u("go").a("x").a("y")
        talk.messages = [m if m.position == 1 else _without_id(m) for m in talk.messages]
        assert spans(talk) == [(1, 1), (2, 2), (3, 3)]

    def test_nothing_gives_nothing(self) -> None:
        assert group_by_api_round([]) == []


class TestCutPoints:
    def test_t2_a_round_with_two_results_is_one_unit(self) -> None:
        talk = Talk().u("go").a(use("X"), use("Y")).u(res("X", "big" * 100)).u(res("Y")).a("done")
        assert cut_points(talk.messages) == [2, 5, 6]

    def test_a_response_in_several_entries_is_not_split(self) -> None:
        talk = Talk().u("go").a("thinking aloud").a(use("X"), same=True).u(res("X")).a("done")
        assert cut_points(talk.messages) == [2, 5, 6]

    def test_t5_the_round_that_waits_for_its_result_stays(self) -> None:
        talk = Talk().u("go").a("reading").u("yes").a(use("X"))
        assert cut_points(talk.messages) == [2, 3, 4]

    def test_t6_a_dead_call_blocks_nothing(self) -> None:
        talk = Talk().u("go").a(use("X"))
        for number in range(5):
            talk.u(f"again {number}").a(f"answer {number}")
        assert cut_points(talk.messages)[-1] == len(talk.messages) + 1
        assert 4 in cut_points(talk.messages)

    def test_a_late_result_holds_everything_up_to_it(self) -> None:
        talk = Talk().u("go").a(use("X")).u("meanwhile").a("so?").u(res("X")).a("done")
        assert cut_points(talk.messages) == [2, 6, 7]

    def test_a_result_that_was_written_before_its_use_stays_with_it(self) -> None:
        """Seen in real files: parallel calls are run while the response still streams."""
        talk = Talk().u("go").a("both").u(res("B")).a(use("B"), same=True).a("done")
        assert cut_points(talk.messages) == [2, 5, 6]

    def test_an_id_used_twice_is_two_calls(self) -> None:
        talk = Talk().u("go").a(use("X")).u(res("X")).a(use("X")).u(res("X")).a("done")
        assert cut_points(talk.messages) == [2, 4, 6, 7]

    def test_calls_of_one_message_that_share_an_id_are_answered_in_their_order(self) -> None:
        calls = [use("X", path="x"), use("X", path="y")]
        talk = Talk().u("go").a(*calls).u(res("X")).u(res("X")).a("done")
        assert [call.result_position for call in call_spans(talk.messages)] == [3, 4]
        assert cut_points(talk.messages) == [2, 5, 6]

    def test_a_call_that_was_written_twice_is_one(self) -> None:
        talk = Talk().u("go").a(use("X")).a(use("X"), same=True).u(res("X")).a("done")
        assert [(call.use_position, call.result_position) for call in call_spans(talk.messages)] == [(2, 4)]

    def test_a_dead_call_gets_no_result_of_a_later_response(self) -> None:
        talk = Talk().u("go").a(use("X", path="x")).a(use("X", path="y")).u(res("X")).a("done")
        assert [call.result_position for call in call_spans(talk.messages)] == [None, 4]

    def test_nothing_gives_nothing(self) -> None:
        assert cut_points([]) == []


def test_t8_an_unanswered_question_to_the_person_waits_wherever_it_stands() -> None:
    talk = Talk().u("go").a(use("Q", "AskUserQuestion")).u("something else").a("fine").u("more").a("ok")
    assert [call.tool_use_id for call in waiting_approvals(talk.messages)] == ["Q"]
    answered = Talk().u("go").a(use("Q", "AskUserQuestion")).u(res("Q", "blue"))
    assert waiting_approvals(answered.messages) == []
    twice = Talk().u("go").a(use("Q", "AskUserQuestion")).a(use("Q", "AskUserQuestion"), same=True).u(res("Q", "blue"))
    assert waiting_approvals(twice.messages) == []


def _without_id(message):  # type: ignore[no-untyped-def]
    from dataclasses import replace

    return replace(message, message_id=None)
