"""Chats of the Messages API: which values are some, and what they are read into."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from sessions_app.transcript.entries import Conversation, LineProblem, NotThisFormat, TranscriptMessage
from sessions_app.transcript.formats import anthropic, anthropic_export, openai
from sessions_app.transcript.messages import Role
from tests.build import res, text, thinking, use

ASK = {"role": "user", "content": "fix the login test"}
CALL = {"role": "assistant", "content": [thinking(), text("Reading."), use("t1", file_path="/srv/t.py")]}
ANSWER = {"role": "user", "content": [res("t1", "def test(): ...", is_error=True)]}
DONE = {"role": "assistant", "content": "Done."}
TALK: list[Any] = [ASK, CALL, ANSWER, DONE]
TOOLS = [{"name": "Read", "description": "reads", "input_schema": {"type": "object"}}]
BODY = {"model": "claude-sonnet-4-5", "max_tokens": 100, "system": "Be careful.", "tools": TOOLS, "messages": TALK}
USAGE = {"input_tokens": 12, "output_tokens": 3, "cache_read_input_tokens": 100, "service_tier": "standard"}
RESPONSE = {
    "id": "msg_01",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5-20250929",
    "content": [text("Done.")],
    "stop_reason": "end_turn",
    "usage": USAGE,
}


def read(value: Any) -> Conversation:
    before = copy.deepcopy(value)
    told = anthropic.read_document(value=value, line_number=7)
    assert value == before, "what was given was changed"
    return told


def messages(told: Conversation) -> list[TranscriptMessage]:
    return [item for item in told.items if isinstance(item, TranscriptMessage)]


def problems(told: Conversation) -> list[str]:
    return [item.reason for item in told.items if isinstance(item, LineProblem)]


class TestRecognition:
    @pytest.mark.parametrize(
        "value",
        [
            TALK,
            [ASK],
            [ASK, {"role": "assistant", "content": "hello"}],
            BODY,
            {"messages": TALK},
            {"request": BODY, "response": RESPONSE},
            {"messages": [ASK], "response": RESPONSE},
            {"system": "x", "messages": [ASK, {"role": "system", "content": "later"}]},
            [ASK, {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://x"}}]}],
            [CALL, ANSWER, 7],
            {"messages": []},
        ],
    )
    def test_a_chat_is_known(self, value: Any) -> None:
        assert anthropic.recognizes_document(value=value)
        assert not openai.recognizes_document(value=value)
        assert read(value).line_number == 7

    @pytest.mark.parametrize(
        "value",
        [
            None,
            7,
            "user",
            [],
            {},
            [1, 2],
            {"messages": 7},
            {"request": BODY["messages"]},
            [{"role": "human", "content": "hi"}],
            [{"role": ["user"], "content": "hi"}],
            [{"role": "user"}],
            {"conversations": [{"from": "human", "value": "hi"}]},
            {"type": "user", "message": ASK, "sessionId": "x"},
            [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}],
        ],
    )
    def test_anything_else_is_not(self, value: Any) -> None:
        for format_ in (anthropic, openai):
            assert not format_.recognizes_document(value=value)
            with pytest.raises(NotThisFormat):
                format_.read_document(value=value, line_number=1)

    def test_the_other_formats_chat_is_none_even_where_somebody_says_so(self) -> None:
        with pytest.raises(NotThisFormat):
            anthropic.read_document(value=[ASK, {"role": "tool", "tool_call_id": "x", "content": "y"}], line_number=1)

    @pytest.mark.parametrize(
        ("value", "known"),
        [
            (ASK, True),
            (CALL, True),
            (RESPONSE, True),
            ({"role": "system", "content": "x"}, True),
            ({"role": "tool", "content": "x"}, False),
            ({"role": "assistant", "content": None}, False),
            ({"role": "assistant", "content": "x", "tool_calls": []}, False),
            ({"role": "user", "content": {}}, False),
            (7, False),
        ],
    )
    def test_a_message(self, value: Any, known: bool) -> None:
        assert anthropic.is_message(value=value) is known


class TestReading:
    def test_contents_come_in_to_the_letter_each_on_the_one_before(self) -> None:
        read_ = messages(read(TALK))
        assert [(one.role.value, one.content) for one in read_] == [(one["role"], one["content"]) for one in TALK]
        assert [one.parent_uuid for one in read_] == [None, *(one.uuid for one in read_[:-1])]
        assert [one.envelope for one in read_] == [None] * 4
        assert {one.line_number for one in read_} == {7}

    def test_a_body_tells_its_session(self) -> None:
        assert read(BODY).session == {"model": "claude-sonnet-4-5", "system": "Be careful.", "tools": TOOLS}
        assert read(TALK).session == {}

    def test_a_response_is_the_last_message(self) -> None:
        for value in ({"request": {**BODY, "messages": [ASK]}, "response": RESPONSE}, {**BODY, "response": RESPONSE}):
            last = messages(read(value))[-1]
            assert (last.role, last.content, last.usage) == (Role.ASSISTANT, [text("Done.")], USAGE)
            assert (last.message_id, last.model) == ("msg_01", "claude-sonnet-4-5-20250929")
            assert last.envelope is not None
            assert last.envelope["stop_reason"] == "end_turn"
            assert "content" not in last.envelope
        assert read({"messages": [ASK], "response": RESPONSE}).session["model"] == "claude-sonnet-4-5-20250929"

    @pytest.mark.parametrize("response", ["event: ping", {"type": "error", "error": {}}, [], {"role": "user", **ASK}])
    def test_a_response_that_is_none_is_told(self, response: Any) -> None:
        told = read({"request": BODY, "response": response})
        assert (len(messages(told)), problems(told)) == (4, ["a response that is no message; left out"])

    def test_a_damaged_message_is_told_and_the_rest_hangs_together(self) -> None:
        told = read([ASK, {"role": "assistant", "content": [7]}, {"role": "root", "content": ""}, None, CALL, ANSWER])
        first, second, third = messages(told)
        assert (second.parent_uuid, third.parent_uuid) == (first.uuid, second.uuid)
        assert problems(told) == [
            "message 2: a content that is neither text nor content blocks",
            "message 3: an unknown role",
            "message 4: no object",
        ]

    @pytest.mark.parametrize("bad", [{"system": 7}, {"system": [7]}, {"tools": {}}, {"tools": [7]}])
    def test_a_damaged_head_is_told(self, bad: dict[str, Any]) -> None:
        told = read({**BODY, **bad})
        assert len(problems(told)) == 1
        assert not set(bad) & set(told.session)
        assert len(messages(told)) == 4

    def test_a_leading_system_message_is_the_prompt_and_a_later_one_a_message(self) -> None:
        later = {"role": "system", "content": [{"type": "tool_addition", "tool": {"name": "x"}}]}
        told = read([{"role": "system", "content": "Be kind."}, ASK, later, CALL])
        assert told.session == {"system": "Be kind."}
        assert [one.role for one in messages(told)] == [Role.USER, Role.SYSTEM, Role.ASSISTANT]
        assert messages(told)[1].content == later["content"]

    def test_more_keys_of_a_message_stay_in_its_envelope(self) -> None:
        told = read([{**ASK, "ts": 5, "name": "Alice"}, CALL])
        assert messages(told)[0].envelope == {"role": "user", "ts": 5, "name": "Alice"}


class TestUuids:
    def test_the_same_again_and_grown(self) -> None:
        assert [one.uuid for one in messages(read(TALK[:2]))] == [one.uuid for one in messages(read(BODY))][:2]

    def test_a_response_has_the_uuid_that_it_has_in_the_next_request(self) -> None:
        exchange = messages(read({"request": {"messages": [ASK]}, "response": RESPONSE}))
        later = messages(read([ASK, {"role": "assistant", "content": [text("Done.")]}, ASK]))
        assert [one.uuid for one in exchange] == [one.uuid for one in later][:2]

    def test_place_role_and_content_tell_them_apart(self) -> None:
        twice = messages(read([ASK, {**ASK, "role": "assistant"}, ASK, {"role": "user", "content": "x"}, CALL]))
        assert len({one.uuid for one in twice}) == 5
        assert all(len(one.uuid) <= 128 for one in twice)

    def test_line_by_line_as_in_a_document(self) -> None:
        lines = [
            anthropic.read_message(value=one, line_number=number, ordinal=number)
            for number, one in enumerate(TALK, start=1)
        ]
        told = messages(read(TALK))
        assert [one.uuid for one in lines if isinstance(one, TranscriptMessage)] == [one.uuid for one in told]

    def test_odd_characters_have_one_too(self) -> None:
        [one] = messages(read([{"role": "user", "content": "a\x00b \ud800"}]))
        assert one.content == "a\x00b \ud800"
        assert one.uuid.isascii()


@pytest.mark.parametrize("value", [7, None, {}, {"role": "user"}, {"role": 3, "content": ""}, {"role": "tool"}])
def test_a_line_that_is_no_message_is_told(value: Any) -> None:
    found = anthropic.read_message(value=value, line_number=3, ordinal=2)
    assert isinstance(found, LineProblem)
    assert (found.line_number, found.reason[:11]) == (3, "message 2: ")


def test_a_document_is_the_request() -> None:
    made = anthropic_export.document(model="m", system="s", tools=TOOLS, messages=TALK)
    assert made == {"model": "m", "system": "s", "tools": TOOLS, "messages": TALK}
    assert anthropic_export.document(model="", system=None, tools=None, messages=[ASK]) == {"messages": [ASK]}
    assert [one.content for one in messages(read(made))] == [one["content"] for one in TALK]
