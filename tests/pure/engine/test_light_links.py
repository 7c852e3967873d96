"""The light links: when each runs, what it clears, and what it says when it passes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from compaction_app.engine.links.cache_edits import CACHE_EDITS
from compaction_app.engine.links.time_based import TIME_BASED
from sessions_app.figures import ToolTable
from sessions_app.policy import COMPACTABLE_TOOLS
from sessions_app.transcript.boundary import BoundaryKind, Clearing
from tests.build import Talk, boundary, res, text, thinking, use
from tests.pure.engine.situations import reads, situation_of

COLD = timedelta(minutes=6)


class TestTimeBased:
    def test_clears_all_but_the_most_recent_five(self) -> None:
        step = TIME_BASED.attempt(situation_of(reads(8).messages, idle=COLD))
        draft = step.draft
        assert draft is not None
        assert (draft.kind, draft.clearing) == (BoundaryKind.MICROCOMPACT, Clearing.PLACEHOLDER)
        assert draft.cleared_tool_use_ids == ("c0", "c1", "c2")
        assert step.tokens_after == step.tokens_before - sum(one.tokens_freed for one in draft.cleared_results)
        assert step.why.startswith("cache cold: idle 360 s of 300 s; 3 results of Read cleared, about ")
        assert step.why.endswith(" tokens freed; the newest 5 stay")

    def test_each_cleared_id_has_its_reason_tool_place_and_tokens(self) -> None:
        draft = TIME_BASED.attempt(situation_of(reads(6).messages, idle=COLD)).draft
        assert draft is not None
        [one] = draft.cleared_results
        assert (one.tool_use_id, one.tool, one.position) == ("c0", "Read", 3)
        assert one.reason == "cache cold: idle 360 s of 300 s"
        assert one.tokens_freed > 500
        assert draft.covers_to == 3

    @pytest.mark.parametrize(
        ("idle", "why"),
        [
            (timedelta(seconds=42), "cache warm: idle 42 s of 300 s"),
            (timedelta(seconds=300), "cache warm: idle 300 s of 300 s"),
            (timedelta(seconds=-5), "cache warm: idle -5 s of 300 s"),
            (None, "no assistant message yet, so no prefix is cached"),
        ],
    )
    def test_passes_while_the_cache_is_warm(self, idle: timedelta | None, why: str) -> None:
        step = TIME_BASED.attempt(situation_of(reads(8).messages, idle=idle))
        assert (step.draft, step.why) == (None, why)

    def test_figures_decide(self) -> None:
        messages = reads(8).messages
        told = situation_of(messages, idle=timedelta(seconds=2), time_based_idle_ms=1_000, time_based_keep_results=7)
        draft = TIME_BASED.attempt(told).draft
        assert draft is not None
        assert draft.cleared_tool_use_ids == ("c0",)
        off = TIME_BASED.attempt(situation_of(messages, idle=COLD, time_based_enabled=False))
        assert (off.draft, off.why) == (None, "switched off (time_based_enabled)")

    def test_keeping_none_clears_all(self) -> None:
        draft = TIME_BASED.attempt(situation_of(reads(2).messages, idle=COLD, time_based_keep_results=0)).draft
        assert draft is not None
        assert draft.cleared_tool_use_ids == ("c0", "c1")

    def test_says_what_is_there_when_nothing_can_be_cleared(self) -> None:
        step = TIME_BASED.attempt(situation_of(reads(3).messages, idle=COLD))
        assert step.draft is None
        assert "nothing to clear: 3 compactable results shown, the most recent 5 stay" in step.why

    def test_what_is_cleared_already_is_not_cleared_again(self) -> None:
        before = boundary(
            3, committed_at=32, kind=BoundaryKind.MICROCOMPACT, cleared_tool_use_ids=frozenset({"c0", "c1", "c2"})
        )
        assert TIME_BASED.attempt(situation_of(reads(8).messages, boundaries=[before], idle=COLD)).draft is None

    def test_further_clearing_goes_in_batches(self) -> None:
        first = boundary(
            3,
            committed_at=12,
            kind=BoundaryKind.MICROCOMPACT,
            cleared_at=frozenset({(3, "c0")}),
            cleared_tool_use_ids=frozenset({"c0"}),
        )
        step = TIME_BASED.attempt(situation_of(reads(7).messages, boundaries=[first], idle=COLD))
        assert step.draft is None
        assert "clearing 1 more would free about" in step.why
        assert "of 2,000" in step.why
        assert TIME_BASED.attempt(situation_of(reads(9).messages, boundaries=[first], idle=COLD)).draft is not None

    def test_an_open_round_with_thinking_is_waited_for(self) -> None:
        talk = reads(8).u("go on").a(thinking(), use("open")).u(res("open", "short"))
        step = TIME_BASED.attempt(situation_of(talk.messages, idle=COLD))
        assert step.draft is None
        assert "it waits for the round's end" in step.why
        over = TIME_BASED.attempt(situation_of(talk.a("done").messages, idle=COLD))
        assert over.draft is not None

    @pytest.mark.parametrize("lines", [("thinking", "use"), ("thinking", "text", "use")])
    def test_an_open_round_written_in_several_lines_is_one(self, lines: tuple[str, ...]) -> None:
        blocks = {"thinking": thinking(), "text": text("I look"), "use": use("open")}
        talk = reads(8).u("go on")
        for number, line in enumerate(lines):
            talk.a(blocks[line], same=number > 0)
        talk.u(res("open"))
        assert TIME_BASED.attempt(situation_of(talk.messages, idle=COLD)).draft is None

    def test_an_open_round_without_thinking_is_not(self) -> None:
        talk = reads(8).a(thinking(), "thought").u("go on").a(use("open")).u(res("open"))
        assert TIME_BASED.attempt(situation_of(talk.messages, idle=COLD)).draft is not None


class TestCacheEdits:
    def test_clears_the_oldest_on_the_apis_side_once_there_are_many(self) -> None:
        step = CACHE_EDITS.attempt(situation_of(reads(30).messages, cache_edit_trigger_results=20))
        draft = step.draft
        assert draft is not None
        assert (draft.kind, draft.clearing) == (BoundaryKind.MICROCOMPACT, Clearing.API_EDIT)
        assert draft.cleared_tool_use_ids[:2] == ("c0", "c1")
        assert "30 compactable results, above 20" in step.why

    def test_passes_below_the_trigger(self) -> None:
        step = CACHE_EDITS.attempt(situation_of(reads(20).messages, cache_edit_trigger_results=20))
        assert (step.draft, step.why) == (None, "20 compactable results shown; edits begin above 20")

    def test_passes_where_a_batch_would_not_pay(self) -> None:
        step = CACHE_EDITS.attempt(situation_of(reads(30, size=400).messages, cache_edit_trigger_results=20))
        assert step.draft is None
        assert "of the 20,000 that pay for a rewritten prefix" in step.why

    def test_a_later_batch_begins_where_the_first_ended(self) -> None:
        first = boundary(
            3,
            committed_at=120,
            kind=BoundaryKind.MICROCOMPACT,
            clearing=Clearing.API_EDIT,
            cleared_tool_use_ids=frozenset(f"c{number}" for number in range(25)),
        )
        figures = {"cache_edit_trigger_results": 20, "cache_edit_keep_results": 5}
        waiting = CACHE_EDITS.attempt(situation_of(reads(40).messages, boundaries=[first], **figures))
        assert waiting.draft is None
        again = CACHE_EDITS.attempt(situation_of(reads(60).messages, boundaries=[first], **figures)).draft
        assert again is not None
        assert again.cleared_tool_use_ids[0] == "c25"
        assert again.cleared_tool_use_ids[-1] == "c54"

    def test_can_be_switched_off(self) -> None:
        step = CACHE_EDITS.attempt(situation_of(reads(60).messages, cache_edits_enabled=False))
        assert (step.draft, step.why) == (None, "switched off (cache_edits_enabled)")


class TestWhatIsCleared:
    """Both links by one rule; tried through the time-based one."""

    def cleared(self, talk: Talk, **figures: object) -> tuple[str, ...]:
        told = situation_of(talk.messages, idle=COLD, **{"time_based_keep_results": 0, **figures})
        draft = TIME_BASED.attempt(told).draft
        return draft.cleared_tool_use_ids if draft else ()

    @pytest.mark.parametrize("name", ["AskUserQuestion", "Agent", "Task", "mcp__docs__get", "Unheard"])
    def test_other_tools_stay(self, name: str) -> None:
        assert self.cleared(reads(2, name=name)) == ()

    def test_a_team_can_add_patterns(self) -> None:
        tools = COMPACTABLE_TOOLS.overridden({"mcp__*": True, "mcp__mail__*": False})
        assert self.cleared(reads(1, name="mcp__docs__get"), compactable_tools=tools) == ("c0",)
        assert self.cleared(reads(1, name="mcp__mail__get"), compactable_tools=tools) == ()
        assert self.cleared(reads(1), compactable_tools=ToolTable((("Read", False),))) == ()

    @pytest.mark.parametrize("content", ["ok", "", None, [], "x" * 49, [{"type": "text", "text": "ok"}]])
    def test_t23_what_a_placeholder_would_not_shorten_stays(self, content: object) -> None:
        assert self.cleared(Talk().u("go").a(use("c")).u(res("c", content)).a("done")) == ()

    def test_pictures_and_errors_go_too(self) -> None:
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo=" * 40}}
        talk = Talk().u("go").a(use("c"), use("d")).u(res("c", [image]), res("d", "E " * 300, is_error=True)).a("done")
        assert self.cleared(talk) == ("c", "d")

    def test_an_open_call_and_an_orphan_result_stay(self) -> None:
        talk = Talk().u(res("gone", "x" * 900)).a("hm").u("go").a(use("open"))
        assert self.cleared(talk) == ()

    def test_a_result_before_its_use_is_found(self) -> None:
        talk = Talk().u("go").a(use("a")).u(res("b", "y" * 900)).a(use("b"), same=True).u(res("a", "x" * 900)).a("done")
        assert set(self.cleared(talk)) == {"a", "b"}

    def test_an_id_that_is_used_again_is_another_result(self) -> None:
        talk = Talk().u("go").a(use("x")).u(res("x", "1" * 900)).a(use("x")).u(res("x", "2" * 900)).a("done")
        situation = situation_of(talk.messages, idle=COLD, time_based_keep_results=1)
        draft = TIME_BASED.attempt(situation).draft
        assert draft is not None
        assert draft.cleared_at == ((3, "x"),)
        after = situation.after(TIME_BASED.attempt(situation)).view
        assert [item.position for item in after.items if item.cleared] == [3]

    def test_what_a_person_answered_under_an_id_that_was_cleared_stays(self) -> None:
        talk = Talk().u("go").a(use("x")).u(res("x", "1" * 900)).a(use("x", "AskUserQuestion"))
        talk.u(res("x", "the person's answer " * 40)).a("done")
        situation = situation_of(talk.messages, idle=COLD, time_based_keep_results=0)
        after = situation.after(TIME_BASED.attempt(situation)).view
        assert [item.position for item in after.items if item.cleared] == [3]
