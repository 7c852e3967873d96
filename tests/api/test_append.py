"""POST sessions/{id}/messages/."""

from __future__ import annotations

from typing import Any

import pytest

from compaction_app.models import CompactionRun
from sessions_app.models import Message, Session, ToolCall
from tests.api.queries import assert_same_count, queries_of
from tests.build import res, use
from tests.cast import Api, Cast, errors, is_uuid
from tests.factories import bulk_history, make_session
from tests.pressure import almost_full

TURN = [
    {"role": "user", "content": "fix it", "uuid": "1"},
    {
        "role": "assistant",
        "content": [{"type": "text", "text": "reading"}, use("A", file_path="/x.py")],
        "uuid": "2",
        "parent_uuid": "1",
        "message_id": "msg_1",
        "model": "claude-sonnet-4-5",
        "timestamp": "2026-05-04T03:02:01.5+02:00",
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 20_000, "output_tokens": None, "service_tier": "x"},
    },
    {"role": "user", "content": [res("A", "text " * 100)], "uuid": "3", "is_meta": True},
]


def path(session: Session) -> str:
    return f"sessions/{session.uuid}/messages/"


class TestAppend:
    def test_it_works(self, api: Api, session: Session) -> None:
        answer = api.send(path(session), TURN)
        assert answer.status_code == 201
        body = answer.json()
        assert set(body) == {"messages", "duplicates", "token_state", "auto_compaction"}
        assert [(m["uuid"], m["position"]) for m in body["messages"]] == [("1", 1), ("2", 2), ("3", 3)]
        assert body["messages"][2]["estimated_tokens"] > 50
        assert (body["duplicates"], body["auto_compaction"]) == ([], None)
        state = body["token_state"]
        assert state["source"] == "usage+estimate"
        assert state["context_tokens"] > 20_010
        assert state == api.read(f"sessions/{session.uuid}/token-state/").json()
        rows = list(Message.objects.filter(session=session).order_by("position"))
        assert [row.content for row in rows] == [m["content"] for m in TURN]
        assert (rows[1].parent_uuid, rows[1].message_id, rows[1].usage) == ("1", "msg_1", TURN[1]["usage"])
        assert rows[1].sent_at.isoformat() == "2026-05-04T01:02:01.500000+00:00"
        assert rows[2].is_meta
        assert ToolCall.objects.get(session=session).result_position == 3

    def test_one_message_without_a_list(self, api: Api, session: Session) -> None:
        answer = api.send(path(session), {"role": "user", "content": "hello"})
        assert answer.status_code == 201
        [message] = answer.json()["messages"]
        assert is_uuid(message["uuid"])
        assert answer.json()["token_state"]["source"] == "estimate"

    @pytest.mark.parametrize(
        "usage",
        [
            None,
            {},
            {"input_tokens": None},
            {"input_tokens": 0, "output_tokens": 0, "service_tier": "standard"},
            {"iterations": [{"a": 1}], "speed": "fast"},
        ],
    )
    @pytest.mark.parametrize("role", ["assistant", "user"])
    def test_nulls_are_as_good_as_nothing_and_kept_as_given(
        self, api: Api, session: Session, usage: Any, role: str
    ) -> None:
        names = ("uuid", "parent_uuid", "message_id", "timestamp", "model", "is_meta")
        body = {"role": role, "content": "hello", **dict.fromkeys(names), "usage": usage}
        answer = api.send(path(session), body)
        assert (answer.status_code, answer.json()["token_state"]["source"]) == (201, "estimate")
        assert api.read(path(session)).json()["results"][0]["usage"] == usage

    @pytest.mark.parametrize(
        "content",
        [
            "",
            [],
            "nul \x00 and \ud800",
            [{"type": "future", "z": [1.0, {"a": None}]}, {"type": "text", "text": "二千九百 🎉"}],
        ],
    )
    def test_content_is_kept_to_the_letter(self, api: Api, session: Session, content: Any) -> None:
        assert api.send(path(session), {"role": "user", "content": content}).status_code == 201
        [shown] = api.read(path(session)).json()["results"]
        assert shown["content"] == content

    def test_the_same_again_is_a_duplicate(self, api: Api, session: Session) -> None:
        api.send(path(session), TURN)
        before = Session.objects.filter(pk=session.pk).values().get()
        answer = api.send(path(session), TURN)
        assert answer.status_code == 201
        assert (answer.json()["messages"], answer.json()["duplicates"]) == ([], ["1", "2", "3"])
        assert Session.objects.filter(pk=session.pk).values().get() == before

    def test_other_content_for_a_uuid_is_a_conflict_and_nothing_is_stored(self, api: Api, session: Session) -> None:
        api.send(path(session), TURN)
        more = [
            {"role": "user", "content": "new", "uuid": "4"},
            {"role": "user", "content": "other", "uuid": "1"},
            {"role": "user", "content": "other", "uuid": "3"},
        ]
        answer = api.send(path(session), more)
        assert answer.status_code == 409
        assert errors(answer) == [("uuid_conflict", "uuid")] * 2
        assert answer.json()["uuids"] == ["1", "3"]
        assert '"1"' in answer.json()["errors"][0]["detail"]
        assert session.messages.count() == 3

    @pytest.mark.parametrize(
        ("message", "expected"),
        [
            ({}, [("required", "role"), ("required", "content")]),
            ({"role": "tool", "content": "x"}, [("invalid_choice", "role")]),
            ({"role": "user", "content": None}, [("null", "content")]),
            ({"role": "user", "content": 5}, [("invalid", "content")]),
            ({"role": "user", "content": {"type": "text"}}, [("invalid", "content")]),
            ({"role": "user", "content": ["text"]}, [("block", "content")]),
            ({"role": "user", "content": [{"type": "text"}, {"type": 5}]}, [("block", "content")]),
            ({"role": "user", "content": [{"text": "x"}]}, [("block", "content")]),
            ({"role": "user", "content": "x", "uuid": ""}, [("blank", "uuid")]),
            ({"role": "user", "content": "x", "uuid": "x" * 129}, [("max_length", "uuid")]),
            ({"role": "user", "content": "x", "uuid": "\x00"}, [("null_characters_not_allowed", "uuid")]),
            ({"role": "user", "content": "x", "uuid": "\ud800"}, [("surrogate_characters_not_allowed", "uuid")]),
            ({"role": "user", "content": "x", "timestamp": "noon"}, [("invalid", "timestamp")]),
            ({"role": "user", "content": "x", "timestamp": 5}, [("invalid", "timestamp")]),
            ({"role": "user", "content": "x", "timestamp": "0001-01-01T00:00:00+14:00"}, [("overflow", "timestamp")]),
            ({"role": "user", "content": "x", "usage": []}, [("invalid", "usage")]),
            ({"role": "user", "content": "x", "usage": {"input_tokens": "many"}}, [("count", "usage")]),
            ({"role": "user", "content": "x", "usage": {"input_tokens": -1}}, [("count", "usage")]),
            ({"role": "user", "content": "x", "usage": {"output_tokens": 10**30}}, [("count", "usage")]),
            ({"role": "user", "content": "x", "is_meta": "perhaps"}, [("invalid", "is_meta")]),
            ({"role": "user", "content": "x", "parent": "1"}, [("unknown_field", "parent")]),
        ],
    )
    def test_what_is_wrong_is_named(self, api: Api, session: Session, message: Any, expected: Any) -> None:
        answer = api.send(path(session), message)
        assert (answer.status_code, errors(answer)) == (400, expected)
        fine = {"role": "user", "content": "x"}
        answer = api.send(path(session), [fine, fine, fine, message])
        assert (answer.status_code, errors(answer)) == (400, [(code, f"3.{attr}") for code, attr in expected])
        assert not session.messages.exists()

    @pytest.mark.parametrize(
        ("body", "code"),
        [([], "empty"), ([{"role": "user", "content": "x"}] * 1_001, "max_length"), ("x", "invalid"), (5, "invalid")],
    )
    def test_what_is_no_message_and_no_list(self, api: Api, session: Session, body: Any, code: str) -> None:
        answer = api.send(path(session), body)
        assert (answer.status_code, errors(answer)) == (400, [(code, None)])

    def test_entries_that_are_no_objects(self, api: Api, session: Session) -> None:
        answer = api.send(path(session), [{"role": "user", "content": "x"}, "text", None])
        assert answer.status_code == 400
        assert {attr for _, attr in errors(answer)} == {"1", "2"}

    def test_a_thousand_at_once(self, api: Api, session: Session) -> None:
        body = [{"role": "user", "content": f"m{n}"} for n in range(1_000)]
        answer = api.send(path(session), body)
        assert answer.status_code == 201
        assert answer.json()["messages"][-1]["position"] == 1_000

    def test_huge_counts_add_up(self, api: Api, session: Session) -> None:
        most = dict.fromkeys(
            ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"), 100_000_000
        )
        for _ in range(2):
            answer = api.send(path(session), {"role": "assistant", "content": "x", "usage": most})
            assert answer.status_code == 201
        assert answer.json()["token_state"]["percent_left"] == 0

    def test_queries_do_not_grow_with_the_history(self, api: Api, cast: Cast) -> None:
        """Key, session; append: lock with team, uuids, messages, their texts, calls (2), session; decision: breaker."""
        counts = []
        for size in (10, 10_000):
            session = make_session(cast.alices_team)
            bulk_history(session, count=size)
            turn = [
                {"role": "assistant", "content": [use("A")], "uuid": "x1", "message_id": "m"},
                {"role": "user", "content": [res("A")], "uuid": "x2"},
            ]
            counts.append(queries_of(lambda session=session, turn=turn: api.send(path(session), turn)))
        assert_same_count(*counts, most=10)
        assert not any("COUNT(" in sql or "SUM(" in sql for sql in counts[1])


class TestAutomaticCompaction:
    def said(self, api: Api, session: Session, content: str = "and so on " * 20) -> Any:
        return api.send(path(session), {"role": "assistant", "content": content}).json()

    def test_it_works(self, api: Api, cast: Cast) -> None:
        session = almost_full(cast.alices_team)
        body = self.said(api, session)
        run = body["auto_compaction"]
        assert run == api.read(f"runs/{run['id']}/").json()
        assert (run["session"], run["trigger"], run["status"]) == (str(session.uuid), "auto", "queued")
        assert body["token_state"]["level"] == "auto_compact"

    def test_only_the_append_that_starts_it_tells_it(self, api: Api, cast: Cast) -> None:
        session = almost_full(cast.alices_team)
        assert self.said(api, session, "x")["auto_compaction"] is None
        assert self.said(api, session)["auto_compaction"] is not None
        assert self.said(api, session)["auto_compaction"] is None

    def test_the_messages_are_stored_though_the_decision_fails(
        self, api: Api, cast: Cast, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def boom(**_: Any) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr("compaction_app.services.decisions.decide", boom)
        session = almost_full(cast.alices_team)
        answer = api.send(path(session), {"role": "assistant", "content": "and so on " * 20, "uuid": "kept"})
        assert (answer.status_code, answer.json()["auto_compaction"]) == (201, None)
        assert session.messages.filter(uuid="kept").exists()

    def test_an_append_that_starts_one_costs_the_same_however_long_the_history(self, api: Api, cast: Cast) -> None:
        """As above, and: active run, lock, breaker, run, breaker, decision; the answer: run, its steps and calls."""
        counts = []
        for size in (10, 10_000):
            session = make_session(cast.alices_team)
            bulk_history(session, count=size)
            session.view_tokens, session.overhead_measured = 170_000, True
            session.save()
            turn = {"role": "assistant", "content": "x", "message_id": "m"}
            counts.append(queries_of(lambda session=session, turn=turn: api.send(path(session), turn)))
            assert CompactionRun.objects.filter(session=session).exists()
        assert_same_count(*counts, most=16)
        assert not any("COUNT(" in sql or "SUM(" in sql for sql in counts[1])
