"""Clearings in the view and in the request: whose results, in which of two ways, and what thinking outlives them."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.transcript.boundary import Boundary, BoundaryKind, Clearing
from sessions_app.transcript.edits import cache_edits, context_management
from sessions_app.transcript.request import build_request
from sessions_app.transcript.view import CLEARED_RESULT, ContextView, fold, stream_items
from tests.build import FAMILY, Talk, boundary, res, thinking, use


def clearing(*places: tuple[int, str], committed_at: int, way: Clearing = Clearing.API_EDIT, **more: Any) -> Boundary:
    return boundary(
        places[-1][0],
        committed_at=committed_at,
        kind=BoundaryKind.MICROCOMPACT,
        cleared_at=frozenset(places),
        cleared_tool_use_ids=frozenset(use_id for _, use_id in places),
        clearing=way,
        **more,
    )


def view_of(talk: Talk, *boundaries: Boundary, edits_at_api: bool = False) -> ContextView:
    return fold(messages=talk.messages, boundaries=boundaries, family=FAMILY, edits_at_api=edits_at_api)


def rounds(count: int, *, name: str = "Read") -> Talk:
    """u, then per round: thinking and a call, its result. Results stand at 3, 5, 7 …"""
    talk = Talk().u("go")
    for number in range(count):
        talk.a(thinking(f"t{number}"), use(f"c{number}", name)).u(res(f"c{number}", f"line {number} " * 200))
    return talk


def thoughts(view: ContextView) -> list[str]:
    request = build_request(view=view)
    blocks = [block for message in request.messages for block in message["content"]]
    return [block["thinking"] for block in blocks if block["type"] == "thinking"]


class TestTwoWays:
    TALK = rounds(4).a("done")

    def test_an_edit_is_shown_whole_to_whom_sends_it_and_as_a_placeholder_else(self) -> None:
        edit = clearing((3, "c0"), committed_at=10)
        for at_api, marked in ((True, "edited"), (False, "cleared")):
            view = view_of(self.TALK, edit, edits_at_api=at_api)
            assert [item.position for item in view.items if getattr(item, marked)] == [3]
            request = build_request(view=view)
            assert request.cleared_tool_results == 1
            assert request.edited == (("c0",) if at_api else ())
            assert (CLEARED_RESULT in str(request.messages)) is not at_api

    def test_both_cost_the_same_tokens_and_not_the_same_bytes(self) -> None:
        sizes = {}
        for way in Clearing:
            view = view_of(self.TALK, clearing((3, "c0"), (5, "c1"), committed_at=10, way=way))
            sizes[way] = (view.tokens, view.content_bytes)
        before = view_of(self.TALK)
        assert sizes[Clearing.PLACEHOLDER][0] == sizes[Clearing.API_EDIT][0] < before.tokens
        assert sizes[Clearing.PLACEHOLDER][1] <= sizes[Clearing.API_EDIT][1] == before.content_bytes

    def test_thinking_outlives_an_edit_and_no_placeholder(self) -> None:
        assert thoughts(view_of(self.TALK, clearing((3, "c0"), committed_at=10), edits_at_api=True)) == [
            "t0",
            "t1",
            "t2",
            "t3",
        ]
        rewritten = clearing((3, "c0"), committed_at=10, way=Clearing.PLACEHOLDER)
        assert thoughts(view_of(self.TALK, rewritten, edits_at_api=True)) == ["t0"]

    def test_thinking_between_a_placeholder_and_a_later_edit_is_bound_to_what_was_sent(self) -> None:
        """Made after the placeholder was in place: the edit that follows changes nothing before it."""
        rewritten = clearing((3, "c0"), committed_at=5, way=Clearing.PLACEHOLDER, sequence=1)
        edit = clearing((5, "c1"), committed_at=10, sequence=2)
        view = view_of(self.TALK, rewritten, edit, edits_at_api=True)
        assert thoughts(view) == ["t0", "t2", "t3"]

    def test_the_stream_shows_the_same(self) -> None:
        edit = clearing((3, "c0"), committed_at=10)
        streamed = list(stream_items(messages=self.TALK.messages, boundaries=[edit], family=FAMILY))
        assert [(i.position, i.tokens, i.cleared) for i in streamed] == [
            (i.position, i.tokens, i.cleared) for i in view_of(self.TALK, edit).items
        ]


class TestWhose:
    def test_an_id_that_is_used_again_is_another_result(self) -> None:
        talk = Talk().u("go").a(use("x")).u(res("x", "old " * 300)).a(use("x")).u(res("x", "new " * 300)).a("done")
        view = view_of(talk, clearing((3, "x"), committed_at=6))
        assert [item.position for item in view.items if item.cleared] == [3]
        assert "new new" in str(build_request(view=view).messages)

    def test_one_that_arrives_while_the_clearing_is_written_too(self) -> None:
        talk = Talk().u("go").a(use("x")).u(res("x", "old " * 300)).a(use("x")).u(res("x", "new " * 300))
        view = view_of(talk, clearing((3, "x"), committed_at=5))
        assert [item.position for item in view.items if item.cleared] == [3]

    def test_a_clients_own_clearing_tells_ids_only_and_holds_for_what_stood_before(self) -> None:
        talk = Talk().u("go").a(use("x")).u(res("x", "old " * 300)).a(use("x")).u(res("x", "new " * 300))
        theirs = boundary(3, committed_at=3, kind=BoundaryKind.MICROCOMPACT, cleared_tool_use_ids=frozenset({"x"}))
        assert [item.position for item in view_of(talk, theirs).items if item.cleared] == [3]


class TestContextManagement:
    def edit(self, talk: Talk, *places: tuple[int, str], least: int = 20_000, freed: int = 60_000) -> dict[str, Any]:
        last = talk.messages[-1].position
        request = build_request(view=view_of(talk, clearing(*places, committed_at=last), edits_at_api=True))
        managed = context_management(
            messages=request.messages, edited=request.edited, least_tokens=least, freed_tokens=freed
        )
        [edit] = managed["edits"]
        assert set(edit) <= {"type", "trigger", "keep", "clear_at_least", "exclude_tools"}
        return dict(edit)

    def test_keep_counts_the_calls_behind_the_last_that_was_cleared(self) -> None:
        edit = self.edit(rounds(6).a("done"), (3, "c0"), (5, "c1"))
        assert edit["keep"] == {"type": "tool_uses", "value": 4}
        assert edit["trigger"] == {"type": "tool_uses", "value": 4}

    def test_only_tools_in_the_cleared_part_are_excluded(self) -> None:
        talk = Talk().u("go")
        for number, name in enumerate(["Read", "Agent", "Read", "Task", "Bash"]):
            talk.a(use(f"c{number}", name)).u(res(f"c{number}", "word " * 300))
        edit = self.edit(talk.a("done"), (3, "c0"), (7, "c2"))
        assert edit["exclude_tools"] == ["Agent"], "Task and Bash stand behind it and are kept anyway"

    @pytest.mark.parametrize(("freed", "least"), [(60_000, 20_000), (30_000, 15_000), (1, None)])
    def test_no_more_is_asked_for_than_half_of_what_we_think_goes(self, freed: int, least: int | None) -> None:
        edit = self.edit(rounds(3).a("done"), (3, "c0"), freed=freed)
        assert edit.get("clear_at_least") == (least and {"type": "input_tokens", "value": least})

    def test_a_result_that_is_not_in_the_request_any_more_is_not_asked_for(self) -> None:
        assert context_management(messages=[], edited=("c0",), least_tokens=1, freed_tokens=9) == {}
        assert context_management(messages=[], edited=(), least_tokens=1, freed_tokens=9) == {}
        assert cache_edits(edited=()) == {}
