"""GET runs/ and runs/{id}/."""

from __future__ import annotations

import pytest
from django.utils import timezone

from compaction_app import actions
from compaction_app.models import CompactionRun
from sessions_app.models import Session
from tests.api.queries import assert_same_count, queries_of
from tests.cast import Api, Cast, errors
from tests.factories import append, make_call, make_session, turns, user

FIELDS = {
    "id",
    "session",
    "boundary",
    "trigger",
    "status",
    "stage",
    "stages",
    "retry_of",
    "progress",
    "summarizer",
    "written_by",
    "instructions",
    "failure_reason",
    "detail",
    "attempts",
    "steps",
    "tokens_before",
    "tokens_after",
    "usage",
    "source",
    "cut",
    "tokens_streamed",
    "model",
    "prompt_version",
    "response_id",
    "shared_prefix",
    "cost_usd",
    "cost_uncached_usd",
    "calls",
    "queued_at",
    "started_at",
    "finished_at",
    "duration_seconds",
}


CALL_FIELDS = {
    "ordinal",
    "attempt",
    "way",
    "model",
    "prompt_version",
    "started_at",
    "seconds",
    "request_tokens",
    "request_bytes",
    "retry",
    "preflight",
    "dropped_groups",
    "remaining_groups",
    "dropped_tokens",
    "outcome",
    "detail",
    "status",
    "request_id",
    "response_id",
    "stop_reason",
    "usage",
    "cost_usd",
    "cost_uncached_usd",
}


def compact(session: Session) -> CompactionRun:
    return actions.compact_now(
        session=session, wanted=actions.Wanted(instructions="mind x"), now=timezone.now(), listener=lambda *_: None
    )


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
        assert (run["source"], run["tokens_streamed"], run["calls"]) == ("command", 0, [])
        assert (run["model"], run["prompt_version"], run["response_id"]) == ("", "", "")
        assert (run["shared_prefix"], run["cost_usd"], run["cost_uncached_usd"]) == (None, None, None)
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
        """key, last use, page, steps, calls."""
        make_call(succeeded)
        few = queries_of(lambda: api.read("runs/"))
        for _ in range(5):
            session = make_session(cast.alices_team)
            append(session, *turns(10))
            run = compact(session)
            make_call(run)
            make_call(run, ordinal=2)
        many = queries_of(lambda: api.read("runs/"))
        assert_same_count(few, many, most=5)
        assert not [sql for sql in many if '"said"' in sql], "a list does not even read it"


class TestCalls:
    def test_it_works(self, api: Api, succeeded: CompactionRun) -> None:
        type(succeeded).objects.filter(pk=succeeded.pk).update(
            cost_usd="0.031250", cost_uncached_usd="0.2", shared_prefix=True, tokens_streamed=900
        )
        refused = {
            "outcome": "no_summary",
            "detail": "it has no sections",
            "said": "Sure, I\u2019ll go on",
            "usage": None,
        }
        make_call(succeeded, ordinal=1, retry=1, dropped_groups=4, remaining_groups=16, dropped_tokens=9_000)
        make_call(succeeded, ordinal=2, way="standalone", cost_usd=None, cost_uncached_usd=None, **refused)
        run = api.read(f"runs/{succeeded.uuid}/").json()
        assert (run["cost_usd"], run["cost_uncached_usd"]) == ("0.031250", "0.200000")
        assert (run["shared_prefix"], run["tokens_streamed"]) == (True, 900)
        first, second = run["calls"]
        assert set(first) == {*CALL_FIELDS, "said"}
        assert (first["ordinal"], first["way"], first["outcome"], first["said"]) == (1, "cached_prefix", "ok", "")
        assert (first["retry"], first["preflight"], first["dropped_groups"]) == (1, False, 4)
        assert (first["remaining_groups"], first["dropped_tokens"]) == (16, 9_000)
        assert first["usage"]["cache_read_input_tokens"] == 95_000
        assert (first["cost_usd"], first["cost_uncached_usd"]) == ("0.051250", "0.320000")
        assert (second["way"], second["said"], second["usage"], second["cost_usd"]) == (
            "standalone",
            "Sure, I\u2019ll go on",
            None,
            None,
        )

    def test_a_list_does_not_tell_what_was_said(self, api: Api, succeeded: CompactionRun) -> None:
        make_call(succeeded, said="Sure", outcome="no_summary")
        [run] = api.read("runs/").json()["results"]
        [call] = run["calls"]
        assert set(call) == CALL_FIELDS

    def test_hostile_words_pass_through_unharmed(self, api: Api, failed: CompactionRun) -> None:
        make_call(failed, said="<script>\x00\u202e", detail="\x1b[2J", outcome="no_summary")
        [call] = api.read(f"runs/{failed.uuid}/").json()["calls"]
        assert call["said"].startswith("<script>")

    def test_queries(self, api: Api, succeeded: CompactionRun) -> None:
        """key, last use, run, steps, calls."""
        make_call(succeeded)
        few = queries_of(lambda: api.read(f"runs/{succeeded.uuid}/"))
        for ordinal in range(2, 9):
            make_call(succeeded, ordinal=ordinal)
        assert_same_count(few, queries_of(lambda: api.read(f"runs/{succeeded.uuid}/")), most=5)
