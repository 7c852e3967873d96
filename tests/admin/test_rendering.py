"""What comes out of hostile or odd transcript text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from django.template.loader import render_to_string

from compaction_app.admin.rendering.blocks import AnswerRow, ClearedMark, Place, render_block, render_text
from compaction_app.admin.rendering.calls import headline, index_calls
from compaction_app.admin.rendering.diff import diffs_of
from compaction_app.admin.rendering.images import MOST_BASE64, image_block
from compaction_app.admin.rendering.markdown import markdown_html
from compaction_app.admin.rendering.summary import summary_sections
from compaction_app.admin.rendering.text import MOST_CHARS, fold, one_line, terminal_html, visible
from sessions_app.models import Message, ToolCall
from tests.build import res, use

ESC = "\x1b"
PAYLOADS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[click](javascript:alert(1))",
    "[click](data:text/html,<script>alert(1)</script>)",
    "<javascript:alert(1)>",
    '[a](https://x.example "\\" onmouseover=alert(1)")',
    "![track](https://evil.example/pixel.png)",
    "[![x](https://evil.example/pixel.png)](vbscript:x)",
    "<svg/onload=alert(1)>",
    "<style>@import 'https://evil.example/x.css'</style>",
    "</div></li></ol><script>alert(1)</script>",
    "{{ settings.SECRET_KEY }}{% load x %}",
    "```html\n</code></pre><script>alert(1)</script>\n```",
    '```x" onclick=alert(1)\ncode\n```',
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    f"{ESC}]8;;javascript:alert(1){ESC}\\click{ESC}]8;;{ESC}\\",
    f"{ESC}[31m<script>alert(1)</script>{ESC}[0m",
]
SAFE_LINK = re.compile(r"https?:|mailto:|/|#|\?")


def place(*, position: int = 2, calls: tuple[ToolCall, ...] = (), messages: tuple[Message, ...] = ()) -> Place:
    index = index_calls(calls=calls, messages=messages)
    cleared = {"gone": ClearedMark(how="a placeholder is sent instead", url="/the/boundary/")}
    return Place(session_id=1, position=position, calls=index, cleared=cleared)


def html_of(block: Any) -> str:
    return render_to_string(block.template, {"block": block})


def tool_call(**values: Any) -> ToolCall:
    return ToolCall(**{"tool_use_id": "c1", "name": "Read", "use_position": 2, "result_position": 3, **values})


class Reader(HTMLParser):
    """What a browser would make of it: every tag with its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def assert_harmless(html: str) -> None:
    reader = Reader()
    reader.feed(html)
    for tag, attributes in reader.found:
        assert tag not in {"script", "img", "svg", "style", "iframe", "object", "form", "input", "link"}, html
        assert not any(name.startswith("on") or name in ("style", "src") for name in attributes), html
        assert SAFE_LINK.match(attributes.get("href") or "#"), html


class TestHostileText:
    @pytest.mark.parametrize("payload", PAYLOADS)
    def test_is_harmless_in_every_kind_of_block(self, payload: str) -> None:
        message = Message(position=3, content=[res("c1", payload), res("c1", [{"type": "text", "text": payload}])])
        around = place(calls=(tool_call(name=payload),), messages=(message,))
        blocks: list[dict[str, Any]] = [
            {"type": "text", "text": payload},
            {"type": "thinking", "thinking": payload},
            {"type": "redacted_thinking", "data": payload},
            {"type": payload, "x": payload},
            {"type": "image", "source": {"type": "url", "url": payload}},
            {"type": "image", "source": {"type": "base64", "media_type": payload, "data": payload}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": payload}},
            use("c1", payload, command=payload, old_string=payload, new_string=f"{payload}\n2"),
            res("unknown", payload),
            {"type": "document", "source": {"type": "text", "data": payload}},
        ]
        for block in blocks:
            assert_harmless(html_of(render_block(block=block, place=around)))

    def test_template_syntax_is_text(self) -> None:
        assert "{{ settings.SECRET_KEY }}" in markdown_html("{{ settings.SECRET_KEY }}")

    @pytest.mark.parametrize("character", [*"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200f\u200b\ufeff"])
    def test_hidden_characters_are_spelled_out(self, character: str) -> None:
        spelled = f"⟦U+{ord(character):04X}⟧"
        for shown in (
            markdown_html(f"a{character}b"),
            fold(f"a{character}b").head,
            one_line(f"a{character}b", limit=50),
            html_of(render_block(block=use("c", file_path=f"a{character}b"), place=place())),
        ):
            assert character not in shown
            assert spelled in shown

    def test_what_no_page_can_carry_is_spelled_out(self) -> None:
        assert visible("a\ud800b\x00c\td\r\ne") == "a⟦U+D800⟧b⟦U+0000⟧c\td\ne"
        html_of(render_block(block={"type": "text", "text": "\ud83d" * 600}, place=place())).encode()


class TestMarkdown:
    def test_renders_and_keeps_web_links(self) -> None:
        shown = markdown_html("**b** [a](https://x.example)\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```\ncode\n```")
        assert "<strong>b</strong>" in shown
        assert '<a href="https://x.example" rel="noopener noreferrer nofollow">a</a>' in shown
        assert "<td>1</td>" in shown
        assert "<pre><code>code" in shown

    def test_is_the_same_from_the_cache(self) -> None:
        long = "**b** <i>x</i> " * 100
        assert markdown_html(long) == markdown_html(long)

    @pytest.mark.parametrize("text", ["<bash-stdout>x</bash-stdout>", f"{ESC}[1mx", "x" * 40_000])
    def test_is_not_tried_on_markup_terminal_output_and_very_long_text(self, text: str) -> None:
        assert "ca-pre" in html_of(render_text(text))


class TestTerminal:
    def test_colours_become_classes(self) -> None:
        shown = terminal_html(f"{ESC}[1;31mred{ESC}[39m bold{ESC}[0m plain {ESC}[92mgreen{ESC}[m")
        assert shown == (
            '<span class="ca-ansi-red ca-ansi-bold">red</span><span class="ca-ansi-bold"> bold</span> plain '
            '<span class="ca-ansi-green">green</span>'
        )

    @pytest.mark.parametrize(
        "sequence",
        [f"{ESC}[2J", f"{ESC}[?25l", f"{ESC}[10;3H", f"{ESC}]0;title\x07", f"{ESC}(B", f"{ESC}c", f"{ESC}[38;5;9m"],
    )
    def test_other_sequences_are_dropped(self, sequence: str) -> None:
        assert terminal_html(f"a{sequence}b") == "ab"

    def test_an_unfinished_string_sequence_hides_nothing(self) -> None:
        assert "rm -rf" in terminal_html(f"{ESC}]0;rm -rf /")

    @pytest.mark.parametrize("parameters", ["", ";;;", "999999999999", "38", "1" * 5000])
    def test_odd_parameters_do_no_harm(self, parameters: str) -> None:
        assert "b" in terminal_html(f"a{ESC}[{parameters}mb")


class TestFold:
    def test_short_text_is_whole(self) -> None:
        assert (fold("a\nb").head, fold("a\nb").rest) == ("a\nb", "")

    def test_long_text_shows_its_first_lines_and_its_size(self) -> None:
        folded = fold("\n".join(f"line {n}" for n in range(200)))
        assert folded.head.count("\n") == 40
        assert "line 199" in folded.rest
        assert folded.size.startswith("200 lines")

    def test_one_huge_line_is_folded_and_cut(self) -> None:
        folded = fold("x" * (MOST_CHARS + 7))
        assert len(folded.head) == 4_000
        assert folded.cut_chars == 7


class TestCalls:
    @pytest.mark.parametrize(
        ("tool_input", "expected"),
        [
            ({"command": "ls -la\nrm x", "description": "list"}, "ls -la"),
            ({"file_path": "/a.py", "old_string": "x"}, "/a.py"),
            ({"pattern": "def", "path": "/src"}, "def in /src"),
            ({"todos": [{"status": "completed"}, {"status": "pending"}]}, "1 of 2 done"),
            ({"questions": [{"question": "Which?"}]}, "Which?"),
            ({"number": 3, "thing": "that"}, "that"),
            ({}, ""),
            (None, ""),
            ([1], ""),
        ],
    )
    def test_headline_is_the_most_telling_input(self, tool_input: Any, expected: str) -> None:
        assert headline(tool_input) == expected

    def test_result_is_shown_under_its_call(self) -> None:
        message = Message(position=3, content=[res("c1", "the file", is_error=True)])
        call = tool_call(result_tokens=1_234, is_error=True)
        around = place(calls=(call,), messages=(message,))
        shown = html_of(render_block(block=use("c1", file_path="/a.py"), place=around))
        assert "the file" in shown
        assert "≈1,234 tokens" in shown
        assert ">error<" in shown
        assert "/a.py" in shown

    def test_answer_row_links_to_the_call(self) -> None:
        row = render_block(block=res("c1", "the file"), place=place(position=3, calls=(tool_call(use_position=112),)))
        assert isinstance(row, AnswerRow)
        assert "the file" not in html_of(row)
        assert "?after=100#m112" in html_of(row)

    def test_result_without_a_call_is_shown_in_place(self) -> None:
        for calls in ((), (tool_call(use_position=None, name=""),)):
            shown = html_of(render_block(block=res("c1", "orphan output"), place=place(position=3, calls=calls)))
            assert "orphan output" in shown
            assert "not stored" in shown

    def test_call_without_a_result_says_so(self) -> None:
        call = tool_call(result_position=None)
        assert "no result is stored" in html_of(render_block(block=use("c1"), place=place(calls=(call,))))

    def test_cleared_result_is_marked(self) -> None:
        message = Message(position=3, content=[res("gone", "old output")])
        around = place(calls=(tool_call(tool_use_id="gone"),), messages=(message,))
        shown = html_of(render_block(block=use("gone"), place=around))
        assert 'href="/the/boundary/" title="To the boundary that cleared it">cleared from the context</a>' in shown
        assert "a placeholder is sent instead" in shown
        # Folded, and whole.
        assert "old output" in shown.partition("<details")[2].partition("The original")[2]

    def test_result_that_is_not_cleared_is_not_folded(self) -> None:
        message = Message(position=3, content=[res("c1", "new output")])
        shown = html_of(render_block(block=use("c1"), place=place(calls=(tool_call(),), messages=(message,))))
        assert "cleared" not in shown
        assert "The original" not in shown

    @pytest.mark.parametrize("content", [None, 3, [], ["text"], [None], {"a": 1}, [{"type": "image"}]])
    def test_odd_results_do_no_harm(self, content: Any) -> None:
        message = Message(position=3, content=[res("c1", content)])
        html_of(render_block(block=use("c1"), place=place(calls=(tool_call(),), messages=(message,))))


class TestBlocks:
    def test_empty_thinking_is_explained(self) -> None:
        assert "hidden by the API" in html_of(render_block(block={"type": "thinking", "thinking": ""}, place=place()))

    @pytest.mark.parametrize(
        "block", [{"type": "later_kind", "x": 1}, {}, {"type": "text"}, {"type": "thinking"}, {"type": ["a"]}]
    )
    def test_unknown_or_broken_blocks_are_not_dropped(self, block: dict[str, Any]) -> None:
        assert html_of(render_block(block=block, place=place())).strip()

    def test_only_safe_images_are_shown(self) -> None:
        def source(media: str, data: str) -> str:
            block = {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}
            return image_block(block).source

        assert source("image/png", "aGk=") == "data:image/png;base64,aGk="
        assert source("image/svg+xml", "aGk=") == ""
        assert source("image/png", "a" * (MOST_BASE64 + 1)) == ""
        assert source("image/png", 'x" onerror="alert(1)') == ""
        assert image_block({"type": "image", "source": {"type": "url", "url": "https://e.example/x.png"}}).source == ""

    def test_edits_are_lines_out_and_in(self) -> None:
        (diff,) = diffs_of({"old_string": "a\nb\nc", "new_string": "a\nB\nc"})
        assert [(line.kind, line.text) for line in diff.lines] == [
            ("same", "a"),
            ("del", "b"),
            ("add", "B"),
            ("same", "c"),
        ]
        assert len(diffs_of({"edits": [{"old_string": "", "new_string": "x"}, {"old_string": 1}, 7]})) == 1

    def test_huge_edits_are_bounded(self) -> None:
        (diff,) = diffs_of({"old_string": "a\n" * 5_000, "new_string": "b\n" * 5_000})
        assert len(diff.lines) == 400
        assert diff.more == 9_600


class TestSummary:
    @pytest.mark.parametrize(
        "text",
        [
            "## 1. Primary Request and Intent\nx\n## 6. All User Messages\ny",
            "1. Primary Request and Intent:\n   x\n\n6. All user messages:\n   y",
        ],
    )
    def test_is_split_by_its_sections(self, text: str) -> None:
        titles = [section.title.casefold() for section in summary_sections(text)]
        assert titles == ["primary request and intent", "all user messages"]

    def test_numbered_lists_are_no_sections(self) -> None:
        text = "## 1. Primary Request and Intent\n1. First thing\n2. Second thing"
        assert len(summary_sections(text)) == 1

    def test_without_sections_is_one(self) -> None:
        assert [section.title for section in summary_sections("just text")] == ["Summary"]
