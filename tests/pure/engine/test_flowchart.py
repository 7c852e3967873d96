"""One row for each path through the source's flowchart: which links are tried, which run, how it ends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from compaction_app.engine.chain import Trail, light_drafts, run_chain
from compaction_app.engine.outcome import CompactionCancelled, CompactionRefused, FailureReason
from compaction_app.engine.plan import PLANS
from compaction_app.engine.ports import SummaryResult
from compaction_app.engine.values import MemoryValue, Situation, Trigger
from sessions_app.transcript.boundary import BoundaryKind, Clearing
from tests.build import Talk, use
from tests.pure.engine.situations import FixedSummarizer, reads, situation_of

WARM, COLD = timedelta(seconds=10), timedelta(minutes=10)
MANY = 60  # results: above the trigger of cache edits, and clearing them pays
FEW = 8


@dataclass(frozen=True)
class Path:
    """`tried`: link -> whether it ran. `ends`: the kind of what is proposed, None: nothing."""

    trigger: Trigger
    results: int
    idle: timedelta
    tokens: int
    tried: dict[str, bool]
    ends: BoundaryKind | None
    clearing: Clearing | None = None
    figures: dict[str, Any] = field(default_factory=dict)
    memory: bool = False


MICRO, WHOLE, MEMORY = BoundaryKind.MICROCOMPACT, BoundaryKind.FULL, BoundaryKind.SESSION_MEMORY
SMALL_TAIL = {"memory_tail_least_tokens": 1_000, "memory_tail_least_texts": 1}
OVER = 170_000
PATHS = {
    "prepare, cold: results are cleared, and that is enough": Path(
        Trigger.PREPARE, MANY, COLD, 60_000, {"time_based": True}, MICRO, Clearing.PLACEHOLDER
    ),
    "prepare, warm, many results: the API clears": Path(
        Trigger.PREPARE, MANY, WARM, 60_000, {"time_based": False, "cache_edits": True}, MICRO, Clearing.API_EDIT
    ),
    "prepare, warm, few results: nothing": Path(
        Trigger.PREPARE, FEW, WARM, 60_000, {"time_based": False, "cache_edits": False}, None
    ),
    "prepare, cold, but nothing old to clear: the next link is asked": Path(
        Trigger.PREPARE, 3, COLD, 60_000, {"time_based": False, "cache_edits": False}, None
    ),
    "auto, cold: clearing brings it well below the threshold": Path(
        Trigger.AUTO, MANY, COLD, OVER, {"time_based": True}, MICRO, Clearing.PLACEHOLDER
    ),
    "auto, warm: edits bring it well below the threshold": Path(
        Trigger.AUTO, MANY, WARM, OVER, {"time_based": False, "cache_edits": True}, MICRO, Clearing.API_EDIT
    ),
    "auto, warm: edits are not enough, so it is summarised": Path(
        Trigger.AUTO,
        MANY,
        WARM,
        OVER,
        {"time_based": False, "cache_edits": True, "session_memory": False, "full": True},
        WHOLE,
        figures={"light_enough_share": 0.1, "cache_edit_keep_results": 20},
    ),
    "auto, cold: clearing is not enough, so it is summarised": Path(
        Trigger.AUTO,
        FEW,
        COLD,
        OVER,
        {"time_based": True, "cache_edits": False, "session_memory": False, "full": True},
        WHOLE,
        figures={"light_enough_share": 0.5},
    ),
    "auto, warm, few results: straight to the summary": Path(
        Trigger.AUTO,
        FEW,
        WARM,
        OVER,
        {"time_based": False, "cache_edits": False, "session_memory": False, "full": True},
        WHOLE,
    ),
    "manual: clearing prepares, a summary is what was asked for": Path(
        Trigger.MANUAL,
        MANY,
        COLD,
        60_000,
        {"session_memory": False, "time_based": True, "cache_edits": False, "full": True},
        WHOLE,
    ),
    "manual, warm": Path(
        Trigger.MANUAL,
        MANY,
        WARM,
        60_000,
        {"session_memory": False, "time_based": False, "cache_edits": True, "full": True},
        WHOLE,
    ),
    "manual, nothing to clear": Path(
        Trigger.MANUAL,
        FEW,
        WARM,
        10_000,
        {"session_memory": False, "time_based": False, "cache_edits": False, "full": True},
        WHOLE,
    ),
    "auto: a memory stands for the past where clearing is not enough": Path(
        Trigger.AUTO,
        FEW,
        WARM,
        OVER,
        {"time_based": False, "cache_edits": False, "session_memory": True},
        MEMORY,
        memory=True,
    ),
    "manual: the memory first": Path(Trigger.MANUAL, FEW, COLD, 10_000, {"session_memory": True}, MEMORY, memory=True),
    "reactive: clearing makes it fit": Path(
        Trigger.REACTIVE, MANY, WARM, 60_000, {"reactive_clearing": True}, MICRO, Clearing.PLACEHOLDER
    ),
    "reactive: clearing is not enough, so it is summarised": Path(
        Trigger.REACTIVE,
        FEW,
        WARM,
        210_000,
        {"reactive_clearing": True, "reactive": True},
        WHOLE,
        figures={"reactive_room_share": 0.3},
    ),
}


def walk(situation: Situation) -> tuple[Situation, Trail]:
    trail: Trail = []
    after = run_chain(plan=PLANS[situation.trigger], situation=situation, trail=trail)
    return after, trail


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
def test_path(path: Path) -> None:
    messages = reads(path.results).messages
    figures = {**(SMALL_TAIL if path.memory else {}), **path.figures}
    situation = situation_of(messages, idle=path.idle, trigger=path.trigger, tokens=path.tokens, **figures)
    if path.memory:
        memory = MemoryValue(content="# Task\nMend the parser.", covers_to=messages[-5].position)
        situation = replace(situation, memory=memory)
    after, trail = walk(situation)
    assert {name: step.draft is not None for name, step in trail} == path.tried
    ends = after.summary_draft or (after.drafts[-1] if after.drafts else None)
    assert (ends.kind if ends else None) == path.ends
    if path.clearing:
        assert ends is not None
        assert ends.clearing == path.clearing
    assert all(step.why for _, step in trail)


class TestRunChain:
    def test_every_trigger_has_a_plan_and_every_plan_a_path(self) -> None:
        assert set(PLANS) == set(Trigger) == {path.trigger for path in PATHS.values()}

    def test_the_links_stand_from_the_cheapest_to_the_dearest(self) -> None:
        light = ["time_based", "cache_edits"]
        orders = {trigger: [link.name for link in plan.links] for trigger, plan in PLANS.items()}
        assert orders == {
            Trigger.PREPARE: light,
            Trigger.AUTO: [*light, "session_memory", "full"],
            Trigger.MANUAL: ["session_memory", *light, "full"],
            Trigger.REACTIVE: ["reactive_clearing", "reactive"],
        }

    def test_tokens_never_rise_from_link_to_link_but_for_what_a_summary_takes_the_place_of(self) -> None:
        _, trail = walk(situation_of(reads(MANY).messages, idle=COLD, trigger=Trigger.MANUAL))
        assert all(step.tokens_after <= step.tokens_before for _, step in trail)

    def test_a_summary_is_made_from_the_context_as_it_was_found(self) -> None:
        """Known failure T33: a summary of placeholders. Its budget is a share of what it replaces, cleared or not."""
        summarizer = FixedSummarizer()
        told = situation_of(reads(MANY).messages, idle=COLD, trigger=Trigger.MANUAL, summarizer=summarizer)
        walk(told)
        plain = FixedSummarizer()
        walk(
            situation_of(
                reads(MANY).messages, idle=WARM, trigger=Trigger.MANUAL, summarizer=plain, cache_edits_enabled=False
            )
        )
        assert summarizer.requests[0].history == plain.requests[0].history
        assert summarizer.requests[0].budget_tokens == plain.requests[0].budget_tokens

    @pytest.mark.parametrize("reason", [FailureReason.NO_SUMMARY, FailureReason.NOT_SMALLER])
    def test_what_was_cleared_before_a_refusal_is_in_the_trail(self, reason: FailureReason) -> None:
        failing = FixedSummarizer(refuses=reason)
        situation = situation_of(reads(MANY).messages, idle=COLD, trigger=Trigger.MANUAL, summarizer=failing)
        trail: Trail = []
        with pytest.raises(CompactionRefused):
            run_chain(plan=PLANS[Trigger.MANUAL], situation=situation, trail=trail)
        assert [(name, step.draft is not None) for name, step in trail] == [
            ("session_memory", False),
            ("time_based", True),
            ("cache_edits", False),
            ("full", False),
        ]
        assert [draft.clearing for draft in light_drafts(trail)] == [Clearing.PLACEHOLDER]
        assert trail[-1][1].reason == reason

    def test_a_bug_is_in_the_trail_too_without_its_words(self) -> None:
        class Buggy(FixedSummarizer):
            def summarize(self, **_: Any) -> SummaryResult:
                raise ZeroDivisionError("secret transcript text")

        situation = situation_of(reads(MANY).messages, idle=COLD, trigger=Trigger.MANUAL, summarizer=Buggy())
        trail: Trail = []
        with pytest.raises(ZeroDivisionError):
            run_chain(plan=PLANS[Trigger.MANUAL], situation=situation, trail=trail)
        assert [name for name, _ in trail] == ["session_memory", "time_based", "cache_edits", "full"]
        last = trail[-1][1]
        assert (last.why, last.reason, last.draft) == (
            "met an unexpected ZeroDivisionError",
            FailureReason.ERROR,
            None,
        )
        assert [draft.clearing for draft in light_drafts(trail)] == [Clearing.PLACEHOLDER]

    def test_a_run_that_was_taken_away_meets_no_bug(self) -> None:
        class Cancelled(FixedSummarizer):
            def summarize(self, **_: Any) -> SummaryResult:
                raise CompactionCancelled

        situation = situation_of(reads(FEW).messages, trigger=Trigger.MANUAL, summarizer=Cancelled())
        trail: Trail = []
        with pytest.raises(CompactionCancelled):
            run_chain(plan=PLANS[Trigger.MANUAL], situation=situation, trail=trail)
        assert [name for name, _ in trail] == ["session_memory", "time_based", "cache_edits"]

    def test_a_single_open_round_is_nothing_to_compact(self) -> None:
        situation = situation_of(Talk().u("go").a(use("open")).messages, trigger=Trigger.AUTO)
        after, trail = walk(situation)
        assert after.drafts == ()
        assert trail[-1][1].reason == FailureReason.NOTHING_TO_COMPACT

    @pytest.mark.parametrize(
        ("figures", "light"), [({}, True), ({"light_enough_share": 0.1, "cache_edit_keep_results": 20}, False)]
    )
    def test_how_far_clearing_must_go_is_a_figure(self, figures: dict[str, Any], light: bool) -> None:
        situation = situation_of(reads(MANY).messages, trigger=Trigger.AUTO, tokens=OVER, **figures)
        after, _ = walk(situation)
        assert (after.summary_draft is None) is light


class TestIsLightEnough:
    """Clearing alone is enough where the level is `ok` and there is room to go on, in tokens and in bytes."""

    @pytest.mark.parametrize(("tokens", "enough"), [(141_950, True), (141_951, False)])
    def test_a_share_of_the_automatic_threshold(self, tokens: int, enough: bool) -> None:
        assert situation_of(reads(1).messages, tokens=tokens).is_light_enough is enough

    @pytest.mark.parametrize(("tokens", "enough"), [(119_999, True), (120_000, False)])
    def test_and_below_the_warning_where_that_begins_earlier(self, tokens: int, enough: bool) -> None:
        figures: dict[str, Any] = {"warning_buffer_tokens": 60_000}
        assert situation_of(reads(1).messages, tokens=tokens, **figures).is_light_enough is enough

    @pytest.mark.parametrize(("size", "enough"), [(850_000, True), (850_001, False)])
    def test_and_the_same_share_of_the_bytes(self, size: int, enough: bool) -> None:
        messages = [replace(message, content_bytes=0) for message in reads(1).messages]
        messages[0] = replace(messages[0], content_bytes=size)
        assert situation_of(messages, auto_compact_bytes=1_000_000).is_light_enough is enough
