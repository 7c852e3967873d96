"""Chats of Chat Completions: which values are some, and what they are read into."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from sessions_app.transcript.call_arguments import arguments_of, input_of
from sessions_app.transcript.entries import Conversation, LineProblem, NotThisFormat, TranscriptMessage
from sessions_app.transcript.formats import anthropic, openai
from sessions_app.transcript.messages import Role, Usage
from tests.build import res, text, use

SYSTEM = {"role": "system", "content": "Be kind."}
ASK = {"role": "user", "content": "what is in it?"}
PNG = "iVBORw0KGgo="


def call(id: str = "c1", arguments: Any = '{"path": "/a"}', name: str = "Read", **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def calls(*given: Any, content: Any = None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(given), **more}


def result(id: str = "c1", content: Any = "nothing", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content, **more}


DONE = {"role": "assistant", "content": "Nothing."}
TALK: list[Any] = [SYSTEM, ASK, calls(call()), result(), DONE]
FUNCTION = {"name": "Read", "description": "reads", "parameters": {"type": "object"}}
TOOL = {"name": "Read", "description": "reads", "input_schema": {"type": "object"}}
USAGE = {"prompt_tokens": 120, "completion_tokens": 16, "prompt_tokens_details": {"cached_tokens": 100}}
RESPONSE: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1742842885,
    "model": "gpt-5-2026",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {**DONE, "refusal": None, "annotations": []}}],
    "usage": USAGE,
}


def read(value: Any) -> Conversation:
    before = copy.deepcopy(value)
    told = openai.read_document(value=value, line_number=7)
    assert value == before, "what was given was changed"
    return told


def messages(told: Conversation) -> list[TranscriptMessage]:
    return [item for item in told.items if isinstance(item, TranscriptMessage)]


def problems(told: Conversation) -> list[str]:
    return [item.reason for item in told.items if isinstance(item, LineProblem)]


def one(message: dict[str, Any]) -> TranscriptMessage:
    """A message as it is read behind a question."""
    return messages(read([ASK, message, result()]))[1]


class TestRecognition:
    @pytest.mark.parametrize(
        "value",
        [
            TALK,
            [SYSTEM, ASK],
            [ASK, {"role": "developer", "content": "x"}],
            [ASK, calls(call())],
            [ASK, result()],
            [ASK, {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}],
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x"}}]}],
            {"messages": [ASK], "tools": [{"type": "function", "function": FUNCTION}]},
            {"messages": [ASK], "functions": [FUNCTION]},
            {"request": {"messages": [ASK]}, "response": RESPONSE},
            {"messages": [ASK], "response": RESPONSE, "cost": 0.02},
        ],
    )
    def test_what_tells_it(self, value: Any) -> None:
        assert openai.recognizes_document(value=value)
        assert not anthropic.recognizes_document(value=value)
        assert messages(read(value))

    @pytest.mark.parametrize(
        "value",
        [
            [ASK, {"role": "assistant", "content": [use("t1")]}],
            {"system": "x", "messages": [ASK]},
            {"messages": [ASK], "tools": [TOOL]},
        ],
    )
    def test_the_other_formats_chat_is_none_even_where_somebody_says_so(self, value: Any) -> None:
        with pytest.raises(NotThisFormat):
            openai.read_document(value=value, line_number=1)

    def test_a_chat_that_tells_nothing_is_read_where_somebody_says_so(self) -> None:
        assert not openai.recognizes_document(value=[ASK, DONE])
        assert len(messages(read([ASK, DONE]))) == 2

    @pytest.mark.parametrize("role", ["user", "system", "developer", "tool", "assistant", "function"])
    def test_a_message(self, role: str) -> None:
        assert openai.is_message(value={"role": role, "content": "x"})
        assert not openai.is_message(value={"role": role})
        assert not openai.is_message(value={"role": role, "content": 7})


class TestSession:
    def test_prompts_in_front_are_the_sessions(self) -> None:
        assert read([SYSTEM, ASK]).session == {"system": "Be kind."}
        several = read([SYSTEM, {"role": "developer", "content": [text("And brief.")]}, ASK])
        assert several.session == {"system": [text("Be kind."), text("And brief.")]}
        assert [item.role for item in messages(several)] == [Role.USER]

    def test_prompts_alone_are_a_session_without_messages(self) -> None:
        assert read([SYSTEM]) == Conversation(line_number=7, session={"system": "Be kind."}, items=())

    def test_later_ones_are_messages(self) -> None:
        told = messages(read([ASK, {"role": "developer", "content": "stop"}, SYSTEM]))
        assert [(item.role, item.content) for item in told[1:]] == [(Role.SYSTEM, "stop"), (Role.SYSTEM, "Be kind.")]
        assert [item.envelope for item in told[1:]] == [{"role": "developer"}, None]

    @pytest.mark.parametrize(
        ("given", "tool"),
        [
            ({"type": "function", "function": FUNCTION}, TOOL),
            ({"type": "function", "function": {**FUNCTION, "strict": True}}, {**TOOL, "strict": True}),
            ({"type": "function", "function": {"name": "f"}}, {"name": "f", "input_schema": openai.NO_PARAMETERS}),
        ],
    )
    def test_functions_are_tools(self, given: Any, tool: Any) -> None:
        assert read({"messages": TALK, "tools": [given]}).session == {"system": "Be kind.", "tools": [tool]}

    def test_functions_of_old_are_tools_too(self) -> None:
        assert read({"messages": [ASK], "functions": [FUNCTION]}).session == {"tools": [TOOL]}

    def test_what_a_tool_can_not_tell_is_kept(self) -> None:
        odd = {"type": "custom", "custom": {"name": "sql", "format": {"type": "grammar"}}}
        session = read({"messages": TALK, "tools": [odd, {"type": "function", "function": FUNCTION}]}).session
        assert session["tools"] == [{"name": "sql", "input_schema": openai.NO_PARAMETERS}, TOOL]
        assert session["metadata"] == {"openai_tools": [odd]}

    @pytest.mark.parametrize("tools", [7, [7], [{"type": "function"}], [{"type": "function", "function": {}}]])
    def test_damaged_tools_are_told(self, tools: Any) -> None:
        told = read({"messages": TALK, "tools": tools})
        assert len(problems(told)) == 1
        assert len(messages(told)) == 4


class TestCalls:
    def test_a_call_and_its_result(self) -> None:
        told = messages(read(TALK))
        assert [(item.role.value, item.content) for item in told] == [
            ("user", "what is in it?"),
            ("assistant", [use("c1", path="/a")]),
            ("user", [{"type": "tool_result", "tool_use_id": "c1", "content": "nothing"}]),
            ("assistant", "Nothing."),
        ]
        assert [item.envelope for item in told] == [None] * 4
        assert [item.parent_uuid for item in told] == [None, *(item.uuid for item in told[:-1])]

    def test_text_stands_before_the_calls(self) -> None:
        assert one(calls(call(), call("c2"), content="Reading.")).content == [
            text("Reading."),
            use("c1", path="/a"),
            use("c2", path="/a"),
        ]
        assert one(calls(call(), content="")).content == [use("c1", path="/a")]
        assert one(calls(call(), content=[text("Reading.")])).content[0] == text("Reading.")

    @pytest.mark.parametrize(
        ("arguments", "input"),
        [
            ('{"a": [1, {"b": null}]}', {"a": [1, {"b": None}]}),
            ("", {}),
            (None, {}),
            ({"a": 1}, {"a": 1}),
            ("ls -l", {"_raw": "ls -l"}),
            ('{"a": ', {"_raw": '{"a": '}),
            ("[1]", {"_raw": "[1]"}),
            ('{"a": NaN}', {"_raw": '{"a": NaN}'}),
            ('{"a": 1e999}', {"_raw": '{"a": 1e999}'}),
            ('{"a":' * 300 + "1" + "}" * 300, {"_raw": '{"a":' * 300 + "1" + "}" * 300}),
            ([1], {"_raw": "[1]"}),
        ],
    )
    def test_arguments(self, arguments: Any, input: Any) -> None:
        [block] = one(calls(call(arguments=arguments))).content
        assert block == {"type": "tool_use", "id": "c1", "name": "Read", "input": input}
        assert input_of(arguments=arguments_of(input=input)) == input

    @pytest.mark.parametrize("input", [{"_raw": "{}"}, {"_raw": ""}, {"_raw": "x", "a": 1}, {"_raw": 7}, {}])
    def test_arguments_come_back_whatever_they_are(self, input: dict[str, Any]) -> None:
        assert input_of(arguments=arguments_of(input=input)) == input

    def test_more_that_a_call_says_is_kept(self) -> None:
        odd = call(extra_content={"google": {"thought_signature": "x"}})
        told = one(calls(odd))
        assert told.content == [use("c1", path="/a")]
        assert told.envelope == {"role": "assistant", "tool_calls": [odd]}

    def test_a_custom_tools_call(self) -> None:
        odd = {"id": "c1", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
        told = one(calls(odd))
        assert told.content == [{"type": "tool_use", "id": "c1", "name": "sql", "input": {"_raw": "select 1"}}]
        assert told.envelope == {"role": "assistant", "tool_calls": [odd]}

    def test_a_call_of_old_and_its_result(self) -> None:
        function = {"name": "Read", "arguments": '{"path": "/a"}'}
        asked = {"role": "assistant", "content": None, "function_call": function}
        told = messages(read([ASK, asked, {"role": "function", "name": "Read", "content": "nothing"}]))
        [use_], [result_] = told[1].content, told[2].content
        assert (use_["name"], use_["input"]) == ("Read", {"path": "/a"})
        assert use_["id"] == result_["tool_use_id"]
        assert told[2].envelope == {"role": "function", "name": "Read"}

    @pytest.mark.parametrize("missing", [{"id": None}, {"id": ""}])
    def test_a_call_without_an_id_gets_one_that_its_result_has_too(self, missing: dict[str, Any]) -> None:
        told = messages(read([ASK, calls({**call(), **missing}), {"role": "tool", "content": "nothing"}]))
        assert told[1].content[0]["id"] == told[2].content[0]["tool_use_id"]

    @pytest.mark.parametrize("bad", [7, {}, {"id": "c1", "type": "function", "function": {"arguments": "{}"}}])
    def test_a_damaged_call_is_told_in_words_and_kept(self, bad: Any) -> None:
        told = one(calls(call(), bad))
        assert told.content == [use("c1", path="/a"), text("[a tool call without a name: not shown]")]
        assert told.envelope is not None
        assert told.envelope["tool_calls"] == [call(), bad]

    def test_calls_that_are_no_list_are_kept(self) -> None:
        told = one({"role": "assistant", "content": "x", "tool_calls": {"a": 1}})
        assert (told.content, told.envelope) == ("x", {"role": "assistant", "tool_calls": {"a": 1}})

    def test_a_result_of_parts(self) -> None:
        told = messages(read([ASK, calls(call()), result(content=[text("a"), text("b")], name="Read")]))[2]
        assert told.content == [{"type": "tool_result", "tool_use_id": "c1", "content": [text("a"), text("b")]}]
        assert told.envelope == {"role": "tool", "name": "Read"}


class TestParts:
    @pytest.mark.parametrize(
        ("part", "block"),
        [
            (text("hi"), text("hi")),
            ("hi", text("hi")),
            (
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
            ),
            (
                {"type": "image_url", "image_url": "https://example.com/a.png"},
                {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            ),
            (
                {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PNG}"}},
                {
                    "type": "document",
                    "title": "a.pdf",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": PNG},
                },
            ),
        ],
    )
    def test_a_part_that_a_block_tells(self, part: Any, block: Any) -> None:
        told = messages(read([{"role": "user", "content": [part]}, SYSTEM]))[0]
        assert (told.content, told.envelope) == ([block], None)

    @pytest.mark.parametrize(
        ("part", "words"),
        [
            ({"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}}, "[input_audio: not shown]"),
            ({"type": "file", "file": {"file_id": "f1", "filename": "a.csv"}}, "[file a.csv: not shown]"),
            ({"type": "image_url", "image_url": {"url": "data:image/png;base64,$$$"}}, "[image_url: not shown]"),
            ({"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,AAAA"}}, "[image_url: not shown]"),
            ({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "[image_url: not shown]"),
            ({"type": "image_url"}, "[image_url: not shown]"),
            ({"type": "thinking", "thinking": "hm", "signature": "s"}, "[thinking: not shown]"),
            ({"type": "text", "text": None}, "[text: not shown]"),
            ({"type": "refusal", "refusal": "No."}, "No."),
            ({"type": ["x"]}, "[a part without a type: not shown]"),
            (7, "[a part that is no object: not shown]"),
        ],
    )
    def test_another_is_told_in_words_and_kept(self, part: Any, words: str) -> None:
        told = messages(read([{"role": "user", "content": [text("see"), part]}, result()]))[0]
        assert told.content == [text("see"), text(words)]
        assert told.envelope == {"role": "user", "parts": {"1": part}}

    def test_what_a_picture_says_more_is_kept(self) -> None:
        part = {"type": "image_url", "image_url": {"url": "https://x/a.png", "detail": "low"}}
        told = messages(read([{"role": "user", "content": [part]}]))[0]
        assert told.content == [{"type": "image", "source": {"type": "url", "url": "https://x/a.png"}}]
        assert told.envelope == {"role": "user", "parts": {"0": part}}

    def test_a_refusal_is_what_was_said(self) -> None:
        told = one({"role": "assistant", "content": None, "refusal": "I can't."})
        assert (told.content, told.envelope) == ("I can't.", {"role": "assistant", "refusal": "I can't."})

    @pytest.mark.parametrize("content", ["", None, []])
    def test_nothing_said_is_nothing(self, content: Any) -> None:
        assert not one({"role": "assistant", "content": content}).content

    def test_reasoning_is_kept_and_is_no_thinking(self) -> None:
        told = one({"role": "assistant", "content": "Nothing.", "reasoning_content": "hm", "name": "bot"})
        assert told.content == "Nothing."
        assert told.envelope == {"role": "assistant", "reasoning_content": "hm", "name": "bot"}


class TestResponse:
    @pytest.mark.parametrize(
        "value",
        [{"request": {"messages": [ASK]}, "response": RESPONSE}, {"messages": [ASK], "response": RESPONSE}],
    )
    def test_it_is_the_last_message(self, value: Any) -> None:
        told = read(value)
        last = messages(told)[-1]
        assert (last.role, last.content, last.message_id) == (Role.ASSISTANT, "Nothing.", "chatcmpl-1")
        assert (last.model, last.sent_at) == ("gpt-5-2026", datetime(2025, 3, 24, 19, 1, 25, tzinfo=UTC))
        assert told.session == {"model": "gpt-5-2026"}
        assert last.envelope == {"response": {**RESPONSE, "choices": [{"index": 0, "finish_reason": "stop"}]}}

    def test_cached_tokens_are_counted_once(self) -> None:
        usage = Usage.from_json(messages(read({"messages": [ASK], "response": RESPONSE}))[-1].usage)
        assert usage == Usage(input_tokens=20, output_tokens=16, cache_read_input_tokens=100)
        assert usage.prompt_tokens == USAGE["prompt_tokens"]

    @pytest.mark.parametrize(
        "usage", [None, 7, {}, {"prompt_tokens": "9"}, {"prompt_tokens": -3, "prompt_tokens_details": 7}]
    )
    def test_a_damaged_usage_tells_nothing(self, usage: Any) -> None:
        told = messages(read({"messages": [ASK], "response": {**RESPONSE, "usage": usage}}))[-1]
        assert Usage.from_json(told.usage) is None

    def test_other_choices_are_kept(self) -> None:
        other = {"index": 1, "message": {"role": "assistant", "content": "Something."}}
        told = messages(read({"messages": [ASK], "response": {**RESPONSE, "choices": [*RESPONSE["choices"], other]}}))
        assert told[-1].content == "Nothing."
        assert told[-1].envelope is not None
        assert told[-1].envelope["response"]["choices"][1] == other

    @pytest.mark.parametrize("created", [None, "x", True, 1e300, -1e300, float("inf")])
    def test_a_damaged_moment_is_none(self, created: Any) -> None:
        told = messages(read({"messages": [ASK], "response": {**RESPONSE, "created": created}}))
        assert told[-1].sent_at is None

    @pytest.mark.parametrize(
        "response",
        ["data: {}", {"error": {}}, {"choices": []}, {"choices": [7]}, {"choices": [{"message": ASK}]}, [], 7],
    )
    def test_one_that_is_none_is_told(self, response: Any) -> None:
        told = read({"messages": [*TALK], "response": response})
        assert (len(messages(told)), problems(told)) == (4, ["a response that is no message; left out"])

    def test_it_has_the_uuid_that_it_has_in_the_next_request(self) -> None:
        exchange = messages(read({"messages": [SYSTEM, ASK], "response": RESPONSE}))
        later = messages(read([SYSTEM, ASK, DONE, ASK]))
        assert [item.uuid for item in exchange] == [item.uuid for item in later][:2]


class TestDamage:
    def test_a_damaged_message_is_told_and_the_rest_hangs_together(self) -> None:
        told = read([*TALK[:3], 7, {"role": "tool", "content": {}}, *TALK[3:]])
        assert [item.parent_uuid for item in messages(told)] == [None, *(i.uuid for i in messages(told)[:-1])]
        assert problems(told) == ["message 3: no message of this format", "message 4: no message of this format"]

    def test_line_by_line_as_in_a_document(self) -> None:
        lines = [
            openai.read_message(value=value, line_number=9, ordinal=number)
            for number, value in enumerate(TALK[1:], start=1)
        ]
        told = [item.uuid for item in messages(read(TALK))]
        assert [item.uuid for item in lines if isinstance(item, TranscriptMessage)] == told

    @pytest.mark.parametrize("value", [7, None, {}, {"role": "user"}, {"role": [], "content": ""}])
    def test_a_line_that_is_no_message_is_told(self, value: Any) -> None:
        assert isinstance(openai.read_message(value=value, line_number=3, ordinal=2), LineProblem)

    def test_odd_characters_come_in_to_the_letter(self) -> None:
        odd = "a\x00b \ud800 修复"
        told = messages(read([{"role": "user", "content": odd}, calls(call(arguments=json.dumps({"a": odd})))]))
        assert told[0].content == odd
        assert told[1].content[0]["input"] == {"a": odd}
        assert res("c1", odd)["content"] == odd
