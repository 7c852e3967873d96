"""Session memory (S6): what of a document goes into a context, what it stands for, and when it does not."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compaction_app.engine.links.session_memory import SESSION_MEMORY
from compaction_app.engine.memory import LEFT_OUT, fit_sections, says_nothing
from compaction_app.engine.outcome import CompactionRefused, FailureReason
from compaction_app.engine.segment import memory_segment
from compaction_app.engine.values import MemoryValue, Step
from sessions_app.transcript.boundary import Boundary, BoundaryKind
from sessions_app.transcript.messages import text_of
from sessions_app.transcript.rounds import cut_points
from sessions_app.transcript.tokens import estimate_text
from tests.build import FAMILY, Talk, boundary, res, use
from tests.pure.engine.situations import reads, situation_of

MEMORY = "# Task\nMend the parser.\n\n# Done\n- lexer"
TEMPLATE = """# Session Title
_A short and distinctive 5-10 word title_

# Current State
*What is being worked on?*
<!-- filled
in later -->

## Errors
(none recorded)
- TODO
"""


class TestSaysNothing:
    @pytest.mark.parametrize("text", ["", "  \n", "# Task", TEMPLATE, "- [ ] TBD", "…", "## A\n- none."])
    def test_a_template(self, text: str) -> None:
        assert says_nothing(content=text)

    @pytest.mark.parametrize("text", ["---", "# A\n***", "( none )", "[…]", LEFT_OUT.format(tokens=1_234), "<!--x-->"])
    def test_placeholders(self, text: str) -> None:
        assert says_nothing(content=text)

    def test_a_comment_that_does_not_end_is_text(self) -> None:
        assert not says_nothing(content="# A\n<!-- the lexer")

    @pytest.mark.parametrize(
        "text",
        [
            "- " + " " * 3_000 + "x",
            "- [ ] " * 40_000 + "x",
            "<!--" * 40_000,
            "(" * 100_000 + "x",
            "_" * 100_000 + "x",
            "* _" * 60_000,
        ],
    )
    def test_a_hostile_one_holds_nobody_up(self, text: str) -> None:
        """A second is for a slow machine: what is worse than linear takes minutes here."""
        began = time.process_time()
        says_nothing(content=f"# A\n{text}")
        fit_sections(content=f"# A\n{text}", most_tokens=200, section_tokens=50, family=FAMILY)
        assert time.process_time() - began < 1

    @pytest.mark.parametrize("text", [MEMORY, TEMPLATE + "- the lexer fails", "noneconformist", "_a_ and _b_ differ"])
    def test_anything_else(self, text: str) -> None:
        assert not says_nothing(content=text)


class TestFitSections:
    def fit(self, text: str, most: int, section: int = 2_000) -> str:
        return fit_sections(content=text, most_tokens=most, section_tokens=section, family=FAMILY)

    def test_what_fits_is_left_alone(self) -> None:
        assert self.fit(f"\n{MEMORY}\n", 1_000) == MEMORY

    def test_the_long_section_is_cut_and_says_so(self) -> None:
        text = "# Task\nMend it.\n# Log\n" + "a line of the log\n" * 500 + "# Next\nShip it."
        fitted = self.fit(text, 1_000)
        assert "# Task\nMend it.\n# Log\na line of the log" in fitted
        assert "tokens of this section left out]\n# Next\nShip it." in fitted

    @pytest.mark.parametrize("word", ["word ", "决定", "x"])
    def test_a_line_that_is_too_long_is_cut_within(self, word: str) -> None:
        """A paragraph is one line of Markdown."""
        text = "\n".join(f"# Section {number}\nBegins so. " + word * 3_000 for number in range(5))
        fitted = self.fit(text, 2_000, section=200)
        assert 1_000 < estimate_text(text=fitted, family=FAMILY) <= 2_000
        assert fitted.count("Begins so. ") == fitted.count("left out]") == 5
        assert fitted.count(f"{word.strip()} …\n[… about") == 5

    def test_a_document_of_one_line(self) -> None:
        assert self.fit("word " * 14_000, 2_000).startswith("word word")

    def test_headings_alone_that_are_too_many(self) -> None:
        fitted = self.fit("# h\n" * 20_000, 1_000)
        assert 500 < estimate_text(text=fitted, family=FAMILY) <= 1_000

    def test_a_heading_in_a_fence_is_none(self) -> None:
        text = "# Task\n```\n# not one\n```\n" + "line\n" * 2_000
        assert self.fit(text, 300).count("left out]") == 1

    def test_an_open_fence_is_closed_before_the_mark(self) -> None:
        fitted = self.fit("# Code\n```py\n" + "x = 1\n" * 2_000 + "```\n# Next\nShip it.", 300)
        assert fitted.count("```") == 2

    @settings(max_examples=80, deadline=None)
    @given(
        st.lists(st.tuples(st.sampled_from(["# A", "## B", "### 三"]), st.integers(0, 200)), min_size=1, max_size=12),
        st.integers(200, 3_000),
        st.sampled_from(["a line with words ", "重要な決定を記録する。", "x_1 = call(y) "]),
    )
    def test_any_document(self, sections: list[tuple[str, int]], most: int, line: str) -> None:
        text = "\n".join(f"{heading}\n" + f"{line}\n" * count for heading, count in sections)
        fitted = self.fit(text, most)
        assert estimate_text(text=fitted, family=FAMILY) <= most
        assert fitted == self.fit(text, most)
        headings = [one for one in fitted.splitlines() if one.startswith("#")]
        assert headings == [heading for heading, _ in sections]


def segment_of(talk: Talk, covers_to: int, **figures: int) -> Any:
    given = {"least_tokens": 10_000, "least_texts": 5, "most_tokens": 40_000, "waiting_tokens": 8_000, **figures}
    return memory_segment(messages=talk.messages, covers_to=covers_to, **given)


class TestSegment:
    def test_the_tail_grows_to_the_least(self) -> None:
        talk = reads(60)
        found = segment_of(talk, 230)
        kept = sum(m.tokens for m in found.tail)
        assert 10_000 <= kept <= 40_000
        assert sum(bool(text_of(m.content)) for m in found.tail) >= 5
        assert found.tail[0].position in cut_points(talk.messages)

    def test_all_that_is_not_covered_stays(self) -> None:
        found = segment_of(reads(60), 100)
        assert found.tail[0].position <= 101

    def test_a_message_of_40_000_tokens_alone(self) -> None:
        talk = reads(10).u("word " * 45_000).a("I have read it")
        size = talk.messages[40].tokens
        # It is not covered, so it stays whatever its size; it is more than the tail may have, so nothing is added.
        found = segment_of(talk, 40, most_tokens=size)
        assert found.tail[0].position == 41
        # It is covered, and would be more than the tail may have: the tail is what follows it.
        found = segment_of(talk, 41, most_tokens=size)
        assert found.tail[0].position == 42

    def test_a_newest_round_that_is_larger_than_the_tail_may_be(self) -> None:
        talk = reads(10).u("go on").a("word " * 60_000)
        assert talk.messages[41].tokens > 40_000
        # It is covered and answered: nothing makes it stay, and the tail may not be as large.
        assert segment_of(talk, 42).tail == ()

    def test_no_text_messages_at_all(self) -> None:
        talk = Talk().u("go")
        for number in range(200):
            talk.a(use(f"c{number}")).u(res(f"c{number}", "line of it\n" * 200))
        found = segment_of(talk, 380)
        assert sum(m.tokens for m in found.tail) <= 40_000
        assert found.tail[0].position in cut_points(talk.messages)

    def test_a_cut_splits_no_round(self) -> None:
        talk = reads(10)
        found = segment_of(talk, 34, least_tokens=0, least_texts=0)
        assert found.tail[0].position in (32, 34, 35)
        assert found.tail[0].position in cut_points(talk.messages)

    def test_what_nobody_has_acted_on_stays(self) -> None:
        found = segment_of(reads(10).u("and now?"), 41, least_tokens=0, least_texts=0)
        assert found.tail[-1].position == 41


def attempt(talk: Talk, memory: MemoryValue | None, *boundaries: Boundary, **given: Any) -> Step:
    told = ("instructions", "pre_compact", "tokens", "names_summarizer")
    figures = {name: value for name, value in given.items() if name not in told}
    situation = situation_of(talk.messages, boundaries=boundaries, tokens=given.get("tokens"), **figures)
    situation = replace(
        situation,
        memory=memory,
        instructions=given.get("instructions", ""),
        pre_compact=given.get("pre_compact"),
        names_summarizer=given.get("names_summarizer", False),
    )
    return SESSION_MEMORY.attempt(situation)


LONG_HEADING = f"# {'long ' * 150}\n" + "text " * 100


def refuse() -> str:
    raise CompactionRefused(reason=FailureReason.REFUSED_BY_HOOK, detail="not now")


class TestLink:
    def test_it_works(self) -> None:
        talk = reads(60)
        step = attempt(talk, MemoryValue(content=MEMORY, covers_to=200))
        assert step.draft is not None
        assert (step.draft.kind, step.draft.summary, step.draft.summarizer) == (
            BoundaryKind.SESSION_MEMORY,
            MEMORY,
            "session_memory",
        )
        assert step.tokens_after < step.tokens_before
        assert step.draft.covers_to <= 200

    @pytest.mark.parametrize(
        ("memory", "given", "why"),
        [
            (None, {}, "no memory"),
            (MemoryValue(content=TEMPLATE, covers_to=200), {}, "only a template"),
            (MemoryValue(content=MEMORY, covers_to=200, is_live=False), {}, "live path"),
            (MemoryValue(content=MEMORY, covers_to=200), {"instructions": "mind x"}, "instructions"),
            (MemoryValue(content=MEMORY, covers_to=200), {"pre_compact": lambda: "mind y"}, "hook"),
            (MemoryValue(content=MEMORY, covers_to=200), {"memory_enabled": False}, "switched off"),
            (MemoryValue(content=MEMORY, covers_to=200), {"memory_tail_tokens": 5_000}, "does not cover"),
            (MemoryValue(content=MEMORY, covers_to=200), {"context_window": 20_000}, "still over its threshold"),
            (MemoryValue(content=MEMORY * 9_000, covers_to=200), {"memory_tokens": 10**6}, "would go from"),
            (MemoryValue(content=MEMORY, covers_to=200), {"least_freed_share": 0.9}, "tokens would be freed"),
            (MemoryValue(content=MEMORY, covers_to=200), {"names_summarizer": True}, "a summariser was named"),
            (
                MemoryValue(content=LONG_HEADING, covers_to=200),
                {"memory_tokens": 100},
                "no more than headings",
            ),
        ],
    )
    def test_it_passes(self, memory: MemoryValue | None, given: dict[str, Any], why: str) -> None:
        step = attempt(reads(60), memory, **given)
        assert step.draft is None
        assert why in step.why

    def test_a_message_of_40_000_tokens_alone(self) -> None:
        alone = Talk().u("word " * 60_000)
        assert alone.messages[0].tokens > 40_000
        memory = MemoryValue(content=MEMORY, covers_to=1)
        step = attempt(alone, memory)
        assert (step.draft, step.why) == (None, "what stays verbatim behind the memory is all that is shown")
        # Once it was answered, the memory that covers it may stand for it.
        step = attempt(alone.a("I have read it"), memory)
        assert step.draft is not None
        assert step.draft.covers_to == 1

    def test_what_nobody_has_acted_on_yet_is_too_large(self) -> None:
        talk = reads(20).u("word " * 60_000)
        step = attempt(talk, MemoryValue(content=MEMORY, covers_to=81))
        assert step.draft is None
        assert "that nobody has acted on yet" in step.why
        assert "more than 40,000" in step.why

    def test_no_text_messages_at_all(self) -> None:
        talk = Talk().u("go")
        for number in range(200):
            talk.a(use(f"c{number}")).u(res(f"c{number}", "line of it\n" * 200))
        step = attempt(talk, MemoryValue(content=MEMORY, covers_to=380))
        assert step.draft is not None
        kept = [m for m in talk.messages if m.position > step.draft.covers_to]
        # Five messages with text are not to be had, so it grows as far as it may.
        assert 39_000 < sum(m.tokens for m in kept) <= 40_000

    def test_a_hook_that_refuses_is_heard(self) -> None:
        with pytest.raises(CompactionRefused, match="not now"):
            attempt(reads(60), MemoryValue(content=MEMORY, covers_to=200), pre_compact=refuse)

    def test_a_summary_that_knows_more_stays(self) -> None:
        step = attempt(reads(60), MemoryValue(content=MEMORY, covers_to=99), boundary(100, committed_at=150))
        assert step.draft is None
        assert "knows more" in step.why

    def test_right_after_it_there_is_nothing_new(self) -> None:
        talk = reads(60)
        memory = MemoryValue(content=MEMORY, covers_to=200)
        draft = attempt(talk, memory).draft
        assert draft is not None
        made = boundary(draft.covers_to, committed_at=240, kind=BoundaryKind.SESSION_MEMORY)
        assert attempt(talk, memory, made).draft is None
