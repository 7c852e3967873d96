"""GET runs/{id}/events/: the answer of the view; what is told, and to how many, is tried without a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from compaction_app.api import events
from compaction_app.api.event_text import HEARTBEAT, Seen
from compaction_app.models import CompactionRun
from compaction_app.selectors.watching import run_state, run_states
from compaction_app.services import runs
from compaction_site.asgi import EVENTS
from sessions_app.models import Session
from sessions_app.policy import Policy
from tests.api.queries import queries_of
from tests.api.routes import routes
from tests.cast import Api, Cast, errors
from tests.factories import append, turns
from tests.pressure import execute

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(session: Session) -> CompactionRun:
    append(session, *turns(40))
    return execute(queue(session))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for what is new; a stream lasts until its end is told, however slow the machine is."""
    _figures(monkeypatch, events_stream_seconds=15)


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is over soon."""
    _figures(monkeypatch, events_stream_seconds=0.2)


def _figures(monkeypatch: pytest.MonkeyPatch, **more: float) -> None:
    figures = {"events_poll_seconds": 0.005, "events_heartbeat_seconds": 0.02, **more}
    monkeypatch.setattr(events, "Policy", lambda: Policy(**figures))


def queue(session: Session) -> CompactionRun:
    return runs.queue_run(session=session, trigger="manual", instructions="", now=timezone.now())


def watch(api: Api, run: CompactionRun, **headers: str) -> Any:
    return api.get(f"/api/v1/runs/{run.uuid}/events/", headers=headers)


def read(answer: Any) -> list[dict[str, Any]]:
    return list(parsed(b"".join(answer.streaming_content)))


def parsed(text: bytes) -> Iterator[dict[str, Any]]:
    for block in text.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if line)
        if "data" in lines:
            yield {**lines, "data": json.loads(lines["data"])}


def test_a_run_that_has_ended_is_told_at_once(api: Api, run: CompactionRun) -> None:
    answer = watch(api, run)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/event-stream")
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Accel-Buffering"] == "no"
    *stages, done = read(answer)
    assert [event["data"] for event in stages] == run.stages
    assert run.boundary
    assert done["event"] == done["id"] == "done"
    assert done["data"] == {
        "run": str(run.uuid),
        "status": "succeeded",
        "failure_reason": None,
        "detail": "",
        "boundary": str(run.boundary.uuid),
        "tokens_before": run.tokens_before,
        "tokens_after": run.tokens_after,
    }


def test_one_that_failed(api: Api, session: Session) -> None:
    failed = execute(queue(session))
    done = read(watch(api, failed))[-1]["data"]
    assert (done["status"], done["failure_reason"]) == ("failed", "nothing_to_compact")
    assert done["detail"] == failed.detail


class TestResuming:
    def test_it_works(self, api: Api, run: CompactionRun) -> None:
        whole = read(watch(api, run))
        for number, last in enumerate(whole[:-1], start=1):
            assert read(watch(api, run, last_event_id=last["id"])) == whole[number:]

    def test_after_the_end_nothing_is_to_come(self, api: Api, run: CompactionRun) -> None:
        answer = watch(api, run, last_event_id="done")
        assert (answer.status_code, answer.content) == (204, b"")

    def test_an_id_that_is_none_of_ours_counts_for_nothing(self, api: Api, run: CompactionRun) -> None:
        assert read(watch(api, run, last_event_id="x\u00e9")) == read(watch(api, run))

    def test_an_end_that_was_never_told(self, api: Api, session: Session, brief: None) -> None:
        assert read(watch(api, queue(session), last_event_id="done"))[0]["data"]["stage"] == "queued"


class TestTheSameRules:
    @pytest.mark.parametrize("accept", ["text/event-stream", "application/json", "image/png"])
    def test_whatever_is_accepted(self, api: Api, cast: Cast, run: CompactionRun, accept: str) -> None:
        assert watch(api, run, accept=accept).headers["Content-Type"] == "text/event-stream"
        answer = watch(cast.nobody, run, accept=accept)
        assert answer.headers["Content-Type"] == "application/json"
        assert (answer.status_code, errors(answer)) == (401, [("not_authenticated", None)])

    @pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
    def test_other_methods(self, api: Api, run: CompactionRun, method: str) -> None:
        answer = api.call(method, f"runs/{run.uuid}/events/")
        assert (answer.status_code, errors(answer)) == (405, [("method_not_allowed", None)])

    def test_head(self, api: Api, session: Session) -> None:
        """Answers at once for a run that goes on."""
        answer = api.head(f"/api/v1/runs/{queue(session).uuid}/events/")
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["Content-Type"] == "text/event-stream"

    def test_queries(self, api: Api, run: CompactionRun) -> None:
        """key, run."""
        assert len(queries_of(lambda: watch(api, run))) <= 2


class TestInAThread:
    """Under WSGI."""

    def test_a_run_that_goes_on(self, api: Api, session: Session, quick: None) -> None:
        append(session, *turns(40))
        waiting = queue(session)
        parts = watch(api, waiting).streaming_content
        first = next(parts)
        assert first.startswith(b"retry: ")
        assert [event["data"]["stage"] for event in parsed(first)] == ["queued"]
        assert next(parts) == HEARTBEAT
        done = execute(waiting)
        told = list(parsed(b"".join(parts)))
        assert [event["data"] for event in told[:-1]] == done.stages[1:]
        assert told[-1]["event"] == "done"

    def test_it_lasts_no_longer_than_it_may(self, api: Api, session: Session, brief: None) -> None:
        assert [event["event"] for event in read(watch(api, queue(session)))] == ["stage"]

    def test_an_erased_run_ends_it(self, api: Api, session: Session, quick: None) -> None:
        waiting = queue(session)
        parts = watch(api, waiting).streaming_content
        next(parts)
        waiting.delete()
        assert not list(parsed(b"".join(parts)))


class TestInTheLoop:
    """Under ASGI."""

    def gathered(self, run: CompactionRun, later: Any = lambda: None, most: int = 100) -> list[bytes]:
        """All parts of the stream of a run as it is now; `later` is called after the first one."""
        state = run_state(team=run.session.team, uuid=run.uuid)
        assert state

        async def scene() -> list[bytes]:
            parts = []
            async for part in events.stream(state=state, seen=Seen()):
                parts.append(part)
                if len(parts) == 1:
                    later()
                if len(parts) == most:
                    break
            return parts

        return asyncio.run(asyncio.wait_for(scene(), timeout=20))

    @pytest.fixture
    def rows(self, monkeypatch: pytest.MonkeyPatch) -> dict[int, Any]:
        """What the poller finds, in place of the database, whose connections the tests do not share with its thread."""
        held: dict[int, Any] = {}
        monkeypatch.setattr(events, "look", lambda keys: {key: held[key] for key in keys if key in held})
        return held

    def test_it_works(self, session: Session, rows: dict[int, Any], quick: None) -> None:
        append(session, *turns(40))
        waiting = queue(session)
        rows |= run_states(keys=[waiting.pk])
        done = states_after(waiting)
        first, *others = self.gathered(waiting, later=lambda: rows.update(done))
        assert first.startswith(b"retry: ")
        told = list(parsed(b"".join(others)))
        assert [event["data"]["stage"] for event in told[:-1]][-1] == "done"
        assert told[-1]["event"] == "done"

    def test_one_that_waits_for_approval_stays_open(self, session: Session, rows: dict[int, Any], brief: None) -> None:
        session.policy_overrides = {"approve_compactions": True}
        session.save()
        append(session, *turns(40))
        waiting = execute(queue(session))
        rows |= run_states(keys=[waiting.pk])
        first, *others = self.gathered(waiting)
        assert list(parsed(first))[-1]["data"]["stage"] == "awaiting_approval"
        assert set(others) == {HEARTBEAT}, "and ends without `done` when its time is over"

    def test_an_erased_run_ends_it(self, session: Session, rows: dict[int, Any], quick: None) -> None:
        [only] = self.gathered(queue(session))
        assert b"event: done" not in only


def states_after(run: CompactionRun) -> dict[int, Any]:
    """The run as it is when it has been worked on, which it then has not yet been."""
    with transaction.atomic():
        execute(run)
        found = run_states(keys=[run.pk])
        transaction.set_rollback(True)
    return found


def test_the_route_of_asgi_is_the_route_of_the_api(run: CompactionRun) -> None:
    """The pattern in asgi.py stands beside the URL conf: both mean the same address."""
    [route] = [route for route in routes() if route.pattern.startswith("runs/") and route.pattern.endswith("/events/")]
    assert EVENTS.fullmatch(route.path(run_id=run.uuid))
    assert not EVENTS.fullmatch(f"/api/v1/runs/{run.uuid}/")
