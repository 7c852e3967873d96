"""GET sessions/{id}/context/."""

from __future__ import annotations

import pytest
from django.utils import timezone

from compaction_app import actions
from compaction_app.models import CompactionRun
from sessions_app.models import Session
from sessions_app.transcript.validation import validate_messages
from tests.api.queries import assert_same_count, queries_of
from tests.cast import Api, Cast, errors
from tests.factories import append, make_session, turns, user


def path(session: Session) -> str:
    return f"sessions/{session.uuid}/context/"


def compact(session: Session) -> CompactionRun:
    run = actions.compact_now(session=session, wanted=actions.Wanted(), now=timezone.now(), listener=lambda *_: None)
    assert run.boundary, run.detail
    session.refresh_from_db()
    return run


class TestContext:
    def test_it_works(self, api: Api, cast: Cast) -> None:
        tools = [{"name": "Read", "input_schema": {"type": "object"}}]
        session = make_session(cast.alices_team, system="Be careful.", tools=tools)
        append(session, *turns(2))
        answer = api.read(path(session))
        assert answer.status_code == 200
        body = answer.json()
        assert set(body) == {"system", "tools", "messages", "tokens", "boundary", "cleared_tool_results", "betas"}
        assert (body["system"], body["tools"]) == ("Be careful.", tools)
        assert (body["boundary"], body["cleared_tool_results"]) == (None, 0)
        assert body["tokens"] == session.context_tokens
        assert all(set(message) == {"role", "content"} for message in body["messages"])
        assert [m["role"] for m in body["messages"]] == ["user", "assistant"] * 4
        assert validate_messages(messages=body["messages"]) == []

    def test_an_empty_session_has_an_empty_context(self, api: Api, session: Session) -> None:
        body = api.read(path(session)).json()
        assert (body["messages"], body["tokens"], body["system"]) == ([], 0, None)

    def test_after_a_boundary_it_starts_from_the_summary(self, api: Api, session: Session) -> None:
        append(session, *turns(40))
        before = api.read(path(session)).json()
        boundary = compact(session).boundary
        assert boundary
        after = api.read(path(session)).json()
        assert after["boundary"] == str(boundary.uuid)
        assert after["tokens"] == session.context_tokens < 0.5 * before["tokens"]
        assert "continued from an earlier conversation" in str(after["messages"][0])
        assert validate_messages(messages=after["messages"]) == []

    def test_at_gives_the_context_as_it_stood(self, api: Api, session: Session) -> None:
        append(session, *turns(40))
        first = compact(session).boundary
        then = api.read(path(session)).json()
        append(session, *turns(40, start=100))
        compact(session)
        assert first
        looked_back = api.read(path(session), at=str(first.uuid)).json()
        assert looked_back == then
        assert api.read(path(session)).json() != then

    @pytest.mark.parametrize("at", ["6dcb4a8b-0000-4000-8000-000000000000", "nope", "", "\x00"])
    def test_an_unknown_boundary_is_not_there(self, api: Api, session: Session, at: str) -> None:
        answer = api.read(path(session), at=at)
        assert (answer.status_code, errors(answer)) == (404, [("not_found", None)])

    def test_another_sessions_boundary_is_not_there(self, api: Api, cast: Cast, session: Session) -> None:
        other = make_session(cast.alices_team)
        append(other, *turns(40))
        boundary = compact(other).boundary
        assert boundary
        assert api.read(path(session), at=str(boundary.uuid)).status_code == 404

    @pytest.mark.parametrize("bad", [{"a": 1}, ["x"], 5, None])
    def test_ids_that_are_no_strings_do_not_make_a_session_unusable(
        self, api: Api, session: Session, bad: object
    ) -> None:
        """What a client sends is kept to the letter, so the reading must bear it."""
        broken = [
            {"type": kind, "id": bad, "tool_use_id": bad, "name": "Read", "input": {}, "content": "x", "text": "y"}
            for kind in ("tool_use", "tool_result", "server_tool_use", "web_search_tool_result", "text", "image")
        ]
        signed = {"type": "thinking", "thinking": "hm", "signature": "s", "tool_use_id": bad}
        for number, role in enumerate(("user", "assistant", "user")):
            body = {"role": role, "content": [signed, *broken], "uuid": str(number)}
            assert api.send(f"sessions/{session.uuid}/messages/", body).status_code == 201
        append(session, *turns(40))
        assert api.read(path(session)).status_code == 200
        compact(session)
        assert api.read(path(session)).status_code == 200

    def test_it_changes_nothing(self, api: Api, session: Session) -> None:
        append(session, *turns(3))
        before = Session.objects.filter(pk=session.pk).values().get()
        api.read(path(session))
        assert Session.objects.filter(pk=session.pk).values().get() == before

    def test_queries(self, api: Api, cast: Cast) -> None:
        """key, last use, session; head boundary, its attachments, boundaries since, messages shown."""
        counts = []
        for count in (40, 200):
            session = make_session(cast.alices_team)
            append(session, *turns(count))
            compact(session)
            append(session, user("go on", uuid="more"))
            counts.append(queries_of(lambda session=session: api.read(path(session))))
        assert_same_count(*counts, most=7)
