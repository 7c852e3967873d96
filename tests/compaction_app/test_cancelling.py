"""A run is cancelled while a worker has it: nothing of it is stored, and what it has spent is told."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from compaction_app import actions
from compaction_app.actions import Decider
from compaction_app.engine.ports import Progress, SummaryRequest, SummaryResult
from compaction_app.llm import factory
from compaction_app.llm.extractive import ExtractiveSummarizer
from compaction_app.models import (
    CompactionCandidate,
    CompactionRun,
    CompactionState,
    HookDelivery,
    RunStatus,
    RunStep,
    TelemetryEvent,
)
from compaction_app.services import runs
from sessions_app.models import CompactBoundary, Session
from tests.factories import append, make_call, make_session, turns

pytestmark = pytest.mark.django_db


@pytest.fixture(params=[False, True], ids=["stored at once", "approve mode"])
def session(request: Any) -> Session:
    session = make_session(policy_overrides={"approve_compactions": request.param})
    append(session, *turns(40))
    return session


def queue(session: Session) -> CompactionRun:
    return runs.queue_run(session=session, trigger="manual", instructions="", now=timezone.now())


def cancel(run: CompactionRun) -> CompactionRun:
    by = Decider(user=get_user_model().objects.get_or_create(username="mia")[0])
    return actions.cancel_run(run=CompactionRun.objects.get(pk=run.pk), by=by, now=timezone.now())


class Cancelled(ExtractiveSummarizer):
    """Somebody cancels the run while the summary is written; `report`: whether it tells of itself afterwards."""

    run: CompactionRun
    report = True

    def summarize(self, *, request: SummaryRequest, progress: Progress) -> SummaryResult:
        cancel(self.run)
        make_call(self.run, outcome="stopped")  # the call that was under way is on record when it ends
        if self.report:
            progress.report(stage="summarizing", fraction=0.5)
        return super().summarize(request=request, progress=Quiet())


class Quiet:
    def report(self, **_: Any) -> None:
        """Nobody hears it."""


@pytest.mark.parametrize("report", [True, False], ids=["at its next report", "when it stores"])
def test_a_worker_notices(session: Session, monkeypatch: pytest.MonkeyPatch, report: bool) -> None:
    run = queue(session)
    raced = type("Raced", (Cancelled,), {"run": run, "report": report})
    monkeypatch.setitem(factory.SUMMARIZERS, "extractive", raced)
    done = runs.execute(run_id=run.pk)
    assert done is not None
    assert (done.status, done.detail, done.failure_reason) == (RunStatus.CANCELLED, "cancelled by mia", "")
    assert [attempt["outcome"] for attempt in done.attempts] == ["cancelled"]
    assert done.attempts[0]["ended_at"]
    assert (done.claim_token, done.lease_expires_at) == (None, None)
    assert [entry["stage"] for entry in done.stages][-1] == "cancelled"
    assert done.stage == "cancelled"
    for model in (CompactBoundary, CompactionCandidate, RunStep, HookDelivery, CompactionState):
        assert not model.objects.exists(), model
    assert not TelemetryEvent.objects.filter(name__startswith="tengu_compact").exists()
    assert str(done.cost_usd) == "0.051250", "what the call that was under way has cost is told"
    session.refresh_from_db()
    assert session.boundary_count == 0


def test_what_it_has_spent_until_then_is_told(session: Session) -> None:
    run = queue(session)
    make_call(run)
    assert str(cancel(run).cost_usd) == "0.051250"


def test_a_late_failure_does_not_tell_it_otherwise(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    class Boom(ExtractiveSummarizer):
        def summarize(self, *, request: SummaryRequest, progress: Progress) -> SummaryResult:
            cancel(run)
            raise ValueError("what went wrong")

    run = queue(session)
    monkeypatch.setitem(factory.SUMMARIZERS, "extractive", Boom)
    with pytest.raises(Exception, match="ValueError"):
        runs.execute(run_id=run.pk)
    run.refresh_from_db()
    assert (run.status, run.failure_reason) == (RunStatus.CANCELLED, "")


def test_of_two_that_cancel_the_first_is_told(session: Session) -> None:
    run = queue(session)
    stale = CompactionRun.objects.get(pk=run.pk)
    first = cancel(run)
    again = actions.cancel_run(run=stale, by=Decider(), now=timezone.now())
    assert (again.detail, again.finished_at) == (first.detail, first.finished_at)


def test_one_that_ended_a_moment_ago(session: Session) -> None:
    run = queue(session)
    stale = CompactionRun.objects.get(pk=run.pk)
    CompactionRun.objects.filter(pk=run.pk).update(status=RunStatus.FAILED, failure_reason="error")
    with pytest.raises(actions.WrongStatus, match="failed"):
        actions.cancel_run(run=stale, by=Decider(), now=timezone.now())
