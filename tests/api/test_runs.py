"""GET runs/ and runs/{id}/."""

from __future__ import annotations

import pytest
from django.utils import timezone

from compaction_app import actions
from compaction_app.models import CompactionRun
from sessions_app.models import Session
from tests.api.queries import assert_same_count, queries_of
from tests.cast import Api, Cast, errors
from tests.factories import append, make_session, turns, user

FIELDS = {
    "id",
    "session",
    "boundary",
    "trigger",
    "status",
    "stage",
    "progress",
    "summarizer",
    "instructions",
    "failure_reason",
    "detail",
    "attempts",
    "steps",
    "tokens_before",
    "tokens_after",
    "usage",
    "queued_at",
    "started_at",
    "finished_at",
    "duration_seconds",
}


def compact(session: Session) -> CompactionRun:
    return actions.compact_now(session=session, instructions="mind x", now=timezone.now(), listener=lambda *_: None)


@pytest.fixture
def succeeded(cast: Cast) -> CompactionRun:
    session = make_session(cast.alices_team)
    append(session, *turns(40))
    return compact(session)


@pytest.fixture
def failed(cast: Cast) -> CompactionRun:
    session = make_session(cast.alices_team)
    append(session, user("only this"))
    return compact(session)


@pytest.fixture
def queued(cast: Cast) -> CompactionRun:
    session = make_session(cast.alices_team)
    return CompactionRun.objects.create(session=session, trigger="manual", queued_at=timezone.now())


class TestRun:
    def test_it_works(self, api: Api, succeeded: CompactionRun) -> None:
        answer = api.read(f"runs/{succeeded.uuid}/")
        assert answer.status_code == 200
        run = answer.json()
        assert set(run) == FIELDS
        assert succeeded.boundary
        assert (run["id"], run["session"]) == (str(succeeded.uuid), str(succeeded.session.uuid))
        assert run["boundary"] == str(succeeded.boundary.uuid)
        assert (run["status"], run["stage"], run["progress"]) == ("succeeded", "done", 1.0)
        assert (run["summarizer"], run["instructions"]) == ("extractive", "mind x")
        assert (run["failure_reason"], run["detail"]) == (None, "")
        [attempt] = run["attempts"]
        assert set(attempt) == {"attempt", "started_at", "ended_at", "outcome"}
        *_, step = run["steps"]
        assert set(step) == {"link", "ran", "why", "tokens_before", "tokens_after"}
        assert run["tokens_before"] > run["tokens_after"] > 0
        assert run["duration_seconds"] > 0
        assert run["finished_at"] > run["started_at"] >= run["queued_at"]

    def test_one_that_failed(self, api: Api, failed: CompactionRun) -> None:
        run = api.read(f"runs/{failed.uuid}/").json()
        assert (run["status"], run["failure_reason"], run["boundary"]) == ("failed", "nothing_to_compact", None)
        assert run["detail"]

    def test_one_that_waits(self, api: Api, queued: CompactionRun) -> None:
        run = api.read(f"runs/{queued.uuid}/").json()
        assert (run["status"], run["attempts"], run["steps"]) == ("queued", [], [])
        assert (run["started_at"], run["finished_at"], run["duration_seconds"], run["usage"]) == (None,) * 4

    @pytest.mark.parametrize("name", ["6dcb4a8b-0000-4000-8000-000000000000", "7", "x"])
    def test_an_unknown_run(self, api: Api, name: str) -> None:
        answer = api.read(f"runs/{name}/")
        assert (answer.status_code, errors(answer)) == (404, [("not_found", None)])


class TestRuns:
    def test_it_works(self, api: Api, succeeded: CompactionRun, failed: CompactionRun, queued: CompactionRun) -> None:
        body = api.read("runs/").json()
        assert [run["id"] for run in body["results"]] == [str(r.uuid) for r in (queued, failed, succeeded)]
        assert body["results"][2] == api.read(f"runs/{succeeded.uuid}/").json()

    def test_filters(self, api: Api, succeeded: CompactionRun, failed: CompactionRun, queued: CompactionRun) -> None:
        def found(**params: str) -> list[str]:
            return [run["id"] for run in api.read("runs/", **params).json()["results"]]

        assert found(status="queued") == [str(queued.uuid)]
        assert found(status="cancelled") == []
        assert found(reason="nothing_to_compact") == [str(failed.uuid)]
        assert found(session=str(succeeded.session.uuid)) == [str(succeeded.uuid)]
        assert found(session=str(succeeded.session.uuid), status="failed") == []
        assert found(session="6dcb4a8b-0000-4000-8000-000000000000") == []

    @pytest.mark.parametrize("name", ["status", "reason", "session"])
    def test_a_bad_filter_is_named(self, api: Api, name: str) -> None:
        answer = api.read("runs/", **{name: "nonsense"})
        assert (answer.status_code, [attr for _, attr in errors(answer)]) == (400, [name])

    def test_queries(self, api: Api, cast: Cast, succeeded: CompactionRun) -> None:
        """key, last use, page, steps."""
        few = queries_of(lambda: api.read("runs/"))
        for _ in range(5):
            session = make_session(cast.alices_team)
            append(session, *turns(10))
            compact(session)
        assert_same_count(few, queries_of(lambda: api.read("runs/")), most=4)
