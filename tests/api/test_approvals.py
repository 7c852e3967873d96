"""runs/{id}/candidate/, accept/, reject/: what each answers, and in which order it looks."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from compaction_app.models import CompactionRun, RunStatus
from compaction_app.services import runs
from sessions_app.models import Session
from tests.cast import Api, errors
from tests.factories import append, turns, user
from tests.pressure import execute

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(session: Session) -> CompactionRun:
    session.policy_overrides = {"approve_compactions": True}
    session.save()
    append(session, *turns(40))
    queued = runs.queue_run(session=session, trigger="manual", instructions="", now=timezone.now())
    waiting = execute(queued)
    assert waiting.status == RunStatus.AWAITING_APPROVAL
    return waiting


def path(run: CompactionRun, what: str) -> str:
    return f"runs/{run.uuid}/{what}/"


def test_it_works(api: Api, run: CompactionRun) -> None:
    proposed = api.read(path(run, "candidate")).json()
    text = proposed["summary"] + "\n- mind the tests"
    edited = api.change(path(run, "candidate"), {"summary": text})
    assert (edited.status_code, edited.json()["summary"]) == (200, text)
    accepted = api.send(path(run, "accept"), {})
    assert (accepted.status_code, accepted.json()["status"]) == (200, "succeeded")
    assert api.read(f"boundaries/{accepted.json()['boundary']}/").json()["summary"] == text


def test_a_rejected_run_is_cancelled(api: Api, run: CompactionRun) -> None:
    answer = api.send(path(run, "reject"), {"reason": "the rules are missing"})
    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    assert api.read(path(run, "candidate")).json()["decision"] == "rejected"


LATE = [
    ("PATCH", "candidate", {"summary": "just words"}),
    ("POST", "accept", {"summary": "just words"}),
    ("POST", "accept", {}),
    ("POST", "reject", {}),
]


@pytest.mark.parametrize("decision", ["accept", "reject"])
@pytest.mark.parametrize(("method", "what", "body"), LATE)
def test_what_comes_late_is_a_conflict_whatever_it_says(
    api: Api, run: CompactionRun, decision: str, method: str, what: str, body: dict[str, Any]
) -> None:
    assert api.send(path(run, decision), {}).status_code == 200
    answer = api.call(method, path(run, what), body)
    assert (answer.status_code, errors(answer)) == (409, [("not_awaiting", None)])
    assert answer.json()["run"] == str(run.uuid)


class TestStale:
    @pytest.fixture(autouse=True)
    def rewound(self, session: Session, run: CompactionRun) -> None:
        append(session, user("other way", uuid="rewind", parent_uuid="b20"))

    def test_an_edit_is_a_conflict_and_it_goes_on_waiting(self, api: Api, run: CompactionRun) -> None:
        proposed = api.read(path(run, "candidate")).json()
        assert proposed["stale"] is True
        for text in ("just words", proposed["summary"] + " "):
            answer = api.change(path(run, "candidate"), {"summary": text})
            assert (answer.status_code, errors(answer)) == (409, [("stale_view", None)])
        assert api.read(path(run, "candidate")).json() == proposed
        assert api.send(path(run, "reject"), {}).status_code == 200

    @pytest.mark.parametrize("body", [{}, {"summary": "just words"}])
    def test_an_acceptance_is_one_and_the_run_has_failed(
        self, api: Api, run: CompactionRun, body: dict[str, Any]
    ) -> None:
        answer = api.send(path(run, "accept"), body)
        assert (answer.status_code, errors(answer)) == (409, [("stale_view", None)])
        shown = api.read(f"runs/{run.uuid}/").json()
        assert (shown["status"], shown["failure_reason"]) == ("failed", "stale_view")


@pytest.mark.parametrize("text", ["just words", "# 1"])
def test_a_bad_text_is_named_and_it_goes_on_waiting(api: Api, run: CompactionRun, text: str) -> None:
    code = "missing_sections" if text == "just words" else "blank"
    for answer in (
        api.change(path(run, "candidate"), {"summary": text}),
        api.send(path(run, "accept"), {"summary": text}),
    ):
        assert (answer.status_code, errors(answer)) == (400, [(code, "summary")])
    assert api.read(f"runs/{run.uuid}/").json()["status"] == "awaiting_approval"


def test_what_it_blocks_says_who_decides(api: Api, session: Session, run: CompactionRun) -> None:
    answer = api.send(f"sessions/{session.uuid}/compact/", {})
    assert (answer.status_code, errors(answer)) == (409, [("active_run", None)])
    told = answer.json()["errors"][0]["detail"]
    assert f"waits for approval: runs/{run.uuid}/accept/ or reject/" in told
    plan = api.send(f"sessions/{session.uuid}/compact/", {"dry_run": True}).json()
    assert told in str(plan)
