"""GET and PUT sessions/{id}/state/: strict about what it takes, exact about what it gives back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from compaction_app import actions, selectors
from compaction_app.api import state as state_api
from compaction_app.models import ClientState
from sessions_app.models import CompactBoundary, Session
from tests.api.queries import queries_of
from tests.cast import Api, Cast, errors
from tests.factories import NOW, append, turns

pytestmark = pytest.mark.django_db
STATE: dict[str, Any] = {
    "plan": "1. find it\n2. fix it",
    "plan_mode": True,
    "skills": [{"name": "deploy", "content": "how"}],
    "files": [{"path": "/a.py", "content": "x = 1\n"}],
    "tools": ["WebFetch", {"name": "mcp__t", "description": "d", "input_schema": {"type": "object"}}],
    "agents": ["reviewer", {"name": "tester", "description": "tests"}],
    "mcp_instructions": [{"name": "tickets", "instructions": "search"}, {"server": "b", "instructions": ""}],
}


def path(session: Session) -> str:
    return f"sessions/{session.uuid}/state/"


def put(api: Api, session: Session, body: Any) -> Any:
    return api.call("PUT", path(session), body)


class TestState:
    def test_it_works(self, api: Api, session: Session, now: Any) -> None:
        answer = put(api, session, STATE)
        assert (answer.status_code, answer.json()) == (200, {**STATE, "updated_at": "2026-11-03T09:00:00Z"})
        assert api.read(path(session)).json() == answer.json()

    def test_before_anything_was_told_it_is_empty(self, api: Api, session: Session) -> None:
        empty = {"skills": [], "files": [], "tools": [], "agents": [], "mcp_instructions": []}
        expected = {**empty, "plan": None, "plan_mode": False, "updated_at": None}
        assert api.read(path(session)).json() == expected

    def test_it_replaces_the_whole(self, api: Api, session: Session) -> None:
        put(api, session, STATE)
        body = put(api, session, {"plan_mode": False, "files": None}).json()
        assert (body["plan"], body["plan_mode"], body["files"], body["tools"]) == (None, False, [], [])
        assert ClientState.objects.count() == 1

    def test_it_can_be_repeated(self, api: Api, session: Session, now: Any) -> None:
        assert put(api, session, STATE).json() == put(api, session, STATE).json()

    @pytest.mark.parametrize("odd", ["\x00", "\ud800", "\udfff\x00ü", "字", "```</file>"])
    def test_every_text_comes_back_to_the_letter(self, api: Api, session: Session, odd: str) -> None:
        given = {
            "plan": odd,
            "skills": [{"name": f"s{odd}", "content": odd}],
            "files": [{"path": f"/{odd}", "content": odd}],
            "tools": [f"t{odd}"],
            "agents": [{"name": f"a{odd}", "description": odd}],
            "mcp_instructions": [{"name": f"m{odd}", "instructions": odd}],
        }
        assert put(api, session, given).status_code == 200
        found = api.read(path(session)).json()
        assert {name: found[name] for name in given} == given

    def test_queries(self, api: Api, session: Session) -> None:
        """key, session, state."""
        put(api, session, STATE)
        assert len(queries_of(lambda: api.read(path(session)))) == 3


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            ({"plam": "x"}, [("unknown_field", "plam")]),
            ({"plan": 7}, None),
            ({"plan": {"content": "x", "approved": "yes"}}, [("invalid", "plan.approved")]),
            ({"plan": {"content": "x", "by": "me"}}, [("unknown_field", "plan.by")]),
            ({"plan": {}}, [("required", "plan.content")]),
            ({"plan_mode": "yes"}, [("invalid", "plan_mode")]),
            ({"plan_mode": 1}, [("invalid", "plan_mode")]),
            ({"files": {"/a": "x"}}, [("not_a_list", "files")]),
            ({"files": "x"}, [("not_a_list", "files")]),
            ({"files": [{"path": "/a"}]}, [("required", "files.0.content")]),
            ({"files": [{"path": "/a", "content": "", "mode": 7}]}, [("unknown_field", "files.0.mode")]),
            ({"files": [{"path": " ", "content": ""}]}, [("blank", "files.0.path")]),
            ({"files": [{"path": "/a", "content": None}]}, [("null", "files.0.content")]),
            ({"files": [{"path": "x" * 4_097, "content": ""}]}, [("max_length", "files.0.path")]),
            (
                {"files": [{"path": "/a", "content": "1"}, {"path": "/a", "content": "2"}]},
                [("duplicate", "files.1.path")],
            ),
            ({"files": [{"path": f"/{n}", "content": ""} for n in range(201)]}, [("max_length", "files")]),
            ({"skills": [{"name": "a", "content": 7}]}, [("invalid", "skills.0.content")]),
            ({"skills": ["a"]}, None),
            ({"skills": [{"name": f"{n}", "content": ""} for n in range(201)]}, [("max_length", "skills")]),
            ({"tools": [{"description": "x"}]}, [("required", "tools.0.name")]),
            ({"tools": [7]}, None),
            ({"tools": ["x" * 301]}, [("max_length", "tools.0.name")]),
            ({"tools": ["t"] * 2_001}, [("max_length", "tools")]),
            ({"agents": [{"name": "a", "colour": "red"}]}, [("unknown_field", "agents.0.colour")]),
            ({"mcp_instructions": [{"instructions": "x"}]}, [("required", "mcp_instructions.0.name")]),
            ({"mcp_instructions": ["x"]}, None),
            ([], None),
            ("x", None),
            (7, None),
            (None, None),
        ],
    )
    def test_by_name_and_nothing_is_stored(self, api: Api, session: Session, body: Any, expected: Any) -> None:
        answer = put(api, session, json.dumps(body).encode())
        assert answer.status_code == 400, answer.content
        assert errors(answer) == expected if expected else errors(answer)
        assert not ClientState.objects.exists()

    def test_a_state_that_is_too_large(self, api: Api, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(state_api, "MOST_BYTES", 1_000)
        answer = put(api, session, {"files": [{"path": "/a", "content": "x" * 1_000}]})
        assert (answer.status_code, errors(answer)) == (413, [("body_too_large", None)])
        assert not ClientState.objects.exists()

    def test_its_size_is_counted_in_bytes_of_utf_8(
        self, api: Api, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(state_api, "MOST_BYTES", 1_000)
        assert put(api, session, {"plan": "字" * 300}).status_code == 200
        assert put(api, session, {"plan": "字" * 340}).status_code == 413

    def test_of_an_endless_list_not_every_entry_is_told(self, api: Api, session: Session) -> None:
        answer = put(api, session, {"tools": [7] * 100_000, "files": [7] * 100_000})
        assert sorted(errors(answer)) == [("max_length", "files"), ("max_length", "tools")]

    def test_errors_do_not_quote_what_was_given(self, api: Api, session: Session) -> None:
        secret = {"path": "/a", "content": ["hunter2"]}
        assert b"hunter2" not in put(api, session, {"files": [secret]}).content

    def test_other_ways_to_call_it(self, api: Api, session: Session) -> None:
        assert api.send(path(session), STATE).status_code == 405
        assert api.call("DELETE", path(session)).status_code == 405


class TestWhoMay:
    def test_another_team_finds_no_session(self, cast: Cast, session: Session) -> None:
        assert put(cast.charlie, session, STATE).status_code == 404
        assert cast.charlie.read(path(session)).status_code == 404
        assert not ClientState.objects.exists()

    def test_a_key_that_reads_only_reads(self, cast: Cast, session: Session) -> None:
        assert put(cast.reader, session, STATE).status_code == 403
        assert cast.reader.read(path(session)).status_code == 200


class TestRestored:
    def test_a_compaction_restores_it_as_of_its_boundary(self, api: Api, session: Session) -> None:
        append(session, *turns(40, size=2_000))
        put(api, session, STATE)
        run = actions.compact_now(session=session, wanted=actions.Wanted(), now=NOW, listener=lambda *_: None)
        assert run.boundary, run.detail
        before = api.read(f"boundaries/{run.boundary.uuid}/").json()["attachments"]
        assert {"plan_mode", "tools_delta", "agents_delta"} <= {attachment["kind"] for attachment in before}
        put(api, session, {})
        assert api.read(f"boundaries/{run.boundary.uuid}/").json()["attachments"] == before
        assert CompactBoundary.objects.count() == 1

    def test_what_the_request_declares_is_known(self, api: Api, session: Session) -> None:
        put(api, session, STATE)
        session.tools = [{"name": "WebFetch"}]
        value = selectors.state_value(session=session)
        assert value.declared_tools == {"WebFetch"}
        assert [tool.name for tool in value.tools] == ["WebFetch", "mcp__t"]
        assert (value.plan, value.plan_mode, value.files) == (STATE["plan"], True, {"/a.py": "x = 1\n"})
