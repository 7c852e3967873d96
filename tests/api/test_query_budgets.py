"""How many queries each call makes: kept in query_budgets.json, so that a change of it shows in a review.

`QUERY_BUDGETS=write pytest tests/api/test_query_budgets.py -n0` writes the file anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.client import MULTIPART_CONTENT
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from compaction_app import actions
from compaction_app.models import CompactionRun, Hook, TranscriptImport
from sessions_app.models import Team
from tests.api.routes import CALLS, Route
from tests.api.test_openapi import document, ids_for, operation, upload
from tests.cast import Cast
from tests.factories import append, make_session, turns

__all__ = ["document"]
FILE = Path(__file__).with_name("query_budgets.json")
WRITES = os.environ.get("QUERY_BUDGETS") == "write"
# Reads all that is shown, in batches.
GROWS = {"sessions/<uuid:session_id>/analysis/"}
ASIDE = ("SAVEPOINT", "RELEASE", "BEGIN", "COMMIT", "ROLLBACK")
READS = [route for route, method in CALLS if method == "GET" and route.pattern not in GROWS]


def compacted(team: Team) -> CompactionRun:
    session = make_session(team, policy_overrides={"reactive_compact": True})
    append(session, *turns(40))
    run = actions.compact_now(session=session, wanted=actions.Wanted(), now=timezone.now(), listener=lambda *_: None)
    append(session, *turns(1, start=200))
    return run


def make_hook(team: Team, number: int = 0) -> Hook:
    return actions.create_hook(team=team, event="pre_compact", values={"url": f"https://example.com/{number}"})


def example(described: dict[str, Any]) -> tuple[Any, dict[str, str]]:
    """The first example of a body, and how it is sent."""
    if "requestBody" not in described:
        return None, {}
    [(media_type, taken)] = described["requestBody"]["content"].items()
    if media_type == "multipart/form-data":
        return upload(), {"content_type": MULTIPART_CONTENT}
    body = next(iter(taken["examples"].values()))["value"]
    if isinstance(body, dict):
        body = {name: value for name, value in body.items() if name != "wait"}
    return body, {}


def queries(call: Any) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        answer = call()
    assert answer.status_code < 300, answer.content
    return [query["sql"] for query in captured if not query["sql"].startswith(ASIDE)]


def measured(cast: Cast, document: dict[str, Any], route: Route, method: str) -> list[str]:
    run = compacted(cast.alices_team)
    hook = make_hook(cast.alices_team)
    body, sent_as = example(operation(document, route, method))
    path = route.path(**ids_for(route, run.session, run, hook))
    cast.alice.read("sessions/")  # what is looked up once a minute, such as windows of models
    return queries(lambda: cast.alice.call(method, path, body, **sent_as))


def budgets() -> dict[str, int]:
    found: dict[str, int] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return found


@pytest.mark.django_db
@pytest.mark.parametrize(("route", "method"), CALLS, ids=[f"{method} {route.pattern}" for route, method in CALLS])
def test_each_call_keeps_to_its_budget(cast: Cast, document: dict[str, Any], route: Route, method: str) -> None:
    name = f"{method} {route.pattern}"
    made = measured(cast, document, route, method)
    if WRITES:
        FILE.write_text(json.dumps({**budgets(), name: len(made)}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    allowed = budgets().get(name)
    assert allowed is not None, "a new call: QUERY_BUDGETS=write notes what it makes"
    assert len(made) == allowed, "\n".join([f"{len(made)} queries, {allowed} are noted:", *made])


def test_no_budget_is_left_over() -> None:
    assert set(budgets()) == {f"{method} {route.pattern}" for route, method in CALLS}


@pytest.mark.django_db
def test_reading_costs_the_same_with_much_more_there(cast: Cast) -> None:
    run, hook = compacted(cast.alices_team), make_hook(cast.alices_team)

    def counted() -> dict[str, int]:
        found = {}
        for route in READS:
            if not route.pattern.endswith("/candidate/"):
                path = route.path(**ids)
                found[route.pattern] = len(queries(lambda path=path: cast.alice.read(path)))  # type: ignore[misc]
        return found

    ids = ids_for(READS[0], run.session, run, hook)
    compacted(cast.alices_team)
    few = counted()
    append(run.session, *turns(300, start=1_000, size=40))
    for number in range(5):
        compacted(cast.alices_team)
        make_hook(cast.alices_team, number + 1)
        TranscriptImport.objects.create(
            team=cast.alices_team, name="a", format="auto", size_bytes=1, queued_at=timezone.now()
        )
    assert counted() == few
