"""Runs: claimed once, finished whole, recovered after a death, and never two at a time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone
from kombu.exceptions import OperationalError

from compaction_app import actions, tasks
from compaction_app.engine.outcome import RunErrored
from compaction_app.engine.ports import Progress, SummaryRequest, SummaryResult
from compaction_app.llm import factory
from compaction_app.llm.extractive import ExtractiveSummarizer
from compaction_app.models import CompactionRun, RunStatus, RunStep, TelemetryEvent
from compaction_app.services import runs
from sessions_app import selectors
from sessions_app.models import CompactBoundary, Session
from sessions_app.policy import Policy
from sessions_app.transcript.request import build_request
from sessions_app.transcript.validation import validate_messages
from tests.factories import append, make_session, turns, user

pytestmark = pytest.mark.django_db


@pytest.fixture
def session() -> Session:
    session = make_session()
    append(session, *turns(40))
    return session


@pytest.fixture
def during(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Do something while the summary is being written, as a race would."""

    def arrange(act: Callable[[], Any]) -> None:
        class Raced(ExtractiveSummarizer):
            def summarize(self, *, request: SummaryRequest, progress: Progress) -> SummaryResult:
                result = ExtractiveSummarizer.summarize(self, request=request, progress=progress)
                act()
                return result

        monkeypatch.setitem(factory.SUMMARIZERS, "extractive", Raced)

    return arrange


def queue(session: Session, **more: Any) -> CompactionRun:
    return runs.queue_run(session=session, trigger="manual", instructions="", now=timezone.now(), **more)


def execute(run: CompactionRun) -> CompactionRun:
    done = runs.execute(run_id=run.pk)
    assert done is not None
    return done


class TestExecute:
    def test_it_works(self, session: Session) -> None:
        history = list(session.messages.order_by("position").values())
        run = execute(queue(session))
        assert (run.status, run.stage, run.progress, run.attempt) == (RunStatus.SUCCEEDED, "done", 1.0, 1)
        assert run.boundary is not None
        assert run.tokens_before is not None
        assert run.tokens_after is not None
        assert run.tokens_after < 0.5 * run.tokens_before
        assert run.attempts[0]["outcome"] == "succeeded"
        session.refresh_from_db()
        assert session.context_tokens == run.tokens_after == run.boundary.tokens_after
        request = build_request(view=selectors.context_view(session=session))
        assert validate_messages(messages=request.messages) == []
        assert list(session.messages.order_by("position").values()) == history
        *_, step = steps = list(run.steps.all())
        assert [step.link for step in steps] == ["session_memory", "time_based", "cache_edits", "full"]
        assert step.ran
        assert "replaced by a summary" in step.why

    def test_the_event_tells_what_happened(self, session: Session) -> None:
        run = execute(queue(session))
        event = TelemetryEvent.objects.get()
        assert (event.name, event.run_id, event.team_id) == ("tengu_compact", run.pk, session.team_id)
        assert event.payload["tokens_before"] == run.tokens_before
        assert event.payload["is_recompaction"] is False

    def test_progress_is_told(self, session: Session) -> None:
        heard: list[tuple[str, float]] = []
        runs.execute(run_id=queue(session).pk, listener=lambda stage, fraction: heard.append((stage, fraction)))
        assert heard[0][0] == "reading"
        assert heard[-1] == ("done", 1.0)
        assert [f for _, f in heard] == sorted(f for _, f in heard)

    def test_a_second_delivery_does_nothing(self, session: Session) -> None:
        run = queue(session)
        execute(run)
        assert runs.execute(run_id=run.pk) is None
        assert CompactBoundary.objects.count() == 1

    def test_a_run_that_is_not_there_does_nothing(self) -> None:
        assert runs.execute(run_id=4_711) is None

    def test_nothing_to_compact_is_told(self) -> None:
        run = execute(queue(make_session()))
        assert (run.status, run.failure_reason) == (RunStatus.FAILED, "nothing_to_compact")
        assert {step.ran for step in run.steps.all()} == {False}
        event = TelemetryEvent.objects.get()
        assert (event.name, event.payload["reason"]) == ("tengu_compact_failed", "nothing_to_compact")

    def test_again_without_anything_new_does_nothing(self, session: Session) -> None:
        execute(queue(session))
        run = execute(queue(session))
        assert run.failure_reason == "nothing_to_compact"
        assert CompactBoundary.objects.count() == 1

    def test_a_second_compaction_after_more_turns_covers_the_whole_past(self, session: Session) -> None:
        execute(queue(session))
        append(session, *turns(60, start=40))
        run = execute(queue(session))
        assert run.status == RunStatus.SUCCEEDED
        assert run.boundary is not None
        assert "please do step 0\n" in run.boundary.summary + "\n"
        assert TelemetryEvent.objects.order_by("-id")[0].payload["is_recompaction"] is True

    def test_switched_off_means_off(self, session: Session) -> None:
        session.policy_overrides = {"compaction_enabled": False}
        session.save()
        assert execute(queue(session)).failure_reason == "compaction_disabled"

    def test_switched_off_by_itself_it_still_works_by_hand(self, session: Session) -> None:
        session.policy_overrides = {"auto_compact_enabled": False}
        session.save()
        assert execute(queue(session)).status == RunStatus.SUCCEEDED

    def test_an_unexpected_error_is_recorded_and_raised(
        self, session: Session, during: Callable[[Callable[[], Any]], None]
    ) -> None:
        def boom() -> None:
            raise ValueError("secret transcript text")

        during(boom)
        run = queue(session)
        with pytest.raises(RunErrored, match="ValueError") as error:
            runs.execute(run_id=run.pk)
        assert "secret" not in str(error.value)
        run.refresh_from_db()
        assert (run.status, run.failure_reason) == (RunStatus.FAILED, "error")
        assert "ValueError" in run.detail
        assert "secret" not in run.detail

    def test_the_steps_until_an_unexpected_error_are_told_and_the_one_that_met_it(
        self, session: Session, during: Callable[[Callable[[], Any]], None]
    ) -> None:
        def boom() -> None:
            raise ValueError("secret transcript text")

        during(boom)
        run = queue(session)
        with pytest.raises(RunErrored):
            runs.execute(run_id=run.pk)
        *before, last = run.steps.all()
        assert [step.link for step in before] == ["session_memory", "time_based", "cache_edits"]
        assert (last.link, last.ran, last.why) == ("full", False, "met an unexpected ValueError")
        assert last.tokens_after == last.tokens_before

    def test_a_crash_while_storing_stores_nothing(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        session.policy_overrides = {"time_based_enabled": False}
        session.save()

        def boom(**_: Any) -> None:
            raise RuntimeError("disk full")

        monkeypatch.setattr("compaction_app.telemetry.emit_compact", boom)
        before = Session.objects.filter(pk=session.pk).values().get()
        with pytest.raises(RunErrored):
            runs.execute(run_id=queue(session).pk)
        assert not CompactBoundary.objects.exists()
        assert not RunStep.objects.filter(ran=True).exists()
        assert RunStep.objects.get(link="full").why.endswith("; not stored")
        assert Session.objects.filter(pk=session.pk).values().get() == before


class TestRaces:
    def test_t25_a_message_appended_meanwhile_comes_last(
        self, session: Session, during: Callable[[Callable[[], Any]], None]
    ) -> None:
        during(lambda: append(session, user("meanwhile", uuid="late")))
        run = execute(queue(session))
        assert run.status == RunStatus.SUCCEEDED
        items = selectors.context_view(session=session).items
        assert items[0].position == 0
        assert items[-1].uuid == "late"
        assert [i.position for i in items[1:]] == sorted(i.position for i in items[1:])

    def test_t26_two_triggers_make_one_run(self, session: Session) -> None:
        first = queue(session)
        with pytest.raises(runs.ActiveRun) as active:
            queue(session)
        assert active.value.run == first
        with pytest.raises(IntegrityError), transaction.atomic():
            CompactionRun.objects.create(session=session, trigger="manual", queued_at=timezone.now())

    def test_t27_a_worker_that_lost_its_lease_publishes_nothing(
        self, session: Session, during: Callable[[Callable[[], Any]], None]
    ) -> None:
        run = queue(session)

        def the_lease_runs_out_and_another_worker_finishes() -> None:
            undo()
            assert runs.recover(now=timezone.now() + timedelta(hours=1)) == [run.pk]
            done = runs.execute(run_id=run.pk)
            assert done is not None
            assert done.status == RunStatus.SUCCEEDED

        def undo() -> None:
            factory.SUMMARIZERS["extractive"] = ExtractiveSummarizer

        during(the_lease_runs_out_and_another_worker_finishes)
        runs.execute(run_id=run.pk)
        run.refresh_from_db()
        assert (run.status, run.attempt) == (RunStatus.SUCCEEDED, 2)
        assert CompactBoundary.objects.count() == 1
        assert [a["outcome"] for a in run.attempts] == ["worker lost", "succeeded"]

    def test_a_rewind_meanwhile_is_seen_and_tried_again(
        self, session: Session, during: Callable[[Callable[[], Any]], None]
    ) -> None:
        calls: list[int] = []

        def rewind_once() -> None:
            calls.append(1)
            if len(calls) == 1:
                append(session, user("other way", uuid="rewind", parent_uuid="b35"))

        during(rewind_once)
        run = execute(queue(session))
        assert run.status == RunStatus.SUCCEEDED
        assert len(calls) == 2
        assert [step.link for step in run.steps.all()] == ["session_memory", "time_based", "cache_edits", "full"], (
            "of the second try"
        )
        assert run.boundary is not None
        assert "please do step 38" not in run.boundary.summary

    def test_a_cancelled_run_stores_nothing(
        self, session: Session, during: Callable[[Callable[[], Any]], None]
    ) -> None:
        run = queue(session)

        def cancel() -> None:
            CompactionRun.objects.filter(pk=run.pk).update(
                status=RunStatus.CANCELLED, lease_expires_at=None, finished_at=timezone.now()
            )

        during(cancel)
        runs.execute(run_id=run.pk)
        run.refresh_from_db()
        assert run.status == RunStatus.CANCELLED
        assert not CompactBoundary.objects.exists()

    def test_messages_between_the_reading_of_session_and_view_are_in_the_summary(
        self, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read = selectors.context_view

        def racing(*, session: Session) -> Any:
            monkeypatch.undo()
            append(Session.objects.get(pk=session.pk), user("REMEMBER 4711", uuid="late"), *turns(40, start=40))
            return read(session=session)

        monkeypatch.setattr(selectors, "context_view", racing)
        run = execute(queue(session))
        assert run.boundary is not None
        assert run.boundary.covers_to > 160
        assert "REMEMBER 4711" in run.boundary.summary


class TestRecover:
    def test_a_fresh_run_is_left_to_the_queue(self, session: Session) -> None:
        queue(session)
        assert runs.recover(now=timezone.now()) == []

    def test_a_run_that_was_not_delivered_is_handed_out(self, session: Session) -> None:
        run = queue(session)
        later = timezone.now() + timedelta(seconds=Policy().hand_out_again_seconds + 1)
        assert runs.recover(now=later) == [run.pk]
        assert runs.recover(now=later) == [], "once is enough for a while"

    def test_a_new_broker_gets_all_that_is_queued(self, session: Session) -> None:
        run = queue(session)
        assert runs.recover(now=timezone.now(), broker_is_new=True) == [run.pk]

    def test_a_run_that_was_given_back_often_is_not_lost(self, session: Session) -> None:
        run = queue(session)
        for _ in range(Policy().run_attempts):
            held = runs.claim(run_id=run.pk, now=timezone.now())
            assert held is not None
            runs.give_back(held=held)
        assert runs.claim(run_id=run.pk, now=timezone.now() - timedelta(hours=1)) is not None
        assert runs.recover(now=timezone.now()) == [run.pk]

    def test_a_live_lease_is_respected(self, session: Session) -> None:
        run = queue(session)
        assert runs.claim(run_id=run.pk, now=timezone.now()) is not None
        assert runs.recover(now=timezone.now() + timedelta(seconds=Policy().lease_seconds - 5)) == []

    def test_a_worker_that_is_lost_again_and_again_ends_the_run(self, session: Session) -> None:
        run = queue(session)
        now = timezone.now()
        for _ in range(Policy().run_attempts):
            assert runs.claim(run_id=run.pk, now=now) is not None
            now += timedelta(hours=1)
            runs.recover(now=now)
        run.refresh_from_db()
        assert (run.status, run.failure_reason) == (RunStatus.FAILED, "worker_lost")
        queue(session)  # and the session is free again

    @pytest.mark.parametrize("lost", [0, Policy().run_attempts - 1])
    def test_a_worker_that_tells_of_itself_meanwhile_keeps_its_run(
        self, session: Session, lost: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between the sweep's look and its writing the lease is renewed."""
        run, now = queue(session), timezone.now()
        CompactionRun.objects.update(attempts=[{"outcome": runs.LOST}] * lost)
        held = runs.claim(run_id=run.pk, now=now - timedelta(hours=1))
        assert held is not None
        policy = selectors.effective_policy

        def renewing(**given: Any) -> Any:
            CompactionRun.objects.update(lease_expires_at=now + timedelta(minutes=1))
            return policy(**given)

        monkeypatch.setattr(selectors, "effective_policy", renewing)
        assert runs.recover(now=now) == []
        run.refresh_from_db()
        assert (run.status, run.claim_token) == (RunStatus.RUNNING, held.token)

    def test_a_worker_that_comes_back_after_its_run_was_ended_stores_nothing(
        self, session: Session, during: Callable[[Callable[[], Any]], None]
    ) -> None:
        run = queue(session)
        CompactionRun.objects.update(attempts=[{"outcome": runs.LOST}] * Policy().run_attempts)
        during(lambda: runs.recover(now=timezone.now() + timedelta(hours=1)))
        runs.execute(run_id=run.pk)
        run.refresh_from_db()
        assert (run.status, run.failure_reason) == (RunStatus.FAILED, "worker_lost")
        assert not CompactBoundary.objects.exists()

    def test_given_back_on_an_orderly_stop(self, session: Session, during: Callable[[Callable[[], Any]], None]) -> None:
        def stop() -> None:
            raise SystemExit

        during(stop)
        run = queue(session)
        with pytest.raises(SystemExit):
            runs.execute(run_id=run.pk)
        run.refresh_from_db()
        assert (run.status, run.attempts[-1]["outcome"]) == (RunStatus.QUEUED, "given back")


class TestConstraints:
    @pytest.mark.parametrize(
        "values",
        [
            {"status": RunStatus.SUCCEEDED},
            {"status": RunStatus.FAILED},
            {"status": RunStatus.QUEUED, "failure_reason": "error"},
            {"status": RunStatus.RUNNING},
            {"status": RunStatus.QUEUED, "lease_expires_at": timezone.now()},
        ],
    )
    def test_states_that_can_not_be(self, session: Session, values: dict[str, Any]) -> None:
        with pytest.raises(IntegrityError), transaction.atomic():
            CompactionRun.objects.create(session=session, trigger="manual", queued_at=timezone.now(), **values)


class TestActionsAndTasks:
    def test_a_request_reaches_the_worker_on_commit(
        self, session: Session, settings: Any, django_capture_on_commit_callbacks: Any
    ) -> None:
        from celery import current_app

        current_app.conf.task_always_eager = True
        try:
            with django_capture_on_commit_callbacks(execute=True):
                run = actions.request_compaction(session=session, wanted=actions.Wanted(), now=timezone.now())
        finally:
            current_app.conf.task_always_eager = False
        run.refresh_from_db()
        assert run.status == RunStatus.SUCCEEDED

    def test_stopped_by_the_keyboard_nothing_stays_behind(self, session: Session) -> None:
        def stop(stage: str, fraction: float) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            actions.compact_now(session=session, wanted=actions.Wanted(), now=timezone.now(), listener=stop)
        assert CompactionRun.objects.get().status == RunStatus.CANCELLED

    def test_a_run_that_only_waits_is_done_here(self, session: Session) -> None:
        waiting = queue(session)
        run = actions.compact_now(
            session=session, wanted=actions.Wanted(), now=timezone.now(), listener=lambda stage, fraction: None
        )
        assert (run.pk, run.status) == (waiting.pk, RunStatus.SUCCEEDED)

    def test_a_run_that_started_by_itself_makes_room_for_a_persons_own(self, session: Session) -> None:
        """Its plan may end with a clearing, and it knows nothing of the instructions."""
        automatic = runs.queue_run(session=session, trigger="auto", instructions="", now=timezone.now())
        run = actions.compact_now(
            session=session,
            wanted=actions.Wanted(instructions="mind file_3"),
            now=timezone.now(),
            listener=lambda stage, fraction: None,
        )
        assert (run.trigger, run.instructions, run.status) == ("manual", "mind file_3", RunStatus.SUCCEEDED)
        assert run.boundary is not None
        assert (run.boundary.kind, run.boundary.trigger) == ("full", "manual")
        automatic.refresh_from_db()
        assert automatic.status == RunStatus.CANCELLED
        assert automatic.detail == "somebody asked for a compaction, which takes its place"

    def test_but_not_once_a_worker_has_it(self, session: Session) -> None:
        automatic = runs.queue_run(session=session, trigger="auto", instructions="", now=timezone.now())
        assert runs.claim(run_id=automatic.pk, now=timezone.now())
        with pytest.raises(runs.ActiveRun) as active:
            actions.compact_now(session=session, wanted=actions.Wanted(), now=timezone.now(), listener=lambda *_: None)
        assert (active.value.run, active.value.run.status) == (automatic, RunStatus.RUNNING)
        assert CompactionRun.objects.count() == 1

    def test_a_queue_that_is_down_keeps_the_run_for_the_next_sweep(
        self, session: Session, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
    ) -> None:
        def down(**_: Any) -> None:
            raise OperationalError("connection refused")

        monkeypatch.setattr(tasks.compact_session, "delay", down)
        with django_capture_on_commit_callbacks(execute=True):
            run = actions.request_compaction(session=session, wanted=actions.Wanted(), now=timezone.now())
        assert runs.recover(now=timezone.now()) == [run.pk]

    def test_tasks_ignore_what_they_do_not_know(self, session: Session) -> None:
        run = queue(session)
        tasks.compact_session(run_id=run.pk, from_a_newer_release=True)
        run.refresh_from_db()
        assert run.status == RunStatus.SUCCEEDED

    def test_compact_now_runs_here(self, session: Session) -> None:
        run = actions.compact_now(
            session=session,
            wanted=actions.Wanted(instructions="mind file_3"),
            now=timezone.now(),
            listener=lambda stage, fraction: None,
        )
        assert run.status == RunStatus.SUCCEEDED
        assert run.boundary is not None
        assert "mind file_3" in run.boundary.summary
