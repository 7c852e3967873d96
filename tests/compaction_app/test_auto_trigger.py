"""Automatic compaction starts by itself: at the right append, once, never inside it; and a sweep catches the rest."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext
from kombu.exceptions import OperationalError

from compaction_app import actions, selectors, tasks
from compaction_app.llm import factory
from compaction_app.models import CompactionRun, CompactionState, Decision, RunStatus
from compaction_app.services import decisions, runs
from sessions_app.models import CompactBoundary, Session
from sessions_app.services.sessions import update_session
from tests.factories import NOW, append, assistant, make_session, make_team, turns, user
from tests.pressure import FIGURES, FailingSummarizer, almost_full, answer, execute, failed_ever

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nothing_was_swept() -> None:
    cache.delete(decisions.SWEPT_TO_KEY)


@pytest.fixture
def session() -> Session:
    return almost_full()


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(factory.SUMMARIZERS, "extractive", FailingSummarizer)


def outcome() -> str:
    return Decision.objects.order_by("-id")[0].outcome


class TestAppend:
    def test_it_works(self, session: Session) -> None:
        turn = answer(session)
        run = turn.run
        assert run is not None
        assert (run.session, run.trigger, run.status, run.instructions) == (session, "auto", RunStatus.QUEUED, "")
        assert not CompactBoundary.objects.exists(), "nothing is compacted inside the append"
        done = execute(run)
        assert done.status == RunStatus.SUCCEEDED
        assert done.boundary is not None
        assert done.boundary.trigger == "auto"
        session.refresh_from_db()
        assert session.level == "ok"
        assert answer(session).run is None

    def test_the_run_reaches_the_worker(self, session: Session, django_capture_on_commit_callbacks: Any) -> None:
        with django_capture_on_commit_callbacks() as callbacks:
            run = answer(session).run
        assert run is not None
        told = [callback.keywords for callback in callbacks if hasattr(callback, "keywords")]
        assert told == [{"run_id": run.pk}]

    def test_below_the_threshold_nothing_starts(self) -> None:
        session = make_session(policy_overrides=FIGURES)
        append(session, *turns(5))
        with CaptureQueriesContext(connection) as without:
            append(session, assistant("one"))
        with CaptureQueriesContext(connection) as captured:
            assert answer(session, "two").run is None
        assert len(captured) == len(without) + 1, "the breaker's row"
        assert not Decision.objects.exists()

    def test_only_a_response_of_the_model_starts_it(self, session: Session) -> None:
        turn = actions.append_turn(session=session, incoming=[user("more " * 200)], now=NOW)
        assert turn.session.level == "auto_compact"
        assert (turn.run, outcome()) == (None, "no_assistant_message")
        assert answer(session).run is not None

    def test_a_response_among_others_is_enough(self, session: Session) -> None:
        turn = actions.append_turn(session=session, incoming=[assistant("so " * 200), user("ok")], now=NOW)
        assert turn.run is not None

    def test_a_subagents_response_in_the_file_is_none(self, session: Session) -> None:
        turn = actions.append_turn(
            session=session, incoming=[user("more " * 200), assistant("side", is_sidechain=True)], now=NOW
        )
        assert (turn.run, outcome()) == (None, "no_assistant_message")

    def test_what_is_known_already_decides_nothing(self, session: Session) -> None:
        run = answer(session, uuid="x").run
        assert run is not None
        runs.cancel_queued(run=run, now=NOW)
        kept = Decision.objects.count()
        assert answer(session, uuid="x").run is None
        assert Decision.objects.count() == kept

    @pytest.mark.parametrize("switch", ["compaction_enabled", "auto_compact_enabled"])
    @pytest.mark.parametrize("layer", ["environment", "team", "session"])
    def test_off_means_off(self, switch: str, layer: str, settings: Any) -> None:
        if layer == "environment":
            settings.COMPACTION_POLICY = {switch: False}
        session = almost_full(**({switch: False} if layer == "session" else {}))
        if layer == "team":
            session.team.policy_overrides = {switch: False}
            session.team.save()
        assert answer(session).run is None
        decision = Decision.objects.order_by("-id")[0]
        assert decision.outcome == switch.replace("enabled", "disabled")
        assert decision.why.endswith(f"switched off by the {layer}")
        assert not CompactionRun.objects.exists()

    @pytest.mark.parametrize(
        ("switch", "words"),
        [
            ("compaction_enabled", "compaction is switched off by the session"),
            ("auto_compact_enabled", "automatic compaction is switched off by the session"),
        ],
    )
    def test_off_means_off_for_a_run_that_is_queued_already(self, session: Session, switch: str, words: str) -> None:
        run = answer(session).run
        update_session(session=session, values={"policy_overrides": {switch: False}})
        done = execute(run)
        assert (done.failure_reason, done.detail) == ("compaction_disabled", words)
        assert not CompactBoundary.objects.exists()
        assert not failed_ever(), "and that is no failure"

    @pytest.mark.parametrize("layer", ["team", "session"])
    def test_what_the_environment_has_switched_off_nobody_switches_on(self, layer: str, settings: Any) -> None:
        settings.COMPACTION_POLICY = {"auto_compact_enabled": False}
        session = almost_full(**({"auto_compact_enabled": True} if layer == "session" else {}))
        if layer == "team":
            session.team.policy_overrides = {"auto_compact_enabled": True}
            session.team.save()
        assert answer(session).run is None
        assert Decision.objects.get().why == "automatic compaction is switched off by the environment"

    def test_while_a_run_is_active_no_second_one_is_queued(self, session: Session) -> None:
        run = answer(session).run
        assert run is not None
        with CaptureQueriesContext(connection) as captured:
            assert answer(session).run is None
        assert not any('INSERT INTO "compaction_app_compactionrun"' in query["sql"] for query in captured)
        decision = Decision.objects.order_by("-id")[0]
        assert (decision.outcome, decision.why, decision.run) == ("active_run", f"run {run.uuid} is queued", None)
        assert CompactionRun.objects.count() == 1

    def test_a_queue_that_is_down_loses_neither_message_nor_run(
        self, session: Session, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
    ) -> None:
        def down(**_: Any) -> None:
            raise OperationalError("connection refused")

        monkeypatch.setattr(tasks.compact_session, "delay", down)
        with django_capture_on_commit_callbacks(execute=True):
            run = answer(session).run
        assert run is not None
        assert runs.recover(now=NOW) == [run.pk]


class TestFaults:
    def test_an_error_takes_nothing_from_the_append(
        self, session: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def boom(**_: Any) -> None:
            raise ZeroDivisionError("secret transcript text")

        monkeypatch.setattr(runs, "queue_run", boom)
        with caplog.at_level(logging.ERROR):
            turn = answer(session, "secret answer " * 20, uuid="kept")
        assert (turn.run, [row.uuid for row in turn.messages]) == (None, ["kept"])
        assert session.messages.filter(uuid="kept").exists()
        assert "ZeroDivisionError in boom" in caplog.text
        assert "secret" not in caplog.text
        decision = Decision.objects.order_by("-id")[0]
        assert decision.outcome == "error"
        assert "secret" not in decision.why
        monkeypatch.undo()
        assert answer(session).run is not None, "the next append decides again"

    def test_an_error_that_stops_the_log_too(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        def boom(**_: Any) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(selectors, "decision_facts", boom)
        assert answer(session, uuid="kept").run is None
        assert session.messages.filter(uuid="kept").exists()


class TestRaces:
    """Between the gates and the session's lock somebody else acts."""

    def arrange(self, monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
        lock = decisions.lock_session

        def acting(*, session_id: int) -> Session:
            monkeypatch.setattr(decisions, "lock_session", lock)
            act()
            return lock(session_id=session_id)

        monkeypatch.setattr(decisions, "lock_session", acting)

    def test_two_appends_at_once_make_one_run(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[Any] = []
        self.arrange(monkeypatch, lambda: made.append(answer(Session.objects.get(pk=session.pk)).run))
        assert answer(session).run is None
        assert CompactionRun.objects.get() == made[0]
        assert outcome() == "active_run"

    def test_two_appends_can_not_both_take_the_one_try(self, monkeypatch: pytest.MonkeyPatch) -> None:
        session = almost_full()
        CompactionState.objects.create(
            session=session, consecutive_failures=3, opened_at=NOW.replace(hour=1), opened_by="failures"
        )

        def other_append() -> None:
            run = answer(Session.objects.get(pk=session.pk)).run
            assert run is not None
            runs.cancel_queued(run=run, now=NOW)

        self.arrange(monkeypatch, other_append)
        assert answer(session).run is None
        assert (CompactionRun.objects.count(), outcome()) == (1, "breaker_open")

    def test_the_try_that_another_append_has_taken_is_told_as_what_it_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        session = almost_full()
        CompactionState.objects.create(
            session=session, consecutive_failures=3, opened_at=NOW.replace(hour=1), opened_by="failures"
        )
        self.arrange(monkeypatch, lambda: answer(Session.objects.get(pk=session.pk)))
        assert answer(session).run is None
        assert (CompactionRun.objects.count(), outcome()) == (1, "active_run")

    def test_a_breaker_that_opens_meanwhile_is_seen(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        def third_failure() -> None:
            CompactionState.objects.create(session=session, consecutive_failures=3, opened_at=NOW, opened_by="failures")

        self.arrange(monkeypatch, third_failure)
        turn = answer(session)
        assert (turn.run, outcome()) == (None, "breaker_open")
        assert selectors.token_state(session=turn.session).breaker_open is True

    def test_a_session_that_was_compacted_meanwhile_is_left_alone(
        self, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def compact() -> None:
            actions.compact_now(
                session=Session.objects.get(pk=session.pk), wanted=actions.Wanted(), now=NOW, listener=lambda *_: None
            )

        self.arrange(monkeypatch, compact)
        assert answer(session).run is None
        assert not CompactionRun.objects.filter(trigger="auto").exists()


class TestSweep:
    """Decision 21: the net under a crash between an append and its decision."""

    @pytest.fixture
    def left(self, session: Session) -> Session:
        """Over its threshold, and nobody has decided."""
        append(session, *turns(1, start=200))
        assert session.level == "auto_compact"
        return session

    def test_it_works(self, left: Session) -> None:
        [run_id] = decisions.sweep(now=NOW)
        run = CompactionRun.objects.get(pk=run_id)
        assert (run.session, run.trigger) == (left, "auto")
        decision = Decision.objects.get()
        assert (decision.moment, decision.outcome, decision.run) == ("sweep", "requested", run)
        assert decisions.sweep(now=NOW) == [], "it has a run now"

    @pytest.mark.parametrize("by", ["actions", "tasks"])
    def test_the_runs_reach_the_worker(self, left: Session, by: str, eager_worker: None) -> None:
        if by == "actions":
            assert actions.recover_runs(now=NOW) == 1
        else:
            tasks.recover_runs()
        assert CompactionRun.objects.get().status == RunStatus.SUCCEEDED
        left.refresh_from_db()
        assert left.level == "ok"

    def test_a_level_that_is_out_of_date_decides_nothing(self, left: Session) -> None:
        left.team.policy_overrides = {"decision_near_share": 0}
        left.team.save()
        Session.objects.update(policy_overrides={})
        assert decisions.sweep(now=NOW) == []
        assert not Decision.objects.exists(), "and of a sweep only a request is kept"

    def test_what_stops_an_append_stops_a_sweep(self, left: Session) -> None:
        CompactionState.objects.create(session=left, consecutive_failures=3, opened_at=NOW, opened_by="failures")
        assert decisions.sweep(now=NOW) == []

    def test_an_imported_session_waits_for_its_next_append(self, left: Session) -> None:
        Session.objects.update(source="claude-code")
        assert decisions.sweep(now=NOW) == []
        left.refresh_from_db()
        assert answer(left).run is not None

    def test_a_run_that_failed_waits_for_the_next_append(self, session: Session, failing: None) -> None:
        """One transient failure may not become an open breaker within three sweeps."""
        assert execute(answer(session).run).failure_reason == "no_summary"
        for number in range(1, 5):
            assert decisions.sweep(now=NOW + timedelta(minutes=number)) == []
        assert (CompactionRun.objects.count(), CompactionState.objects.get().consecutive_failures) == (1, 1)
        assert answer(session).run is not None

    @pytest.mark.parametrize("ahead", [timedelta(0), timedelta(days=365)])
    def test_what_a_sweep_has_queued_it_does_not_queue_again(
        self, session: Session, failing: None, ahead: timedelta
    ) -> None:
        """Whatever moment a client's messages carry."""
        append(session, assistant("and so on " * 20, sent_at=NOW + ahead))
        [run_id] = decisions.sweep(now=NOW)
        execute(CompactionRun.objects.get(pk=run_id))
        assert decisions.sweep(now=NOW + timedelta(minutes=1)) == []
        append(session, assistant("and then nobody decided", sent_at=NOW + ahead))
        assert len(decisions.sweep(now=NOW + timedelta(minutes=2))) == 1, "another crash, another try"

    def test_what_was_decided_stays_decided(self, session: Session) -> None:
        """A prompt over the threshold waits for its response, as its decision says."""
        actions.append_turn(session=session, incoming=[user("more " * 200)], now=NOW)
        assert outcome() == "no_assistant_message"
        assert decisions.sweep(now=NOW) == []

    def test_a_prepare_is_no_decision_about_it(self, left: Session) -> None:
        actions.prepare(session=left, now=NOW)
        assert Decision.objects.get().moment == "prepare"
        assert len(decisions.sweep(now=NOW)) == 1

    def test_a_cache_that_does_not_answer_stops_nothing(
        self, left: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def down(*_: Any, **__: Any) -> None:
            raise ConnectionError("redis://secret@host")

        monkeypatch.setattr(decisions, "cache", SimpleNamespace(get=down, set=down))
        assert len(decisions.sweep(now=NOW)) == 1
        assert "the cache does not answer (ConnectionError)" in caplog.text
        assert "secret" not in caplog.text

    @pytest.mark.parametrize("by", ["actions", "tasks"])
    @pytest.mark.parametrize("error", [OperationalError, RuntimeError])
    def test_a_run_that_the_queue_does_not_take_keeps_back_no_other(
        self, by: str, error: type[Exception], now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waiting = [answer(almost_full()).run for _ in range(3)]
        append(almost_full(), *turns(1, start=200))  # and one more that the sweep finds
        CompactionRun.objects.update(handed_out_at=None)
        taken: list[int] = []

        def delay(*, run_id: int) -> None:
            if waiting[0] is not None and run_id == waiting[0].pk:
                raise error("connection refused")
            taken.append(run_id)

        monkeypatch.setattr(tasks.compact_session, "delay", delay)
        if by == "actions":
            assert actions.recover_runs(now=now) == 3
        else:
            tasks.recover_runs()
        keys = list(CompactionRun.objects.order_by("id").values_list("pk", flat=True))
        assert taken == keys[1:]
        assert runs.recover(now=now) == keys[:1], "the next sweep tries again, at once"

    def test_nothing_to_do_is_one_query(self, session: Session, django_assert_num_queries: Any) -> None:
        with django_assert_num_queries(1):
            assert decisions.sweep(now=NOW) == []

    def test_sessions_that_can_not_be_helped_cost_no_query_each(self, django_assert_num_queries: Any) -> None:
        team = make_team()
        for _ in range(3):
            session = almost_full(team, auto_compact_enabled=False)
            append(session, *turns(1, start=200))
        with django_assert_num_queries(1):
            assert decisions.sweep(now=NOW) == []

    def test_it_goes_round_a_bounded_number_at_a_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(decisions, "MOST_SWEPT", 2)
        team, seen = make_team(), []
        sessions = []
        for number in range(5):
            sessions.append(almost_full(team, auto_compact_enabled=False))
            append(sessions[number], *turns(1, start=200))
        monkeypatch.setattr(decisions, "decide", lambda *, session, **_: seen.append(session.pk))
        for _ in range(3):
            decisions.sweep(now=NOW)
        keys = [session.pk for session in sessions]
        assert seen == [*keys, keys[0]]

    def test_one_that_can_not_be_dealt_with_keeps_back_no_other(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        sessions = [almost_full() for _ in range(2)]
        for session in sessions:
            append(session, *turns(1, start=200))
        queue = runs.queue_run

        def boom(*, session: Session, **more: Any) -> CompactionRun:
            if session == sessions[0]:
                raise ZeroDivisionError("secret")
            return queue(session=session, **more)

        monkeypatch.setattr(runs, "queue_run", boom)
        [run_id] = decisions.sweep(now=NOW)
        assert CompactionRun.objects.get(pk=run_id).session == sessions[1]
        assert "ZeroDivisionError" in caplog.text
        assert "secret" not in caplog.text
