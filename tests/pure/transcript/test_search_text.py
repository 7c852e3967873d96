"""What of a message can be searched, and that folding neither hides nor makes a hit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.transcript.search_text import ESCAPE, MARKER, fold, fold_query, search_text, snippet
from tests.build import res, use

# Few letters, so that hits are frequent; with what changes its length, what is marked, and the marks themselves.
LETTERS = st.text(alphabet=["a", "A", "ß", "s", "Σ", "ς", "İ", "关", "键", "カ", "한", "ﬃ", MARKER, ESCAPE, "%", " "])
ANY = st.text()


def holds(text: str, query: str) -> bool:
    return fold_query(text=query) in fold(text=text)


class TestFold:
    def test_it_works(self) -> None:
        assert fold(text="Das Straße关键") == f"das strasse关{MARKER}键{MARKER}"
        assert fold_query(text="关键") == f"关{MARKER}键"
        assert fold_query(text="键 A") == f"键{MARKER} a"

    def test_two_characters_of_a_short_script_are_three_letters(self) -> None:
        for word in ("关键", "カナ", "ひら", "한국", "𠀀𠀁", "ｶﾅ"):
            folded = fold_query(text=word)
            assert len(folded) >= 3
            assert folded.isalpha()

    @given(LETTERS, LETTERS)
    def test_a_text_is_found_exactly_when_it_is_there(self, text: str, query: str) -> None:
        assert holds(text, query) == (query.casefold() in text.casefold())

    @given(ANY, ANY, ANY)
    def test_whatever_stands_in_a_text_is_found(self, before: str, query: str, after: str) -> None:
        for written in (query, query.upper(), query.lower()):
            text = before + written + after
            assert holds(text, query) == (query.casefold() in text.casefold())

    @pytest.mark.parametrize("query", [MARKER, ESCAPE, "关" + MARKER, "a" + MARKER])
    def test_the_marks_themselves_are_found_where_they_are_alone(self, query: str) -> None:
        assert holds(f"x{query}y", query)
        assert not holds("关键 a", query)


class TestSearchText:
    def test_it_works(self) -> None:
        content: list[dict[str, Any]] = [
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "text", "text": "Let me look."},
            {
                "type": "tool_use",
                "id": "c1",
                "name": "Edit",
                "input": {"file": "/a.py", "lines": [3, 4], "say": 'a"b\n'},
            },
        ]
        assert search_text(content=content) == 'hm\nLet me look.\nEdit\nfile\n/a.py\nlines\n3\n4\nsay\na"b\n'

    def test_a_string_is_itself(self) -> None:
        assert search_text(content="Fix it.") == "Fix it."
        assert search_text(content="") == search_text(content=[]) == ""

    def test_results(self) -> None:
        media = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}}
        blocks = [res("c1", "plain"), res("c2", [{"type": "text", "text": "in a list"}, media]), res("c3", None)]
        assert search_text(content=blocks) == "plain\nin a list"

    def test_documents_and_results_of_the_provider(self) -> None:
        content: list[dict[str, Any]] = [
            {"type": "document", "title": "Law", "source": {"type": "text", "media_type": "text/plain", "data": "§ 1"}},
            {"type": "document", "source": {"type": "base64", "data": "aGVsbG8="}},
            {"type": "image", "source": {"type": "url", "url": "https://a.example/x.png"}},
            {
                "type": "web_search_tool_result",
                "tool_use_id": "s",
                "content": [
                    {"type": "web_search_result", "title": "T", "url": "https://b.example/", "encrypted_content": "E"}
                ],
            },
            {"type": "redacted_thinking", "data": "aGVsbG8="},
            {"type": "compaction", "content": "what was"},
        ]
        found = search_text(content=content)
        assert found.split("\n") == ["Law", "§ 1", "https://a.example/x.png", "T", "https://b.example/", "what was"]

    @pytest.mark.parametrize("depth", [50_000])
    def test_no_depth_is_too_deep(self, depth: int) -> None:
        inner: Any = "bottom"
        for _ in range(depth):
            inner = [inner]
        assert search_text(content=[use("c1", deep=inner)]).endswith("bottom")
        nested: Any = "bottom"
        for _ in range(depth):
            nested = [{"type": "tool_result", "content": nested}]
        assert search_text(content=nested) == "bottom"

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(),
            lambda inner: (
                st.lists(inner) | st.dictionaries(st.sampled_from(["text", "content", "input", "source"]), inner)
            ),
        )
    )
    def test_whatever_a_client_calls_a_block_is_no_error(self, odd: Any) -> None:
        search_text(content=[{"type": "text", "text": odd, "content": odd, "input": odd, "source": odd}])


class TestSnippet:
    TEXT = "x" * 500 + " The Straße " + "y" * 500

    def test_it_works(self) -> None:
        found = snippet(text=self.TEXT, query="strasse", most=160)
        assert len(found) == 160
        assert "The Straße" in found
        assert found[0] == found[-1] == "…"

    def test_a_short_text_is_whole(self) -> None:
        assert snippet(text="a short one", query="SHORT", most=160) == "a short one"

    def test_at_the_ends(self) -> None:
        assert snippet(text="needle" + "x" * 200, query="needle", most=20) == "needle" + "x" * 13 + "…"
        assert snippet(text="x" * 200 + "needle", query="needle", most=20) == "…" + "x" * 13 + "needle"

    def test_what_is_longer_than_the_snippet_begins_it(self) -> None:
        assert snippet(text="ab" + "z" * 300, query="z" * 200, most=20).strip("…").startswith("z")

    def test_what_is_not_there_shows_the_beginning(self) -> None:
        assert snippet(text="abc" * 100, query="q", most=10) == "abcabcabc…"

    @given(ANY, st.text(min_size=1, max_size=20), ANY)
    def test_it_holds_what_was_looked_for(self, before: str, query: str, after: str) -> None:
        found = snippet(text=before * 40 + query + after * 40, query=query, most=60)
        assert len(found) <= 60
        assert holds(found, query)
