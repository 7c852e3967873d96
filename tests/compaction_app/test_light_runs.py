"""Runs whose light links clear something: kept when a later link fails, gone when a summary takes its place."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from compaction_app import actions
from compaction_app.engine.outcome import CompactionRefused, FailureReason, RunErrored
from compaction_app.engine.ports import Progress, SummaryRequest, SummaryResult
from compaction_app.llm import factory
from compaction_app.models import CompactionRun, RunStatus, TelemetryEvent
from compaction_app.services import clearing, run_records, runs
from sessions_app import selectors
from sessions_app.models import CompactBoundary, Session
from sessions_app.services.boundaries import StaleView
from sessions_app.transcript.view import ContextView
from tests.factories import append, make_session, turns

pytestmark = pytest.mark.django_db

LONG_AGO = timedelta(hours=1)
# What stays of the one link is still more than the other one lets stand.
BOTH_CLEAR = {"time_based_keep_results": 15, "clear_least_tokens": 1_000}


class Unwilling:
    def summarize(self, *, request: SummaryRequest, progress: Progress) -> SummaryResult:
        raise CompactionRefused(reason=FailureReason.NO_SUMMARY, detail="nothing came")


@pytest.fixture
def no_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(factory.SUMMARIZERS, "extractive", Unwilling)


def cold_session(**values: Any) -> Session:
    session = make_session(**values)
    append(session, *turns(40, size=4_000), now=timezone.now() - LONG_AGO)
    return session


def run_of(session: Session, trigger: str) -> CompactionRun:
    queued = runs.queue_run(session=session, trigger=trigger, instructions="", now=timezone.now())
    run = runs.execute(run_id=queued.pk)
    assert run is not None
    return run


def clearings(session: Session) -> list[str]:
    return list(CompactBoundary.objects.filter(session=session).order_by("id").values_list("clearing", flat=True))


def kinds(session: Session) -> list[str]:
    return list(CompactBoundary.objects.filter(session=session).order_by("id").values_list("kind", flat=True))


class TestAuto:
    def test_clearing_alone_can_be_enough(self) -> None:
        session = cold_session()
        run = run_of(session, "auto")
        assert (run.status, kinds(session)) == (RunStatus.SUCCEEDED, ["microcompact"])
        assert run.boundary is not None
        assert [(step.link, step.ran) for step in run.steps.all()] == [("time_based", True)]
        session.refresh_from_db()
        assert run.tokens_before is not None
        assert session.context_tokens == run.tokens_after == run.boundary.tokens_after < run.tokens_before
        names = set(TelemetryEvent.objects.values_list("name", flat=True))
        assert names == {"tengu_compact", "tengu_time_based_microcompact"}

    def test_what_both_links_clear_together_can_be_enough(self) -> None:
        session = cold_session(policy_overrides={**BOTH_CLEAR, "context_window": 66_000})
        run = run_of(session, "auto")
        assert [(step.link, step.ran) for step in run.steps.all()] == [("time_based", True), ("cache_edits", True)]
        assert clearings(session) == ["placeholder", "api_edit"]
        assert run.boundary is not None
        assert run.boundary.clearing == "api_edit"

    def test_where_it_is_not_the_summary_takes_its_place(self) -> None:
        session = cold_session(policy_overrides={"context_window": 12_000})
        run = run_of(session, "auto")
        assert (run.status, kinds(session)) == (RunStatus.SUCCEEDED, ["full"])
        assert [(step.link, step.ran) for step in run.steps.all()] == [
            ("time_based", True),
            ("cache_edits", False),
            ("session_memory", False),
            ("full", True),
        ]


class TestFailure:
    def test_what_was_cleared_stays_when_the_summary_fails(self, no_summary: None) -> None:
        session = cold_session()
        before = session.context_tokens
        run = run_of(session, "manual")
        assert (run.status, run.failure_reason, run.boundary) == (RunStatus.FAILED, "no_summary", None)
        assert kinds(session) == ["microcompact"]
        session.refresh_from_db()
        assert session.context_tokens < before
        assert session.view_tokens == selectors.context_view(session=session).tokens
        failed = TelemetryEvent.objects.get(name="tengu_compact_failed")
        assert failed.payload["light_edits_kept"] == 1

    def test_and_when_a_bug_ends_the_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Buggy:
            def summarize(self, **_: Any) -> SummaryResult:
                raise ZeroDivisionError("secret transcript text")

        monkeypatch.setitem(factory.SUMMARIZERS, "extractive", Buggy)
        session = cold_session()
        queued = runs.queue_run(session=session, trigger="manual", instructions="", now=timezone.now())
        with pytest.raises(RunErrored):
            runs.execute(run_id=queued.pk)
        assert kinds(session) == ["microcompact"]
        assert [(step.link, step.ran) for step in queued.steps.all()] == [
            ("session_memory", False),
            ("time_based", True),
            ("cache_edits", False),
            ("full", False),
        ]

    def test_what_both_links_have_cleared_stays(self, no_summary: None) -> None:
        session = cold_session(policy_overrides=BOTH_CLEAR)
        run = run_of(session, "manual")
        assert clearings(session) == ["placeholder", "api_edit"]
        assert [step.ran for step in run.steps.all()] == [False, True, True, False]
        assert TelemetryEvent.objects.get(name="tengu_compact_failed").payload["light_edits_kept"] == 2

    @pytest.mark.parametrize("problem", [StaleView("moved on"), ZeroDivisionError("secret")])
    def test_what_can_not_be_kept_keeps_the_run_from_no_end(
        self, no_summary: None, problem: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def refuse(**_: Any) -> CompactBoundary:
            raise problem

        monkeypatch.setattr(run_records, "commit_boundary", refuse)
        session = cold_session()
        run = run_of(session, "manual")
        assert (run.failure_reason, kinds(session)) == ("no_summary", [])
        cleared = run.steps.get(link="time_based")
        assert (cleared.ran, cleared.tokens_after) == (False, cleared.tokens_before)
        assert cleared.why.endswith("; not stored")
        assert "secret" not in caplog.text

    def test_and_is_not_cleared_twice_by_the_next_try(self, no_summary: None) -> None:
        session = cold_session()
        run_of(session, "manual")
        run_of(session, "manual")
        assert kinds(session) == ["microcompact"]


class TestRaces:
    def test_two_that_prepare_at_once_clear_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Between one's look and its writing another one clears the same results."""
        session = Session.objects.select_related("team").get(pk=cold_session().pk)
        before_commit(monkeypatch, lambda: clearing.apply_light_links(session=reread(session), now=timezone.now()))
        applied = actions.prepare(session=session, now=timezone.now()).applied
        assert kinds(session) == ["microcompact"]
        assert [step.ran for step in applied] == [False, False]

    def test_what_is_cleared_while_one_reads_is_not_cleared_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Between its reading of the view and anything after it."""
        session = reread(cold_session())
        read = selectors.context_view

        def raced(**given: Any) -> ContextView:
            view = read(**given)
            monkeypatch.setattr(selectors, "context_view", read)
            clearing.apply_light_links(session=reread(session), now=timezone.now())
            return view

        monkeypatch.setattr(selectors, "context_view", raced)
        applied = actions.prepare(session=session, now=timezone.now()).applied
        assert kinds(session) == ["microcompact"]
        assert [step.ran for step in applied] == [False, False]

    def test_a_summary_that_lands_meanwhile_wins(self, monkeypatch: pytest.MonkeyPatch) -> None:
        session = Session.objects.select_related("team").get(pk=cold_session().pk)
        before_commit(monkeypatch, lambda: run_of(session, "manual"))
        actions.prepare(session=session, now=timezone.now())
        assert kinds(session) == ["full"]


def reread(session: Session) -> Session:
    return Session.objects.select_related("team").get(pk=session.pk)


def before_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Do something once, just before `prepare` writes its first boundary."""
    real, waiting = clearing.commit_boundary, [act]

    def raced(**arguments: Any) -> CompactBoundary:
        if waiting:
            waiting.pop()()
        return real(**arguments)

    monkeypatch.setattr(clearing, "commit_boundary", raced)


class TestAsked:
    """Who has asked what to send is believed about its size: it must be this boundary's context that it was given."""

    def test_once_for_each_boundary(self) -> None:
        session = reread(cold_session())
        actions.prepare(session=session, now=timezone.now())
        assert reread(session).prepared is True
        run_of(session, "manual")
        assert reread(session).prepared is False

    def test_a_boundary_that_landed_meanwhile_was_not_asked_about(self) -> None:
        session = reread(cold_session())
        actions.prepare(session=session, now=timezone.now())
        Session.objects.filter(pk=session.pk).update(prepared=False)
        as_asked = reread(session)
        run_of(session, "manual")
        clearing.note_prepared(session=as_asked)
        assert reread(session).prepared is False
