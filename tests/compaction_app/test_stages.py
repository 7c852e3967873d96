"""The stages of a run stand on its row: in order, each once, whoever has written them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from compaction_app.models import CompactionRun, RunStatus
from compaction_app.services import claims, runs
from compaction_app.services.claims import RunProgress
from compaction_app.services.stages import came_to
from sessions_app.models import Session
from sessions_app.policy import Policy
from tests.factories import NOW, append, make_session, turns
from tests.pressure import execute

pytestmark = pytest.mark.django_db


@pytest.fixture
def session() -> Session:
    session = make_session()
    append(session, *turns(40))
    return session


def queue(session: Session) -> CompactionRun:
    return runs.queue_run(session=session, trigger="manual", instructions="", now=timezone.now())


def told(run: CompactionRun) -> list[str]:
    run.refresh_from_db()
    return [entry["stage"] for entry in run.stages]


def test_it_works(session: Session) -> None:
    run = execute(queue(session))
    assert told(run) == ["queued", "starting", "reading", "summarizing", "attachments", "storing", "done"]
    assert [entry["attempt"] for entry in run.stages] == [0, 1, 1, 1, 1, 1, 1]
    times = [entry["at"] for entry in run.stages]
    assert times == sorted(times)
    shares = [entry["progress"] for entry in run.stages]
    assert (shares, shares[-1]) == (sorted(shares), 1)
    assert all(set(entry) == {"stage", "at", "attempt", "progress"} for entry in run.stages)


def test_a_failure_tells_where_it_was(session: Session) -> None:
    session.policy_overrides = {"compaction_enabled": False}
    session.save()
    run = execute(queue(session))
    assert told(run) == ["queued", "starting", "reading", "failed"]
    assert run.stage == "failed"


def test_one_that_waits_for_approval(session: Session) -> None:
    session.policy_overrides = {"approve_compactions": True}
    session.save()
    run = execute(queue(session))
    assert told(run)[-2:] == ["storing", "awaiting_approval"]


def test_one_that_nobody_took(session: Session) -> None:
    run = queue(session)
    assert runs.cancel_queued(run=run, now=timezone.now())
    assert told(run) == ["queued", "cancelled"]


def test_a_worker_that_is_stopped_gives_it_back(session: Session) -> None:
    run = queue(session)
    held = claims.claim(run_id=run.pk, now=timezone.now())
    assert held
    claims.give_back(held=held)
    assert told(run) == ["queued", "starting", "queued"]
    assert told(execute(run))[2:5] == ["queued", "starting", "reading"]


@pytest.mark.parametrize(("lost", "expected"), [(0, ["queued"]), (2, ["failed"])])
def test_a_worker_that_went_silent(session: Session, lost: int, expected: list[str]) -> None:
    run = queue(session)
    assert claims.claim(run_id=run.pk, now=NOW)
    run.refresh_from_db()
    before = [{"attempt": 0, "outcome": claims.LOST}] * lost
    CompactionRun.objects.filter(pk=run.pk).update(attempts=[*before, *run.attempts])
    runs.recover(now=NOW + timedelta(hours=1))
    assert told(run) == ["queued", "starting", *expected]


def test_one_that_is_read_twice_tells_so(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes while it is worked on is read again: neither attempt's stages are lost."""
    finish, tries = runs.finish, []

    def once_stale(**given: Any) -> None:
        tries.append(given)
        if len(tries) == 1:
            raise runs.StaleView("the view has changed")
        finish(**given)

    monkeypatch.setattr(runs, "finish", once_stale)
    run = execute(queue(session))
    work = ["reading", "summarizing", "attachments", "storing"]
    assert told(run) == ["queued", "starting", *work, *work, "done"]


def test_a_stage_costs_no_query_more(session: Session, django_assert_num_queries: Any) -> None:
    run = queue(session)
    held = claims.claim(run_id=run.pk, now=timezone.now())
    assert held
    run = CompactionRun.objects.select_related("session__team").get(pk=run.pk)
    progress = RunProgress(run=run, held=held, listener=None)
    for stage in ("reading", "summarizing"):
        with django_assert_num_queries(1):
            progress.report(stage=stage, fraction=0.1)
    assert told(run)[-2:] == ["reading", "summarizing"]


def test_they_are_bounded(session: Session) -> None:
    run = queue(session)
    run.stages = [{"stage": str(number), "attempt": 1} for number in range(Policy().run_stages)]
    found = came_to(run=run, stage="reading", now=NOW)
    assert (found["stage"], found.get("stages")) == ("reading", None)


def test_a_worker_that_lost_the_run_adds_none(session: Session) -> None:
    run = queue(session)
    held = claims.claim(run_id=run.pk, now=timezone.now())
    assert held
    run = CompactionRun.objects.select_related("session__team").get(pk=run.pk)
    progress = RunProgress(run=run, held=held, listener=None)
    CompactionRun.objects.filter(pk=run.pk).update(
        status=RunStatus.FAILED, failure_reason="error", lease_expires_at=None
    )
    with pytest.raises(claims.ClaimLost):
        progress.report(stage="summarizing", fraction=0.2)
    assert told(run) == ["queued", "starting"]
