"""POST and GET sessions/."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.models import Session
from tests.api.queries import assert_same_count, queries_of
from tests.cast import Api, Cast, errors, is_uuid
from tests.factories import append, make_session, user

FIELDS = {
    "id",
    "external_id",
    "title",
    "model",
    "thread",
    "parent",
    "metadata",
    "context_window",
    "auto_compact_enabled",
    "auto_compact_pct",
    "policy_overrides",
    "source",
    "created_at",
    "updated_at",
    "last_message_at",
    "message_count",
    "context_tokens",
    "context_source",
    "boundary_count",
    "level",
    "breaker_open",
}


class TestCreate:
    def test_it_works(self, api: Api, cast: Cast) -> None:
        parent = make_session(cast.alices_team)
        body = {
            "external_id": "ticket-1",
            "title": "Login page",
            "model": "claude-sonnet-4-5",
            "thread": "subagent",
            "parent": str(parent.uuid),
            "system": [{"type": "text", "text": "Be careful."}],
            "tools": [{"name": "Read", "input_schema": {"type": "object"}}],
            "metadata": {"b": 1, "a": [1.0, None]},
            "context_window": 150_000,
            "auto_compact_enabled": False,
            "auto_compact_pct": 80,
        }
        answer = api.send("sessions/", body)
        assert answer.status_code == 201
        made = answer.json()
        assert set(made) == FIELDS | {"system", "tools"}
        assert {name: made[name] for name in body} == body
        assert is_uuid(made["id"])
        assert made["created_at"].endswith("Z")
        assert (made["message_count"], made["boundary_count"], made["last_message_at"]) == (0, 0, None)
        assert made["context_tokens"] > 0
        assert (made["context_source"], made["source"]) == ("estimate", "api")
        row = Session.objects.get(uuid=made["id"])
        assert (row.team, row.parent) == (cast.alices_team, parent)
        assert row.policy_overrides == {
            "context_window": 150_000,
            "auto_compact_enabled": False,
            "auto_compact_pct": 80,
        }

    @pytest.mark.parametrize("body", [None, {}, dict.fromkeys(FIELDS & {"title", "model", "metadata", "parent"})])
    def test_nothing_is_needed(self, api: Api, body: Any) -> None:
        answer = api.send("sessions/", body)
        assert answer.status_code == 201
        made = answer.json()
        assert (made["external_id"], made["title"], made["model"], made["thread"]) == (None, "", "", "main")
        assert (made["system"], made["tools"], made["metadata"], made["context_window"]) == (None, None, {}, None)

    def test_an_external_id_again_gives_the_session_that_exists(self, api: Api) -> None:
        first = api.send("sessions/", {"external_id": "x", "title": "one"})
        again = api.send("sessions/", {"external_id": "x", "title": "two"})
        assert (first.status_code, again.status_code) == (201, 200)
        assert again.json() == first.json()
        assert Session.objects.count() == 1

    def test_two_teams_may_use_one_external_id(self, cast: Cast) -> None:
        made = [someone.send("sessions/", {"external_id": "x"}) for someone in (cast.alice, cast.charlie)]
        assert [answer.status_code for answer in made] == [201, 201]
        assert made[0].json()["id"] != made[1].json()["id"]

    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            ({"titel": "x", "modle": "y"}, [("unknown_field", "titel"), ("unknown_field", "modle")]),
            ({"title": "nul \x00"}, [("null_characters_not_allowed", "title")]),
            ({"external_id": "a\x00"}, [("null_characters_not_allowed", "external_id")]),
            ({"external_id": "\ud800"}, [("surrogate_characters_not_allowed", "external_id")]),
            ({"external_id": ""}, [("blank", "external_id")]),
            ({"external_id": 5}, [("invalid", "external_id")]),
            ({"external_id": "x" * 256}, [("max_length", "external_id")]),
            ({"title": "x" * 301}, [("max_length", "title")]),
            ({"model": "x" * 201}, [("max_length", "model")]),
            ({"thread": "side"}, [("invalid_choice", "thread")]),
            ({"parent": "nope"}, [("invalid", "parent")]),
            ({"parent": "6dcb4a8b-0000-4000-8000-000000000000"}, [("does_not_exist", "parent")]),
            ({"system": 5}, [("invalid", "system")]),
            ({"system": [{"text": "no type"}]}, [("block", "system")]),
            ({"tools": {"name": "Read"}}, [("invalid", "tools")]),
            ({"tools": ["Read"]}, [("invalid", "tools")]),
            ({"metadata": []}, [("invalid", "metadata")]),
            ({"context_window": -1}, [("invalid", "context_window")]),
            ({"context_window": 1.5}, [("invalid", "context_window")]),
            ({"context_window": "200000"}, [("invalid", "context_window")]),
            ({"auto_compact_pct": 101}, [("invalid", "auto_compact_pct")]),
            ({"auto_compact_pct": 0}, [("invalid", "auto_compact_pct")]),
            ({"context_window": 0}, [("invalid", "context_window")]),
            ({"auto_compact_enabled": 1}, [("invalid", "auto_compact_enabled")]),
            ([], [("invalid", None)]),
            ("text", [("invalid", None)]),
        ],
    )
    def test_what_is_wrong_is_named(self, api: Api, body: Any, expected: list[tuple[str, str]]) -> None:
        answer = api.send("sessions/", body)
        assert answer.status_code == 400
        assert errors(answer) == expected
        assert not Session.objects.exists()

    def test_a_figure_says_what_is_allowed(self, api: Api) -> None:
        [error] = api.send("sessions/", {"auto_compact_pct": 101}).json()["errors"]
        assert error["detail"] == "auto_compact_pct=101: allowed is 1 to 100"

    def test_a_parent_is_of_the_same_team(self, cast: Cast) -> None:
        parent = make_session(cast.alices_team)
        answer = cast.charlie.send("sessions/", {"parent": str(parent.uuid)})
        assert (answer.status_code, errors(answer)) == (400, [("does_not_exist", "parent")])

    def test_nul_and_surrogates_are_kept_where_they_are_content(self, api: Api) -> None:
        made = api.send("sessions/", {"system": "a\x00b \ud800", "metadata": {"k\x00": "\udfff"}}).json()
        shown = api.read(f"sessions/{made['id']}/").json()
        assert (shown["system"], shown["metadata"]) == ("a\x00b \ud800", {"k\x00": "\udfff"})


class TestList:
    def test_it_works(self, api: Api, cast: Cast) -> None:
        made = [make_session(cast.alices_team, title=f"s{n}") for n in range(3)]
        answer = api.read("sessions/")
        assert answer.status_code == 200
        body = answer.json()
        assert list(body) == ["results", "next", "previous"]
        assert (body["next"], body["previous"]) == (None, None)
        assert [row["id"] for row in body["results"]] == [str(s.uuid) for s in reversed(made)], "newest first"
        assert set(body["results"][0]) == FIELDS

    @pytest.mark.parametrize(
        ("params", "expected"),
        [
            ({"model": "claude-opus-4-5"}, ["b"]),
            ({"thread": "subagent"}, ["c"]),
            ({"q": "LOGIN"}, ["b", "a"]),
            ({"q": "登录"}, ["c"]),
            ({"q": "%"}, []),
            ({"q": "no such"}, []),
            ({"created_after": "2026-01-02T00:00:00Z"}, ["c", "b"]),
            ({"created_before": "2026-01-02T00:00:00Z"}, ["a"]),
            ({"created_after": "2026-01-02", "created_before": "2026-01-03"}, ["b"]),
        ],
    )
    def test_filters(self, api: Api, cast: Cast, params: dict[str, str], expected: list[str]) -> None:
        make_session(cast.alices_team, external_id="a", title="the login page")
        make_session(cast.alices_team, external_id="b", title="Login again", model="claude-opus-4-5")
        make_session(cast.alices_team, external_id="c", title="登录页面", thread="subagent")
        for day, name in enumerate("abc", start=1):
            Session.objects.filter(external_id=name).update(created_at=f"2026-01-0{day}T12:00:00Z")
        assert [row["external_id"] for row in api.read("sessions/", **params).json()["results"]] == expected

    @pytest.mark.parametrize(
        ("params", "attr"),
        [
            ({"thread": "side"}, "thread"),
            ({"created_after": "yesterday"}, "created_after"),
            ({"created_after": "0001-01-01T00:00:00+14:00"}, "created_after"),
            ({"q": "\x00"}, "q"),
            ({"q": "x" * 1_001}, "q"),
            ({"page_size": "0"}, "page_size"),
            ({"page_size": "-1"}, "page_size"),
            ({"page_size": "many"}, "page_size"),
            ({"cursor": "nonsense"}, "cursor"),
            ({"cursor": "ü"}, "cursor"),
            ({"cursor": "cD1hYmM="}, "cursor"),  # p=abc
            ({"cursor": "cD05OTk5OTk5OTk5OTk5OTk5OTk5OTk5"}, "cursor"),  # p=99999999999999999999999
        ],
    )
    def test_a_bad_parameter_is_named(self, api: Api, params: dict[str, str], attr: str) -> None:
        answer = api.read("sessions/", **params)
        assert answer.status_code == 400
        assert [a for _, a in errors(answer)] == [attr]

    def test_pages_hold_every_row_once_and_lead_back(self, api: Api, cast: Cast) -> None:
        made = [str(make_session(cast.alices_team, title="x").uuid) for _ in range(7)]
        seen, page = [], api.read("sessions/", page_size=3, q="x").json()
        first = page["results"]
        while True:
            seen += [row["id"] for row in page["results"]]
            if not page["next"]:
                break
            page = api.read(page["next"]).json()
        assert seen == made[::-1]
        while page["previous"]:
            page = api.read(page["previous"]).json()
        assert page["results"] == first

    def test_page_size_has_a_top(self, api: Api, cast: Cast) -> None:
        Session.objects.bulk_create(Session(team=cast.alices_team) for _ in range(501))
        assert len(api.read("sessions/").json()["results"]) == 50
        assert len(api.read("sessions/", page_size=500).json()["results"]) == 500
        assert len(api.read("sessions/", page_size=99_999).json()["results"]) == 500

    def test_queries(self, api: Api, cast: Cast) -> None:
        """key, last use, page."""
        parent = make_session(cast.alices_team)
        few = queries_of(lambda: api.read("sessions/"))
        for _ in range(20):
            append(make_session(cast.alices_team, parent=parent), user("hello"))
        assert_same_count(few, queries_of(lambda: api.read("sessions/")), most=3)
