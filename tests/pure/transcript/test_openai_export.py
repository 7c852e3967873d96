"""From a request of the Messages API to one of Chat Completions: always one that it takes, and it says the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions_app.transcript.entries import TranscriptMessage
from sessions_app.transcript.formats import openai, openai_export
from sessions_app.transcript.messages import content_blocks, result_text, text_of, tool_results, tool_uses
from sessions_app.transcript.validation import validate_messages
from tests.build import res, text, thinking, use
from tests.openai_requests import validate_openai

PNG = "iVBORw0KGgo="
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
PICTURE_PART = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PNG}, "title": "a.pdf"}
PDF_PART = {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PNG}"}}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": [text(one) if isinstance(one, str) else one for one in content]}


def assistant(*content: Any) -> dict[str, Any]:
    return {**user(*content), "role": "assistant"}


def document(*messages: Any, **head: Any) -> dict[str, Any]:
    return openai_export.document(**{"model": "", "system": None, "tools": None, "messages": messages, **head})


def made(*messages: Any) -> list[dict[str, Any]]:
    found = document(*messages)["messages"]
    assert validate_openai(found) == []
    return found


def function(id: str, arguments: str = "{}", name: str = "Read") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


class TestHead:
    def test_model_prompt_and_tools(self) -> None:
        tool = {"name": "Read", "description": "reads", "input_schema": {"type": "object"}, "cache_control": {}}
        server = {"type": "web_search_20250305", "name": "web_search"}
        whole = document(user("hi"), model="gpt-5", system="Be kind.", tools=[tool, server])
        told = {"name": "Read", "description": "reads", "parameters": {"type": "object"}}
        assert whole == {
            "model": "gpt-5",
            "tools": [{"type": "function", "function": told}],
            "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}],
        }

    def test_what_is_empty_is_left_out(self) -> None:
        assert set(document(user("hi"), tools=[{"type": "bash_20250124", "name": "bash"}])) == {"messages"}

    def test_a_prompt_of_blocks(self) -> None:
        [prompt, _] = document(user("hi"), system=[{**text("a"), "cache_control": {}}, text("b")])["messages"]
        assert prompt == {"role": "system", "content": [text("a"), text("b")]}


class TestMessages:
    def test_parallel_results_stand_directly_behind_their_calls(self) -> None:
        asked = assistant(thinking(), "Reading.", use("A", path="/é"), use("B"))
        assert made(user("go"), asked, user(res("A", "a"), res("B", "b"), "and now?")) == [
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": "Reading.",
                "tool_calls": [function("A", '{"path":"/é"}'), function("B")],
            },
            {"role": "tool", "tool_call_id": "A", "content": "a"},
            {"role": "tool", "tool_call_id": "B", "content": "b"},
            {"role": "user", "content": "and now?"},
        ]

    def test_calls_without_words(self) -> None:
        assert made(user("go"), assistant(use("A")), user(res("A")))[1]["content"] is None

    def test_a_text_stays_a_text(self) -> None:
        assert made({"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}) == [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "yes"},
        ]

    def test_thinking_alone_is_nothing(self) -> None:
        assert [one["role"] for one in made(user("a"), assistant(thinking()), user("b"))] == ["user", "user"]

    def test_a_later_system_message(self) -> None:
        assert made(user("a"), {"role": "system", "content": "stop"})[1] == {"role": "system", "content": "stop"}

    def test_raw_arguments_are_text_again(self) -> None:
        [_, asked, _] = made(user("go"), assistant(use("A", _raw="ls -l")), user(res("A")))
        assert asked["tool_calls"] == [function("A", "ls -l")]

    @pytest.mark.parametrize("content", [None, "", []])
    def test_an_empty_result(self, content: Any) -> None:
        [*_, result] = made(user("go"), assistant(use("A")), user(res("A", content)))
        assert result == {"role": "tool", "tool_call_id": "A", "content": ""}

    def test_a_result_of_texts(self) -> None:
        [*_, result] = made(user("go"), assistant(use("A")), user(res("A", [text("a"), text("b")])))
        assert result["content"] == [text("a"), text("b")]

    def test_pictures_of_results_follow_all_results(self) -> None:
        found = made(
            user("go"), assistant(use("A"), use("B")), user(res("A", [text("see"), PICTURE]), res("B", [PDF]), "ok?")
        )
        assert found[2:] == [
            {"role": "tool", "tool_call_id": "A", "content": [text("see"), text("[image: shown below]")]},
            {"role": "tool", "tool_call_id": "B", "content": "[file: shown below]"},
            {
                "role": "user",
                "content": [
                    text("[of the result of A]"),
                    PICTURE_PART,
                    text("[of the result of B]"),
                    PDF_PART,
                    text("ok?"),
                ],
            },
        ]

    def test_long_ids_and_names_are_cut_alike_everywhere(self) -> None:
        long = "mcp__a_server_with_a_name__" + "x" * 90
        twin = long[:-1] + "y"
        asked = assistant({**use("i" * 41), "name": long}, {**use("i" * 40 + "j"), "name": twin})
        whole = document(
            *(user("go"), asked, user(res("i" * 41, "a"), res("i" * 40 + "j", "b"))),
            tools=[{"name": name, "input_schema": {}} for name in (long, twin)],
        )
        assert validate_openai(whole["messages"]) == []
        names = [one["function"]["name"] for one in whole["tools"]]
        assert names == [one["function"]["name"] for one in whole["messages"][1]["tool_calls"]]
        assert len(set(names)) == 2


class TestBlocks:
    @pytest.mark.parametrize(
        ("block", "part"),
        [
            (PICTURE, PICTURE_PART),
            (
                {"type": "image", "source": {"type": "url", "url": "https://x/a.png"}},
                {"type": "image_url", "image_url": {"url": "https://x/a.png"}},
            ),
            (PDF, PDF_PART),
            (
                {
                    "type": "document",
                    "source": {"type": "text", "media_type": "text/plain", "data": "hi"},
                    "title": "a",
                },
                text("a\nhi"),
            ),
        ],
    )
    def test_what_has_a_counterpart(self, block: Any, part: Any) -> None:
        [found] = made(user("see", block))
        assert found["content"] == [text("see"), part]

    @pytest.mark.parametrize(
        "block",
        [
            {"type": "image", "source": {"type": "file", "file_id": "f1"}},
            {"type": "document", "source": {"type": "file", "file_id": "f1"}},
            {"type": "search_result", "title": "f1", "source": "https://x", "content": [text("hi")]},
            {"type": "container_upload", "file_id": "f1"},
        ],
    )
    def test_another_is_told_in_words(self, block: Any) -> None:
        [found] = made(user(block))
        assert found["content"].startswith(f"[{block['type']} block]")
        assert "f1" in found["content"]

    def test_what_ran_on_the_other_side_is_told_in_words(self) -> None:
        call = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
        answer = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"url": "https://x"}]}
        [_, found] = made(user("a"), assistant(call, answer, "done"))
        assert ["tool_calls" in found, len(found["content"])] == [False, 3]

    @pytest.mark.parametrize(
        ("block", "told"),
        [
            ({"type": "compaction", "content": "what was", "signature": "s"}, "what was"),
            ({"type": "compaction", "content": None, "encrypted_content": "x"}, openai_export.readable({"type": ""})),
        ],
    )
    def test_a_providers_own_compaction_is_what_it_says(self, block: Any, told: str) -> None:
        found = made(assistant(block), user("go on"))
        assert (block["content"] is None) or found[0]["content"] == told
        assert all("compaction" not in json.dumps(one) for one in found)


# Anything that the Messages API would take comes out as something that the other takes, and says the same when read.

words = st.text(st.characters(exclude_categories=[]), min_size=1, max_size=20).filter(str.strip)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
inputs = st.dictionaries(words | st.just("_raw"), values, max_size=3)
contents = words | st.just("") | st.lists(words.map(text) | st.just(PICTURE), max_size=3)
said = st.lists(words.map(text) | st.just(PICTURE) | st.just(PDF), max_size=3)


@st.composite
def requests(draw: st.DrawFn) -> list[dict[str, Any]]:
    messages = [user(*draw(said.filter(bool)))]
    for turn in range(draw(st.integers(0, 3))):
        calls = [use(f"t{turn}-{n}", **draw(inputs)) for n in range(draw(st.integers(0, 3)))]
        texts = draw(st.lists(words.map(text), min_size=0 if calls else 1, max_size=2))
        order = draw(st.permutations([*texts, *calls]))
        messages.append(assistant(*([thinking()] if draw(st.booleans()) else []), *order))
        results = [res(one["id"], draw(contents)) for one in calls]
        more = draw(said if results else said.filter(bool))
        messages.append(user(*results, *more))
    return messages


@given(requests())
@settings(max_examples=150, deadline=None)
def test_it_says_the_same(messages: list[dict[str, Any]]) -> None:
    assert validate_messages(messages=messages) == []
    whole = document(*messages)
    assert validate_openai(whole["messages"]) == []
    text_ = json.dumps(whole)
    back = openai.read_document(value=json.loads(text_), line_number=1)
    read = [one for one in back.items if isinstance(one, TranscriptMessage)]
    assert len(read) == len(back.items)
    assert calls_in([one.content for one in read]) == calls_in([one["content"] for one in messages])
    assert results_in([one.content for one in read]) == results_in([one["content"] for one in messages])
    assert texts_in([one.content for one in read]) == texts_in([one["content"] for one in messages])
    assert media_in([one.content for one in read]) == media_in([one["content"] for one in messages])


def calls_in(contents: list[Any]) -> list[Any]:
    return [(one["id"], one["name"], one["input"]) for content in contents for one in tool_uses(content)]


def results_in(contents: list[Any]) -> list[Any]:
    results = [one for content in contents for one in tool_results(content)]
    return [(one["tool_use_id"], result_text(one).replace("[image: shown below]", "").split()) for one in results]


def texts_in(contents: list[Any]) -> str:
    told = "\n".join(text_of(content) for content in contents)
    return "".join(line for line in told.split("\n") if not line.startswith("[of the result of "))


def media_in(contents: list[Any]) -> list[Any]:
    blocks = [block for content in contents for block in content_blocks(content)]
    inner = [part for one in blocks if isinstance(one.get("content"), list) for part in one["content"]]
    return sorted(one["type"] for one in [*blocks, *inner] if one["type"] in ("image", "document"))
