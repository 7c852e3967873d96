"""Reading what a model wrote: analysis dropped, nine sections found in whatever style, nothing else taken for one."""

from __future__ import annotations

from typing import Any

import pytest

from compaction_app.engine.outcome import CompactionRefused, FailureReason
from compaction_app.engine.ports import Completion
from compaction_app.engine.summary import (
    SECTIONS,
    accepted,
    check_summary,
    heading,
    missing_sections,
    parse_summary,
)

NINE = range(1, 10)
STYLES = {
    "ours": lambda n: heading(n),
    "deeper": lambda n: f"### {n}. {SECTIONS[n - 1]}",
    "without number": lambda n: f"## {SECTIONS[n - 1]}",
    "bold": lambda n: f"**{n}. {SECTIONS[n - 1]}**",
    "bold with colon": lambda n: f"**{n}. {SECTIONS[n - 1]}:**",
    "plain": lambda n: f"{n}. {SECTIONS[n - 1]}:",
    "parenthesis": lambda n: f"## {n}) {SECTIONS[n - 1]}",
    "Chinese": lambda n: f"## {n}、第{n}部分",
    "fullwidth": lambda n: f"## {chr(0xFF10 + n)}．主な依頼",
    "Arabic digits": lambda n: f"## {chr(0x0660 + n)}. القسم",
    "bold heading": lambda n: f"## **{n}. {SECTIONS[n - 1]}**",
}


def written(style: str, body: str = "- what was done\n1. first\n2. second") -> str:
    return "\n".join(f"{STYLES[style](n)}\n{body} {n}" for n in NINE)


@pytest.mark.parametrize("style", STYLES)
def test_every_style_of_heading(style: str) -> None:
    parsed = parse_summary(text=f"<analysis>x</analysis>\n<summary>\n{written(style)}\n</summary>")
    check_summary(text=parsed)
    assert [line for line in parsed.splitlines() if line.startswith("## ")] == [heading(n) for n in NINE]
    assert parsed.count("- what was done") == 9
    assert "2. second 9" in parsed


WRAPPED = {
    "plain": "{0}",
    "tags": "<summary>{0}</summary>",
    "no end": "<summary>{0}",
    "analysis first": "<analysis>think\n## 1. not this</analysis>{0}",
    "analysis names the tag": "<analysis>then I write <summary> and more</analysis><summary>{0}</summary>",
    "analysis never ends": "<analysis>first this\n{0}",
    "analysis never ends, tag": "<analysis>first <summary>{0}</summary>",
    "two analyses": "<analysis>a</analysis><analysis>b</analysis><summary>{0}</summary>",
    "capitals": "<Analysis>a</ANALYSIS><SUMMARY>{0}</Summary>",
    "words around": "Here it is: <summary>{0}</summary> I hope it helps.",
}


@pytest.mark.parametrize("wrapped", WRAPPED.values(), ids=WRAPPED)
def test_every_wrapping(wrapped: str) -> None:
    parsed = parse_summary(text=wrapped.format(written("ours")))
    check_summary(text=parsed)
    for word in ("analysis", "think", "not this", "I hope", "Here it is", "<summary>"):
        assert word not in parsed.casefold().replace("## 1. primary", "")


def test_the_body_may_quote_the_tags() -> None:
    body = "- the parser looks for </summary> and <analysis>"
    parsed = parse_summary(text=f"<summary>\n{written('ours', body)}\n</summary>")
    assert parsed.count("</summary>") == 9
    check_summary(text=parsed)


def test_headings_in_a_fence_are_quotations() -> None:
    text = f"```\n{written('ours')}\n```"
    with pytest.raises(CompactionRefused):
        check_summary(text=parse_summary(text=text))


def test_order_is_restored_and_doubles_are_joined() -> None:
    text = "\n".join(f"{heading(n)}\n- part {n}" for n in (2, 1, *range(3, 10), 3))
    parsed = parse_summary(text=text)
    assert parsed.index("- part 1") < parsed.index("- part 2")
    assert parsed.count(heading(3)) == 1
    assert parsed.count("- part 3") == 2


def test_a_section_that_is_missing_is_named() -> None:
    text = "\n".join(f"{heading(n)}\n- part {n}" for n in NINE if n != 4)
    assert missing_sections(text=parse_summary(text=text)) == ["Errors and Fixes"]


def test_numbered_lists_are_no_sections() -> None:
    text = "\n".join(f"{n}. do this and that" for n in NINE)
    with pytest.raises(CompactionRefused):
        check_summary(text=parse_summary(text=text))


def test_long_and_hostile_texts_take_no_time() -> None:
    for text in (
        "<analysis>" * 20_000,
        "#" * 100_000,
        "**" * 50_000,
        "`" * 100_000,
        "<summary>" * 20_000 + written("ours"),
    ):
        parse_summary(text=text)


INLINE = {
    "bold": lambda n: f"**{n}. {SECTIONS[n - 1]}:** said at once {n}",
    "plain": lambda n: f"{n}. {SECTIONS[n - 1]}: said at once {n}",
    "bold title only": lambda n: f"**{SECTIONS[n - 1]}**: said at once {n}",
}


@pytest.mark.parametrize("style", INLINE.values(), ids=INLINE)
def test_what_stands_behind_a_heading_belongs_to_its_section(style: Any) -> None:
    parsed = parse_summary(text="\n\n".join(f"{style(n)}\n1. first\n2. second" for n in NINE))
    check_summary(text=parsed)
    assert all(f"said at once {n}" in parsed for n in NINE)


@pytest.mark.parametrize("mark", [" -", " –", " —", "", " |"])
def test_marks_between_number_and_title(mark: str) -> None:
    parsed = parse_summary(text="\n".join(f"## {n}{mark} {SECTIONS[n - 1]}\n- part {n}" for n in NINE))
    check_summary(text=parsed)


def test_numbers_of_subsections_are_no_sections() -> None:
    text = "\n".join(f"{heading(n)}\n- part {n}\n## {n}.1 src/ledger.py\n### 1. deeper" for n in NINE)
    parsed = parse_summary(text=text)
    check_summary(text=parsed)
    assert parsed.count("src/ledger.py") == 9


def test_one_heading_of_another_level_hides_nothing() -> None:
    text = "\n".join(f"{'##' if n == 1 else '###'} {n}. {SECTIONS[n - 1]}\n- part {n}" for n in NINE)
    check_summary(text=parse_summary(text=text))


@pytest.mark.parametrize(
    "quoted", ["</analysis> and <summary>", "<summary>", "</analysis>", "<analysis> and </analysis>"]
)
@pytest.mark.parametrize("tagged", [True, False])
def test_the_body_may_quote_every_tag(quoted: str, tagged: bool) -> None:
    body = "\n".join(f"{heading(n)}\n- part {n}: it looks for {quoted if n == 3 else 'nothing'}" for n in NINE)
    text = f"<analysis>thought</analysis>\n{f'<summary>{body}</summary>' if tagged else body}"
    parsed = parse_summary(text=text)
    check_summary(text=parsed)
    assert "thought" not in parsed
    assert all(f"- part {n}" in parsed for n in NINE)


def test_a_draft_in_the_analysis_is_not_the_summary() -> None:
    draft = "\n".join(f"{heading(n)}\n- draft {n}" for n in NINE)
    text = f"<analysis><summary>{draft}</summary></analysis><summary>{written('ours')}</summary>"
    assert "draft" not in parse_summary(text=text)
    assert "draft" not in parse_summary(text=f"<analysis>{draft}</analysis>{written('ours')}")


def test_the_last_of_two_summaries_is_taken() -> None:
    first, second = ("\n".join(f"{heading(n)}\n- {word} {n}" for n in NINE) for word in ("first", "second"))
    parsed = parse_summary(text=f"<summary>{first}</summary>\nBetter:\n<summary>{second}</summary>")
    assert "first" not in parsed
    assert "second 9" in parsed


def test_fences_that_are_indented_or_left_open_hide_no_section() -> None:
    parts = {3: "  ```\ncode\n```", 5: "```\ncode\n```", 9: "```sql\nselect 1"}
    text = "\n".join(f"{heading(n)}\n{parts.get(n, f'- part {n}')}" for n in (*range(1, 9), 9))
    check_summary(text=parse_summary(text=text))
    parts = {**parts, 1: "```sql\nselect 1", 9: "- part 9"}
    swapped = "\n".join(f"{heading(n)}\n{parts.get(n, f'- part {n}')}" for n in (*range(2, 10), 1))
    check_summary(text=parse_summary(text=swapped))


def completion(text: str, **more: Any) -> Completion:
    values: dict[str, Any] = {"stop_reason": "end_turn", "blocks": ("text",), **more}
    return Completion(text=text, model="m", response_id="r", request_id="q", usage={}, **values)


ENDS = {
    "max_tokens": (completion(written("ours"), stop_reason="max_tokens"), FailureReason.TRUNCATED),
    "cut stream": (completion(written("ours"), stop_reason=None), FailureReason.TRUNCATED),
    "refusal": (completion("I can't", stop_reason="refusal"), FailureReason.REFUSED),
    "blank": (completion(" \n "), FailureReason.NO_SUMMARY),
    "only thinking": (completion("", blocks=("thinking",)), FailureReason.NO_SUMMARY),
    "tool call": (completion("", stop_reason="tool_use", blocks=("tool_use",)), FailureReason.NO_SUMMARY),
    "paused": (completion("wait", stop_reason="pause_turn"), FailureReason.NO_SUMMARY),
    "unknown": (completion("half of it", stop_reason="something_new"), FailureReason.NO_SUMMARY),
    "stop sequence": (completion("half", stop_reason="stop_sequence"), FailureReason.NO_SUMMARY),
    "only analysis": (completion("<analysis>I think</analysis>"), FailureReason.NO_SUMMARY),
    "empty sections": (completion("\n".join(heading(n) for n in NINE)), FailureReason.NO_SUMMARY),
}


@pytest.mark.parametrize(("end", "reason"), ENDS.values(), ids=ENDS)
def test_t18_the_gate_tells_why(end: Completion, reason: FailureReason) -> None:
    with pytest.raises(CompactionRefused) as caught:
        accepted(completion=end)
    assert caught.value.reason is reason
    assert len(caught.value.detail) > 20
    assert end.text.strip() not in caught.value.detail or not end.text.strip()
