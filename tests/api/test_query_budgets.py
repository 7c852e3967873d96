"""How many queries each call makes: kept in query_budgets.json, so that a change of it shows in a review.

`QUERY_BUDGETS=write pytest tests/api/test_query_budgets.py -n0` writes the file anew.
"""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.test.client import MULTIPART_CONTENT
from django.utils import timezone

from compaction_app import actions
from compaction_app.models import CompactionRun, Decision, Hook, HookDelivery, TranscriptImport
from sessions_app.models import Team
from tests.api.queries import queries_of
from tests.api.routes import CALLS, IDS, Route
from tests.api.test_openapi import document, ids_for, operation, upload
from tests.cast import Cast
from tests.factories import NOW, append, make_call, make_session, turns

__all__ = ["document"]
FILE = Path(__file__).with_name("query_budgets.json")
WRITES = os.environ.get("QUERY_BUDGETS") == "write"
# Reads all that is shown, in batches.
GROWS = {"sessions/<uuid:session_id>/analysis/"}
FIGURES: dict[str, Any] = {
    "position": 1,
    "context_tokens": 1,
    "source": "estimate",
    "level": "ok",
    "warning_threshold": 1,
    "error_threshold": 1,
    "auto_compact_threshold": 1,
    "outcome": "requested",
}
READS = [route for route, method in CALLS if method == "GET" and route.pattern not in GROWS]


def compacted(team: Team, *, rounds: int = 20) -> CompactionRun:
    session = make_session(team, policy_overrides={"reactive_compact": True})
    append(session, *turns(rounds))
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


def measured(cast: Cast, document: dict[str, Any], route: Route, method: str) -> list[str]:
    run = compacted(cast.alices_team, rounds=40)  # enough for results that can be cleared
    hook = make_hook(cast.alices_team)
    body, sent_as = example(operation(document, route, method))
    path = route.path(**ids_for(route, run.session, run, hook))
    cast.alice.read("sessions/")  # what is looked up once a minute, such as windows of models
    return queries_of(lambda: cast.alice.call(method, path, body, **sent_as))


def budgets() -> dict[str, int]:
    found: dict[str, int] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return found


@pytest.mark.django_db
@pytest.mark.parametrize(("route", "method"), CALLS, ids=IDS)
@pytest.mark.thorough
@pytest.mark.database
def test_each_call_keeps_to_its_budget(cast: Cast, document: dict[str, Any], route: Route, method: str) -> None:
    name = f"{method} {route.pattern}"
    made = measured(cast, document, route, method)
    if WRITES:
        kept = {call: count for call, count in budgets().items() if call in IDS}
        FILE.write_text(json.dumps({**kept, name: len(made)}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    allowed = budgets().get(name)
    assert allowed is not None, "a new call: QUERY_BUDGETS=write notes what it makes"
    assert len(made) == allowed, "\n".join([f"{len(made)} queries, {allowed} are noted:", *made])


def test_no_budget_is_left_over() -> None:
    assert set(budgets()) == set(IDS)


def more_of_everything(run: CompactionRun, hook: Hook, *, numbers: range) -> None:
    """Of what a list shows or a row refers to, one for each number: in the session, beside it, and about its run."""
    session, team = run.session, hook.team
    for number in numbers:
        append(session, *turns(30, start=1_000 * number, size=40))
        actions.compact_now(session=session, wanted=actions.Wanted(), now=timezone.now(), listener=lambda *_: None)
        compacted(team)
        make_hook(team, number)
        make_call(run, ordinal=number)
        TranscriptImport.objects.create(team=team, name="a", format="auto", size_bytes=1, queued_at=NOW)
        HookDelivery.objects.create(
            hook=hook, session=session, run=run, event="post_compact", status="delivered", created_at=NOW
        )
        Decision.objects.create(session=session, run=run, moment="append", at=NOW, why="", **FIGURES)


@pytest.mark.django_db
@pytest.mark.thorough
def test_reading_costs_the_same_with_ten_times_as_much_there(cast: Cast) -> None:
    run, hook = compacted(cast.alices_team), make_hook(cast.alices_team)
    by_route = {route: ids_for(route, run.session, run, hook) for route in READS}

    def counted() -> dict[str, int]:
        paths = {route.pattern: route.path(**ids) for route, ids in by_route.items()}
        return {pattern: len(queries_of(partial(cast.alice.read, path))) for pattern, path in paths.items()}

    more_of_everything(run, hook, numbers=range(1, 2))
    few = counted()
    more_of_everything(run, hook, numbers=range(2, 12))
    assert counted() == few
