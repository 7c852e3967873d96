"""Every route, walked by those who must see nothing: another team, nobody, a key that was revoked or has expired; and
by those who may only look: a key that reads, a viewer who is logged in."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.utils import timezone

from compaction_app import actions
from compaction_app.models import (
    ClientState,
    CompactionCandidate,
    CompactionRun,
    CompactionState,
    Decision,
    Hook,
    SessionMemory,
    TelemetryEvent,
    TranscriptImport,
)
from sessions_app.models import CompactBoundary, Message, Session
from tests.api.browsers import browser_of
from tests.api.routes import CALLS, IDS, Route
from tests.cast import Api, Cast, errors
from tests.factories import append, make_session, turns

# A route without an id shows the caller's own; here: where it lists.
LISTS = {"sessions/", "runs/", "hooks/", "imports/", "search/", "telemetry/events/"}
# What shows the team as a whole; here: nothing of it.
SUMS = {"telemetry/summary/"}
every_call = pytest.mark.parametrize(("route", "method"), CALLS, ids=IDS)


@pytest.fixture
def ids(cast: Cast) -> dict[str, Any]:
    """Ids of Alice's rows, by the parameter's name in the URL conf."""
    session = make_session(cast.alices_team, external_id="hers", title="secret of Alice")
    append(session, *turns(40))
    run = actions.compact_now(session=session, wanted=actions.Wanted(), now=timezone.now(), listener=lambda *_: None)
    assert run.boundary
    CompactionCandidate.objects.create(
        run=run,
        draft={"kind": "full"},
        summary="secret of Alice",
        original_summary="secret of Alice",
        as_of=1,
        tokens_before=2,
        tokens_after=1,
        created_at=timezone.now(),
    )
    CompactionState.objects.create(session=session, opened_at=timezone.now(), opened_by="failures")
    hook = actions.create_hook(team=cast.alices_team, event="post_compact", values={"url": "https://example.com/Alice"})
    imported = TranscriptImport.objects.create(
        team=cast.alices_team, name="secret of Alice", format="auto", size_bytes=1, queued_at=timezone.now()
    )
    return {
        "session_id": session.uuid,
        "import_id": imported.uuid,
        "run_id": run.uuid,
        "boundary_id": run.boundary.uuid,
        "hook_id": hook.uuid,
    }


def stored() -> list[list[dict[str, Any]]]:
    models: tuple[Any, ...] = (
        Session,
        Message,
        CompactBoundary,
        CompactionRun,
        CompactionState,
        Decision,
        Hook,
        ClientState,
        CompactionCandidate,
        SessionMemory,
        TranscriptImport,
    )
    return [list(model.objects.order_by("pk").values()) for model in (*models, TelemetryEvent)]


@every_call
class TestEveryRoute:
    """One set of rows serves several walks: making it takes longer than they do."""

    def test_another_team_finds_nothing_and_what_is_there_looks_as_what_never_was(
        self, cast: Cast, ids: dict[str, Any], route: Route, method: str
    ) -> None:
        self.another_team_finds_nothing(cast, ids, route, method)
        self.it_looks_the_same_as_what_was_never_there(cast, ids, route, method)
        self.somebody_of_another_team_who_is_logged_in_finds_nothing(cast, ids, route, method)

    @pytest.mark.thorough
    def test_nobody_is_401_whoever_it_was_before(
        self, cast: Cast, ids: dict[str, Any], route: Route, method: str
    ) -> None:
        self.without_a_key_it_is_401(cast, ids, route, method)
        self.a_key_that_holds_no_more_is_401_whatever_ended_it(cast, ids, route, method)
        self.a_cookie_without_a_token_is_nobodys(cast, ids, route, method)

    @pytest.mark.thorough
    def test_whoever_may_only_read_reads(self, cast: Cast, ids: dict[str, Any], route: Route, method: str) -> None:
        self.a_key_that_reads_only_reads(cast, ids, route, method)
        self.a_viewer_who_is_logged_in_only_reads(cast, ids, route, method)

    def another_team_finds_nothing(self, cast: Cast, ids: dict[str, Any], route: Route, method: str) -> None:
        before = stored()
        if route.pattern in SUMS:
            answer = cast.charlie.read(route.path())
            assert answer.status_code == 200
            assert set(re.findall(rb": ?([1-9])", answer.content)) == set()
            assert b"Alice" not in answer.content
            return
        if not route.parameters:
            assert route.pattern in LISTS, "say how this route is kept apart"
            answer = cast.charlie.read(route.path())
            assert (answer.status_code, answer.json()["results"]) == (200, [])
            return
        answer = cast.charlie.call(method, route.path(**ids), {"title": "mine now"})
        assert (answer.status_code, errors(answer)) == (404, [("not_found", None)])
        assert b"Alice" not in answer.content
        assert stored() == before

    def it_looks_the_same_as_what_was_never_there(
        self, cast: Cast, ids: dict[str, Any], route: Route, method: str
    ) -> None:
        if not route.parameters:
            return
        nowhere = dict.fromkeys(ids, "6dcb4a8b-0000-4000-8000-000000000000")
        foreign = cast.charlie.call(method, route.path(**ids), {}).content
        for name in route.parameters:
            foreign = foreign.replace(str(ids[name]).encode(), nowhere[name].encode())
        assert foreign == cast.charlie.call(method, route.path(**nowhere), {}).content

    def without_a_key_it_is_401(self, cast: Cast, ids: dict[str, Any], route: Route, method: str) -> None:
        answer = cast.nobody.call(method, route.path(**ids), {})
        assert (answer.status_code, errors(answer)) == (401, [("not_authenticated", None)])
        assert answer.headers["WWW-Authenticate"] == "Bearer"

    def a_key_that_holds_no_more_is_401_whatever_ended_it(
        self, cast: Cast, ids: dict[str, Any], route: Route, method: str
    ) -> None:
        before = stored()
        unknown = Api("cmp_never_was").call(method, route.path(**ids), {})
        for ended in cast.ended.values():
            answer = ended.call(method, route.path(**ids), {})
            assert (answer.status_code, errors(answer)) == (401, [("authentication_failed", None)])
            assert (answer.content, dict(answer.headers)) == (unknown.content, dict(unknown.headers))
        assert stored() == before

    def a_cookie_without_a_token_is_nobodys(self, cast: Cast, ids: dict[str, Any], route: Route, method: str) -> None:
        before = stored()
        owner = browser_of(cast.alices_team, role="owner", token="")
        answer = owner.call(method, route.path(**ids), {})
        nobodys = cast.nobody.call(method, route.path(**ids), {})
        assert (answer.status_code, answer.content) == (401, nobodys.content)
        assert stored() == before

    def a_viewer_who_is_logged_in_only_reads(self, cast: Cast, ids: dict[str, Any], route: Route, method: str) -> None:
        before = stored()
        answer = browser_of(cast.alices_team, role="viewer").call(
            method, route.path(**ids), None if method == "GET" else {}
        )
        if method == "GET":
            assert answer.status_code == 200
        else:
            assert (answer.status_code, errors(answer)) == (403, [("permission_denied", None)])
        assert stored() == before

    def somebody_of_another_team_who_is_logged_in_finds_nothing(
        self, cast: Cast, ids: dict[str, Any], route: Route, method: str
    ) -> None:
        if not route.parameters:
            return
        before = stored()
        answer = browser_of(cast.charlies_team, role="owner").call(method, route.path(**ids), {})
        assert (answer.status_code, errors(answer)) == (404, [("not_found", None)])
        assert b"Alice" not in answer.content
        assert stored() == before

    def a_key_that_reads_only_reads(self, cast: Cast, ids: dict[str, Any], route: Route, method: str) -> None:
        before = stored()
        answer = cast.reader.call(method, route.path(**ids), None if method == "GET" else {})
        if method == "GET":
            assert answer.status_code == 200
        else:
            assert (answer.status_code, errors(answer)) == (403, [("permission_denied", None)])
        assert stored() == before


class TestQueryParameters:
    def test_another_teams_ids_filter_to_nothing(self, cast: Cast, ids: dict[str, Any]) -> None:
        hers = str(ids["session_id"])
        for path, params in (
            ("runs/", {"session": hers}),
            ("search/", {"q": "step", "session": hers}),
            ("sessions/", {"q": "secret of Alice"}),
            ("telemetry/events/", {"session": hers}),
            ("telemetry/events/", {"run": str(ids["run_id"])}),
        ):
            assert cast.alice.read(path, **params).json()["results"]
            assert cast.charlie.read(path, **params).json()["results"] == []
        own = make_session(cast.charlies_team)
        answer = cast.charlie.read(f"sessions/{own.uuid}/context/", at=str(ids["boundary_id"]))
        assert answer.status_code == 404

    def test_another_teams_cursor_gives_no_rows(self, cast: Cast, ids: dict[str, Any]) -> None:
        for _ in range(3):
            make_session(cast.alices_team)
        following = cast.alice.read("sessions/", page_size=1).json()["next"]
        assert cast.charlie.read(following).json()["results"] == []
