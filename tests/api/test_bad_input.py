"""Input that is wrong or odd: each has its defined answer, never a 500, and nothing that was given is lost."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.models import Message, Session
from sessions_app.transcript.validation import validate_messages
from tests.build import res, use
from tests.cast import Api, errors

pytestmark = pytest.mark.django_db


def append(api: Api, session: Session, *messages: dict[str, Any]) -> dict[str, Any]:
    answer = api.send(f"sessions/{session.uuid}/messages/", list(messages))
    assert answer.status_code == 201, answer.content
    stored = list(Message.objects.filter(session=session).order_by("position").values_list("content", flat=True))
    assert stored[-len(messages) :] == [message["content"] for message in messages], "to the letter"
    body: dict[str, Any] = answer.json()
    return body


def sent(api: Api, session: Session) -> list[dict[str, Any]]:
    """What would be sent now; both ways to ask are valid and agree on what there is."""
    context = api.read(f"sessions/{session.uuid}/context/").json()["messages"]
    prepared = api.send(f"sessions/{session.uuid}/prepare/")
    assert prepared.status_code == 200
    for messages in (context, prepared.json()["messages"]):
        assert validate_messages(messages=messages) == []
    return [block for message in context for block in message["content"]]


class TestSessions:
    @pytest.mark.parametrize("model", ["gpt-9-turbo", "claude-opus-4-99", "", "模型", "x" * 200])
    def test_an_unknown_model_is_assumed_and_says_so(self, api: Api, model: str) -> None:
        made = api.send("sessions/", {"model": model}).json()
        state = api.read(f"sessions/{made['id']}/token-state/").json()
        assert (state["context_window"], state["model_assumed"], state["window_source"]) == (200_000, True, "assumed")

    @pytest.mark.parametrize(
        "body",
        [
            {"context_window": -1},
            {"context_window": 0},
            {"context_window": 999},
            {"auto_compact_pct": 0},
            {"auto_compact_pct": 101},
            {"auto_compact_pct": -5},
            {"auto_compact_enabled": "no"},
        ],
    )
    @pytest.mark.parametrize("way", ["make", "change"])
    def test_a_figure_out_of_bounds_is_refused_by_name(
        self, api: Api, session: Session, body: dict[str, Any], way: str
    ) -> None:
        before = Session.objects.count()
        answer = api.send("sessions/", body) if way == "make" else api.change(f"sessions/{session.uuid}/", body)
        [name] = body
        assert (answer.status_code, errors(answer)) == (400, [("invalid", name)])
        assert f"{name}={body[name]!r}" in answer.json()["errors"][0]["detail"]
        assert Session.objects.count() == before


class TestUsage:
    @pytest.mark.parametrize(
        "usage",
        [
            None,
            {},
            {"input_tokens": None, "output_tokens": None},
            {"input_tokens": 0, "output_tokens": 0},
            {"output_tokens": 7},
            {"cache_read_input_tokens": None, "input_tokens": 900},
            {"input_tokens": 900, "cache_creation": {"ephemeral_5m_input_tokens": None}, "service_tier": None},
        ],
    )
    def test_fields_may_be_missing_or_null(self, api: Api, session: Session, usage: Any) -> None:
        body = append(
            api, session, {"role": "user", "content": "go"}, {"role": "assistant", "content": "ok", "usage": usage}
        )
        told = (usage or {}).get("input_tokens")
        assert body["token_state"]["source"].startswith("usage") is bool(told)
        [stored] = Message.objects.filter(session=session, role="assistant").values_list("usage", flat=True)
        assert stored == usage, "as it was given"


class TestCalls:
    def test_a_result_for_an_unknown_id_is_kept_and_told_as_text(self, api: Api, session: Session) -> None:
        append(api, session, {"role": "user", "content": [res("nobody", "what was found")]})
        [block] = sent(api, session)
        assert block["type"] == "text"
        assert "what was found" in block["text"]

    def test_one_id_for_two_calls_gives_each_its_own_result(self, api: Api, session: Session) -> None:
        append(
            api,
            session,
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [use("A", file_path="/a")], "message_id": "m1"},
            {"role": "user", "content": [res("A", "first")]},
            {"role": "assistant", "content": [use("A", file_path="/b")], "message_id": "m2"},
            {"role": "user", "content": [res("A", "second")]},
        )
        blocks = sent(api, session)
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        answers = {block["tool_use_id"]: block["content"] for block in blocks if block["type"] == "tool_result"}
        assert len(set(calls)) == 2
        assert [answers[call] for call in calls] == ["first", "second"]

    def test_a_call_that_nobody_answered_is_closed_with_a_mark(self, api: Api, session: Session) -> None:
        append(
            api,
            session,
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [use("A")], "message_id": "m1"},
            {"role": "user", "content": "never mind"},
        )
        [result] = [block for block in sent(api, session) if block["type"] == "tool_result"]
        assert result["is_error"] is True
