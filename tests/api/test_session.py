"""GET and PATCH sessions/{id}/."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.models import Session
from tests.api.queries import queries_of
from tests.cast import Api, Cast, errors
from tests.factories import append, make_session, user


class TestShow:
    def test_it_works(self, api: Api, session: Session) -> None:
        append(session, user("hello"), user("again"))
        answer = api.read(f"sessions/{session.uuid}/")
        assert answer.status_code == 200
        shown = answer.json()
        assert (shown["id"], shown["message_count"]) == (str(session.uuid), 2)
        assert shown["context_tokens"] == session.context_tokens > 0
        assert shown["last_message_at"] == "2026-11-03T09:00:00Z"

    @pytest.mark.parametrize("name", ["6dcb4a8b-0000-4000-8000-000000000000", "1", "nope", "%00", "a" * 300])
    def test_an_unknown_or_malformed_id_is_not_there(self, api: Api, name: str) -> None:
        answer = api.read(f"sessions/{name}/")
        assert (answer.status_code, errors(answer)) == (404, [("not_found", None)])

    def test_queries(self, api: Api, cast: Cast) -> None:
        session = make_session(cast.alices_team, parent=make_session(cast.alices_team))
        assert len(queries_of(lambda: api.read(f"sessions/{session.uuid}/"))) == 2


class TestChange:
    def test_it_works(self, api: Api, session: Session) -> None:
        body = {
            "title": "new",
            "model": "claude-opus-4-5",
            "system": "Be brief. " * 50,
            "tools": [],
            "metadata": {"a": 1},
            "auto_compact_pct": 70,
        }
        answer = api.change(f"sessions/{session.uuid}/", body)
        assert answer.status_code == 200
        changed = answer.json()
        assert {name: changed[name] for name in body} == body
        assert changed["context_tokens"] > 50, "the system prompt is counted"
        assert api.read(f"sessions/{session.uuid}/").json() == changed

    def test_what_is_not_given_stays(self, api: Api, cast: Cast) -> None:
        session = make_session(cast.alices_team, title="t", system="s", policy_overrides={"context_window": 1_000})
        changed = api.change(f"sessions/{session.uuid}/", {"auto_compact_pct": 50}).json()
        assert (changed["title"], changed["system"], changed["model"]) == ("t", "s", "claude-sonnet-4-5")
        assert (changed["context_window"], changed["auto_compact_pct"]) == (1_000, 50)

    def test_null_clears(self, api: Api, cast: Cast) -> None:
        session = make_session(cast.alices_team, title="t", system="s", policy_overrides={"context_window": 1_000})
        body = {"title": None, "system": None, "context_window": None}
        changed = api.change(f"sessions/{session.uuid}/", body).json()
        assert (changed["title"], changed["system"], changed["context_window"]) == ("", None, None)
        session.refresh_from_db()
        assert session.policy_overrides == {}

    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            ({"external_id": "x"}, [("immutable", "external_id")]),
            ({"thread": "subagent"}, [("immutable", "thread")]),
            ({"parent": None}, [("immutable", "parent")]),
            ({"context_tokens": 1}, [("unknown_field", "context_tokens")]),
            ({"title": "\x00"}, [("null_characters_not_allowed", "title")]),
            ({"context_window": True}, [("invalid", "context_window")]),
        ],
    )
    def test_what_is_wrong_is_named(self, api: Api, session: Session, body: Any, expected: Any) -> None:
        answer = api.change(f"sessions/{session.uuid}/", body)
        assert (answer.status_code, errors(answer)) == (400, expected)
