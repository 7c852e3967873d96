"""Query parameters that an operation does not know are refused by name, on every address."""

from __future__ import annotations

from typing import Any

import pytest

from compaction_app.api import urls
from compaction_app.api.parameters import known_parameters
from sessions_app.models import Session
from tests.api.routes import CALLS, IDS, Route
from tests.api.test_openapi import document, operation
from tests.cast import Api, Cast, errors
from tests.factories import append, turns

__all__ = ["document"]
NOWHERE = "6dcb4a8b-0000-4000-8000-000000000000"
every_call = pytest.mark.parametrize(("route", "method"), CALLS, ids=IDS)


@every_call
def test_what_is_taken_is_what_is_told(document: dict[str, Any], route: Route, method: str) -> None:
    [view] = [entry.callback.view_class for entry in urls.v1 if str(entry.pattern) == route.pattern]
    told = operation(document, route, method).get("parameters", [])
    assert known_parameters(view, method.lower()) == {one["name"] for one in told if one["in"] == "query"}


@pytest.mark.django_db
@every_call
def test_a_name_that_is_not_there_is_refused(api: Api, route: Route, method: str) -> None:
    path = route.path(**dict.fromkeys(route.parameters, NOWHERE))
    answer = api.call(method, f"{path}{'&' if '?' in path else '?'}no_such_name=1", {})
    assert (answer.status_code, errors(answer)) == (400, [("unknown_parameter", "no_such_name")])


@pytest.mark.django_db
class TestRefusal:
    def test_each_is_named_and_so_is_what_there_is(self, api: Api, session: Session) -> None:
        answer = api.read(f"sessions/{session.uuid}/messages/", limit="5", Q="x", q="x")
        assert errors(answer) == [("unknown_parameter", "Q"), ("unknown_parameter", "limit")]
        assert "`page_size`" in answer.json()["errors"][0]["detail"]

    def test_a_call_that_takes_none_says_so(self, api: Api, session: Session) -> None:
        answer = api.send(f"sessions/{session.uuid}/messages/?q=x", {"role": "user", "content": "x"})
        assert errors(answer) == [("unknown_parameter", "q")]
        assert "takes none" in answer.json()["errors"][0]["detail"]
        assert not session.messages.exists()

    def test_head_is_a_reading(self, api: Api, session: Session) -> None:
        append(session, *turns(1))
        path = f"sessions/{session.uuid}/messages/"
        assert api.call("HEAD", f"{path}?q=step").status_code == 200
        assert api.call("HEAD", f"{path}?x=1").status_code == 400

    def test_who_has_no_key_learns_nothing(self, api: Api) -> None:
        assert Api().read("sessions/", x="1").status_code == 401

    def test_a_method_that_is_not_there_stays_so(self, api: Api) -> None:
        assert api.call("DELETE", "sessions/?x=1").status_code == 405

    def test_a_long_name_is_cut_and_many_are_not_all_told(self, api: Api) -> None:
        answer = api.read("sessions/", **{f"{number}{'x' * 5_000}": "1" for number in range(50)})
        assert len(errors(answer)) == 20
        assert len(answer.content) < 20_000


@pytest.mark.django_db
class TestValues:
    @pytest.mark.parametrize(
        ("path", "name"),
        [
            ("runs/", "session"),
            ("runs/", "status"),
            ("runs/", "created_after"),
            ("sessions/", "level"),
            ("telemetry/events/", "run"),
            ("imports/", "status"),
        ],
    )
    def test_an_empty_one_is_none(self, cast: Cast, path: str, name: str) -> None:
        answer = cast.alice.read(path, **{name: ""})
        assert (answer.status_code, errors(answer)) == (400, [("invalid", name)])

    def test_an_empty_text_is_a_text(self, cast: Cast) -> None:
        assert cast.alice.read("sessions/", q="").status_code == 200

    @pytest.mark.parametrize("form", ["{%s}", "urn:uuid:%s", "%s "])
    def test_ids_are_written_as_everywhere(self, cast: Cast, form: str) -> None:
        there = "0e0c7f3a-98a0-4f0c-9a7e-1f7a2c3d4e5f"
        assert cast.alice.read("runs/", session=there).status_code == 200
        answer = cast.alice.read("runs/", session=form % there)
        assert (answer.status_code, errors(answer)) == (400, [("invalid", "session")])
