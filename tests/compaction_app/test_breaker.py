"""The breaker in the database: what runs, levels and resets do to it, and what is told of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from compaction_app import actions, selectors
from compaction_app.engine.breaker import OpenedBy
from compaction_app.engine.outcome import RunErrored
from compaction_app.engine.ports import Progress, SummaryRequest, SummaryResult
from compaction_app.engine.summary import heading
from compaction_app.llm import factory
from compaction_app.llm.extractive import ExtractiveSummarizer
from compaction_app.models import CompactionRun, CompactionState, Decision, TelemetryEvent
from compaction_app.services import breaker, runs
from sessions_app.models import Session
from sessions_app.services.sessions import update_session
from sessions_app.transcript.window import Level
from tests.build import use
from tests.factories import append, assistant, make_session, turns, user
from tests.pressure import FIGURES, TURNS_BELOW, Clock, FailingSummarizer, almost_full, answer, execute, failed_ever

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timezone, "now", clock)
    return clock


@pytest.fixture
def session() -> Session:
    return almost_full()


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setitem(factory.SUMMARIZERS, "extractive", FailingSummarizer)
    return monkeypatch


def fail_three_times(session: Session, clock: Clock) -> None:
    for _ in range(3):
        assert execute(answer(session, now=clock.now).run).failure_reason == "no_summary"


def events(name: str = "") -> list[TelemetryEvent]:
    found = TelemetryEvent.objects.filter(name__startswith=name or "breaker_").order_by("id")
    return list(found)


def state(session: Session) -> selectors.TokenState:
    return selectors.token_state(session=Session.objects.get(pk=session.pk))


@pytest.mark.usefixtures("failing")
class TestFailures:
    def test_it_works(self, session: Session, clock: Clock) -> None:
        """Three failing runs open it and no fourth is requested; a reset closes it."""
        fail_three_times(session, clock)
        assert answer(session).run is None
        assert CompactionRun.objects.count() == 3
        told = state(session)
        assert (told.breaker_open, told.consecutive_failures) == (True, 3)
        assert told.detail == (
            "breaker open since 2026-11-03 09:00 UTC after 3 failures in a row (the last: no_summary); "
            "one try is allowed from 10:00 UTC on, or reset it"
        )
        assert actions.reset_breaker(session=session, now=clock.now) is True
        told = state(session)
        assert (told.breaker_open, told.consecutive_failures, told.detail) == (False, 0, None)
        assert answer(session).run is not None

    def test_an_event_when_it_opens_and_one_when_it_closes(
        self, session: Session, clock: Clock, django_user_model: Any
    ) -> None:
        fail_three_times(session, clock)
        answer(session)
        user = django_user_model.objects.create(username="bob")
        actions.reset_breaker(session=session, now=clock.move(minutes=5), by=user)
        opened, closed = events()
        assert (opened.name, opened.session, opened.team_id) == ("breaker_opened", session, session.team_id)
        assert opened.payload["opened_by"] == "failures"
        assert (opened.payload["consecutive_failures"], opened.payload["last_failure"]) == (3, "no_summary")
        assert (closed.name, closed.at) == ("breaker_closed", clock.now)
        assert (closed.payload["cause"], closed.payload["by"]) == ("reset", user.pk)

    def test_after_the_cool_down_one_try(self, session: Session, clock: Clock) -> None:
        fail_three_times(session, clock)
        assert answer(session, now=clock.move(minutes=59)).run is None
        turn = answer(session, now=clock.move(minutes=1))
        assert Decision.objects.order_by("-id")[0].why.startswith("10,")
        assert "the one try after the cool-down" in Decision.objects.order_by("-id")[0].why
        clock.move(minutes=10)
        assert execute(turn.run).failure_reason == "no_summary"
        assert answer(session, now=clock.move(minutes=59)).run is None, "its failure begins the cool-down anew"
        assert answer(session, now=clock.move(minutes=1)).run is not None
        assert len(events()) == 1, "it has been open all the time"

    def test_the_try_that_helps_closes_it(self, session: Session, clock: Clock, failing: pytest.MonkeyPatch) -> None:
        fail_three_times(session, clock)
        failing.setitem(factory.SUMMARIZERS, "extractive", ExtractiveSummarizer)
        execute(answer(session, now=clock.move(hours=1)).run)
        told = state(session)
        assert (told.breaker_open, told.consecutive_failures, told.level) == (False, 0, Level.OK)
        assert [event.name for event in events()] == ["breaker_opened", "breaker_closed"]
        assert events()[1].payload["cause"] == "success"

    def test_the_try_is_used_up_when_it_is_requested(self, session: Session, clock: Clock) -> None:
        fail_three_times(session, clock)
        run = answer(session, now=clock.move(hours=1)).run
        assert run is not None
        runs.cancel_queued(run=run, now=clock.now)
        assert answer(session, now=clock.now).run is None

    def test_a_try_that_could_not_be_queued_is_not_used_up(self, session: Session, clock: Clock) -> None:
        fail_three_times(session, clock)
        clock.move(hours=1)
        manual = actions.request_compaction(session=session, wanted=actions.Wanted(), now=clock.now)
        assert answer(session, now=clock.now).run is None
        runs.cancel_queued(run=manual, now=clock.now)
        assert answer(session, now=clock.now).run is not None

    def test_by_hand_it_pushes_no_automatic_try_away(self, session: Session, clock: Clock) -> None:
        fail_three_times(session, clock)
        execute(actions.request_compaction(session=session, wanted=actions.Wanted(), now=clock.move(minutes=59)))
        told = state(session)
        assert told.consecutive_failures == 4
        assert told.breaker_opened_at == clock.now - timedelta(minutes=59), "open since its first opening"
        assert answer(session, now=clock.move(minutes=1)).run is not None

    def test_nor_does_a_run_by_hand_that_does_not_help(
        self, session: Session, clock: Clock, failing: pytest.MonkeyPatch
    ) -> None:
        fail_three_times(session, clock)
        failing.setitem(factory.SUMMARIZERS, "extractive", ExtractiveSummarizer)
        update_session(session=session, values={"policy_overrides": {"least_freed_share": 1.0}})
        execute(actions.request_compaction(session=session, wanted=actions.Wanted(), now=clock.move(minutes=59)))
        told = state(session)
        assert (told.breaker_open, told.consecutive_ineffective) == (True, 1)
        assert told.breaker_retry_at == clock.now + timedelta(minutes=1)

    def test_a_try_that_runs_is_told_as_what_it_is(self, session: Session, clock: Clock) -> None:
        fail_three_times(session, clock)
        run = answer(session, now=clock.move(hours=1)).run
        assert run is not None
        assert answer(session, now=clock.move(minutes=1)).run is None
        decision = Decision.objects.order_by("-id")[0]
        assert (decision.outcome, decision.why) == ("active_run", f"run {run.uuid} is queued")

    def test_by_hand_it_always_works(self, session: Session, clock: Clock, failing: pytest.MonkeyPatch) -> None:
        fail_three_times(session, clock)
        run = actions.request_compaction(session=session, wanted=actions.Wanted(), now=clock.now)
        assert execute(run).failure_reason == "no_summary"
        assert state(session).consecutive_failures == 4, "runs of every trigger count"
        failing.setitem(factory.SUMMARIZERS, "extractive", ExtractiveSummarizer)
        execute(actions.request_compaction(session=session, wanted=actions.Wanted(), now=clock.now))
        assert state(session).breaker_open is False

    def test_failures_by_hand_open_it_too(self, session: Session, clock: Clock) -> None:
        for _ in range(3):
            execute(actions.request_compaction(session=session, wanted=actions.Wanted(), now=clock.now))
        assert answer(session).run is None

    def test_the_limits_are_the_sessions_own_figures(self, clock: Clock) -> None:
        session = almost_full(breaker_failures=1, breaker_cooldown_seconds=60)
        execute(answer(session).run)
        assert answer(session, now=clock.move(seconds=59)).run is None
        assert answer(session, now=clock.move(seconds=1)).run is not None


class TestEveryEnd:
    def test_nothing_is_remembered_of_a_session_whose_runs_succeed(self, session: Session) -> None:
        execute(answer(session).run)
        assert not failed_ever()

    def test_a_bug_is_a_failure(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        def boom(**_: Any) -> None:
            raise RuntimeError("disk full")

        monkeypatch.setattr("compaction_app.telemetry.emit_compact", boom)
        run = answer(session).run
        with pytest.raises(RunErrored):
            execute(run)
        assert (state(session).consecutive_failures, CompactionState.objects.get().last_failure) == (1, "error")

    def test_a_worker_that_is_lost_is_a_failure(self, session: Session, clock: Clock) -> None:
        session.policy_overrides["run_attempts"] = 1
        session.save()
        run = answer(session).run
        assert run is not None
        assert runs.claim(run_id=run.pk, now=clock.now)
        runs.recover(now=clock.move(hours=1))
        assert CompactionState.objects.get().last_failure == "worker_lost"

    def test_a_view_that_went_stale_is_none(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = iter(range(9))

        class Raced(ExtractiveSummarizer):
            def summarize(self, **given: Any) -> Any:
                append(session, user("other way", uuid=f"rewind{next(calls)}", parent_uuid="b15"))
                return ExtractiveSummarizer.summarize(self, **given)

        monkeypatch.setitem(factory.SUMMARIZERS, "extractive", Raced)
        assert execute(answer(session).run).failure_reason == "stale_view"
        assert not failed_ever()

    def test_a_success_sets_back_failures(self, session: Session, failing: pytest.MonkeyPatch) -> None:
        for _ in range(2):
            execute(answer(session).run)
        failing.setitem(factory.SUMMARIZERS, "extractive", ExtractiveSummarizer)
        execute(answer(session).run)
        assert (state(session).consecutive_failures, events()) == (0, [])

    def test_what_could_not_be_stored_changes_nothing(
        self, session: Session, clock: Clock, failing: pytest.MonkeyPatch
    ) -> None:
        def boom(**_: Any) -> None:
            raise RuntimeError("disk full")

        for _ in range(2):
            execute(answer(session).run)
        run = answer(session).run
        failing.setattr("compaction_app.telemetry.emit_breaker_opened", boom)
        with pytest.raises(RuntimeError):
            execute(run)
        assert state(session).consecutive_failures == 2
        assert CompactionRun.objects.filter(status="running").count() == 1, "and the sweep takes the run up again"


class TestIneffective:
    """Decision 9: the outcome counts, not the call's success."""

    @pytest.fixture
    def hopeless(self, session: Session) -> Session:
        """So small a window that no summary fits below its threshold, 2,000 tokens."""
        update_session(session=session, values={"policy_overrides": {"context_window": 4_000}})
        session.refresh_from_db()
        return session

    def test_three_that_leave_it_over_the_threshold_open_it(self, hopeless: Session, clock: Clock) -> None:
        for number in range(3):
            append(hopeless, *turns(8, start=100 + 10 * number))
            run = execute(answer(hopeless, now=clock.now).run)
            assert run.status == "succeeded"
        told = state(hopeless)
        assert told.level is Level.AUTO_COMPACT
        assert (told.breaker_open, told.breaker_opened_by) == (True, OpenedBy.INEFFECTIVE)
        assert (told.consecutive_ineffective, told.consecutive_failures) == (3, 0)
        append(hopeless, *turns(8, start=200))
        assert answer(hopeless, now=clock.now).run is None
        assert [event.payload["opened_by"] for event in events()] == ["ineffective"]

    def test_one_that_frees_too_little_counts(self, clock: Clock) -> None:
        session = almost_full(least_freed_share=0.95)
        execute(answer(session).run)
        told = state(session)
        assert (told.level, told.consecutive_ineffective) == (Level.OK, 1)

    def test_one_for_bytes_is_judged_by_the_bytes_that_are_left(self) -> None:
        figures = {**FIGURES, "context_window": 200_000, "auto_compact_bytes": 100_000}
        session = make_session(policy_overrides=figures)
        append(session, *turns(12, size=8_000))
        assert (session.level, session.view_bytes > 100_000) == ("auto_compact", True)
        execute(answer(session).run)
        session.refresh_from_db()
        assert (session.level, session.view_bytes < 100_000) == ("ok", True)
        assert not failed_ever()

    def test_what_came_while_it_ran_is_no_fault_of_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Before and after are of the same messages, or a long answer meanwhile would make each run ineffective."""
        session = make_session()
        append(session, *turns(TURNS_BELOW))
        before = session.view_tokens

        class Slow(ExtractiveSummarizer):
            def summarize(self, **given: Any) -> Any:
                append(session, user("word " * 12_000))
                return ExtractiveSummarizer.summarize(self, **given)

        monkeypatch.setitem(factory.SUMMARIZERS, "extractive", Slow)
        execute(actions.request_compaction(session=session, wanted=actions.Wanted(), now=timezone.now()))
        session.refresh_from_db()
        assert session.view_tokens > before
        assert not failed_ever()

    def test_a_usage_that_is_reported_wrongly_makes_no_run_ineffective(self, session: Session) -> None:
        """Decision 8: the usage says 2,000 tokens where 10,000 are shown; what is left is more than the usage said."""
        append(session, *turns(2, start=90))
        answer(session, "ok", usage={"input_tokens": 1_990, "output_tokens": 10}, message_id="m")
        assert session.context_tokens == 2_000
        run = execute(actions.request_compaction(session=session, wanted=actions.Wanted(), now=timezone.now()))
        assert run.tokens_after is not None
        assert run.tokens_after > 2_000
        assert not failed_ever()


class TestNothingToCompact:
    @pytest.fixture
    def waiting(self) -> Session:
        """Over its threshold, and its only round still waits for a tool's result: there is no legal cut."""
        session = make_session(policy_overrides=FIGURES, system="be brief " * 50)
        append(session, assistant([use("c", text="word " * 12_000)], message_id="m"))
        assert session.level == "auto_compact"
        return session

    def test_it_is_no_failure_and_is_not_asked_again_at_every_append(self, waiting: Session) -> None:
        run = execute(answer(waiting, [use("d")], message_id="m").run)
        assert run.failure_reason == "nothing_to_compact"
        assert CompactionState.objects.get().nothing_at_tokens == waiting.view_tokens < waiting.context_tokens
        assert answer(waiting, [use("e")], message_id="m").run is None
        told = state(waiting)
        assert (told.consecutive_failures, told.breaker_open) == (0, False)
        assert "a run found nothing to compact, or nothing that was accepted, in the 1" in (told.detail or "")
        assert Decision.objects.order_by("-id")[0].outcome == "nothing_to_compact"
        much = [use("f", text="word " * 2_500)]
        assert answer(waiting, much, message_id="m").run is not None, "2,000 tokens more are shown"

    def test_a_run_by_hand_that_looks_again_is_told_as_what_it_is(self, waiting: Session, clock: Clock) -> None:
        execute(answer(waiting, [use("d")], message_id="m").run)
        runs.queue_run(session=waiting, trigger="manual", instructions="", now=clock.now)
        assert answer(waiting, [use("e")], message_id="m").run is None
        assert Decision.objects.order_by("-id")[0].outcome == "active_run"

    def test_a_usage_that_grows_alone_makes_it_not_look_again(self, waiting: Session) -> None:
        """The prompts of a client that did not give its history grow, and no compaction of ours could help that."""
        update_session(session=waiting, values={"policy_overrides": {"largest_overhead_tokens": 0}})
        run = execute(answer(waiting, [use("d")], message_id="m").run)
        assert run.failure_reason == "nothing_to_compact"
        for number in range(1, 4):
            usage = {"input_tokens": 20_000 + 3_000 * number, "output_tokens": 10}
            turn = answer(waiting, [use(f"e{number}")], message_id=f"m{number}", usage=usage)
            assert waiting.context_tokens > 20_000 + 3_000 * number
            assert turn.run is None
        assert set(Decision.objects.order_by("-id").values_list("outcome", flat=True)[:3]) == {"nothing_to_compact"}

    def test_a_summary_that_would_not_be_smaller_is_no_failure_either(
        self, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Wordy:
            def summarize(self, *, request: SummaryRequest, progress: Progress) -> SummaryResult:
                text = "\n".join(f"{heading(number)}\n- {'word ' * 2_000}" for number in range(1, 10))
                return SummaryResult(text=text, summarizer="wordy")

        monkeypatch.setitem(factory.SUMMARIZERS, "extractive", Wordy)
        assert execute(answer(session).run).failure_reason == "not_smaller"
        assert answer(session).run is None
        assert Decision.objects.order_by("-id")[0].outcome == "nothing_to_compact"
        told = state(session)
        assert (told.consecutive_failures, told.breaker_open) == (0, False)
        append(session, *turns(5, start=100))
        assert answer(session).run is not None, "2,000 tokens more are shown"

    def test_a_reset_lets_it_look_again(self, waiting: Session, clock: Clock) -> None:
        execute(answer(waiting, [use("d")], message_id="m").run)
        assert actions.reset_breaker(session=waiting, now=clock.now) is False
        assert events() == []
        assert answer(waiting, [use("e")], message_id="m").run is not None


class TestUnreachable:
    @pytest.fixture
    def crowded(self) -> Session:
        """T9: 29,000 tokens of system prompt and tools on a window of 32,768."""
        session = make_session(policy_overrides={"context_window": 32_768})
        session.overhead_tokens, session.overhead_measured, session.overhead_due = 29_000, True, False
        session.save()
        return session

    def test_no_run_is_requested_and_the_overhead_is_named(self, crowded: Session, clock: Clock) -> None:
        assert answer(crowded).run is None
        assert not CompactionRun.objects.exists()
        told = state(crowded)
        assert (told.level, told.breaker_open, told.breaker_opened_by) == (
            Level.UNREACHABLE,
            True,
            OpenedBy.UNREACHABLE,
        )
        assert (told.breaker_retry_at, told.overhead_tokens) == (None, 29_000)
        assert "system prompt and tools alone take 29,000 tokens" in (told.detail or "")
        assert "threshold of 6,384" in (told.detail or "")

    def test_it_is_told_before_any_decision_and_after_a_reset(self, crowded: Session, clock: Clock) -> None:
        def told_since() -> Any:
            told = state(crowded)
            assert (told.breaker_open, told.breaker_opened_by) == (True, OpenedBy.UNREACHABLE)
            assert "system prompt and tools" in (told.detail or "")
            assert selectors.breaker_state(session=Session.objects.get(pk=crowded.pk)).is_open
            return told.breaker_opened_at

        update_session(session=crowded, values={"policy_overrides": {"context_window": 32_000}})
        assert told_since() is None, "nobody has decided yet"
        answer(crowded, now=clock.now)
        assert told_since() == clock.now
        actions.reset_breaker(session=crowded, now=clock.now)
        assert told_since() is None

    def test_it_is_not_told_any_more_once_the_threshold_is_reachable(self, crowded: Session) -> None:
        answer(crowded)
        assert CompactionState.objects.get().opened_by == "unreachable"
        update_session(session=crowded, values={"policy_overrides": {"context_window": 200_000}})
        told = state(crowded)
        assert (told.level, told.breaker_open, told.breaker_opened_by, told.breaker_opened_at, told.detail) == (
            Level.OK,
            False,
            None,
            None,
            None,
        )
        assert not selectors.breaker_state(session=Session.objects.get(pk=crowded.pk)).is_open

    def test_whatever_opened_it_first(self, crowded: Session, clock: Clock) -> None:
        CompactionState.objects.create(
            session=crowded, consecutive_failures=3, opened_at=clock.now, opened_by="failures"
        )
        told = state(crowded)
        assert (told.breaker_opened_by, told.breaker_opened_at) == (OpenedBy.UNREACHABLE, clock.now)
        assert told.breaker_retry_at is None, "no try could help"
        answer(crowded)
        assert CompactionState.objects.get().opened_by == "failures", "and is told again once it is reachable"

    def test_it_opens_at_the_first_decision_only(self, crowded: Session, clock: Clock) -> None:
        for _ in range(3):
            answer(crowded, now=clock.move(hours=2))
        assert [event.name for event in events()] == ["breaker_opened"]
        assert CompactionState.objects.get().opened_at == events()[0].at == clock.now - timedelta(hours=4)
        assert set(Decision.objects.values_list("outcome", flat=True)) == {"unreachable"}

    def test_the_append_that_opens_it_says_so(self, crowded: Session) -> None:
        turn = answer(crowded)
        assert selectors.token_state(session=turn.session).breaker_open is True

    def test_it_closes_by_itself_once_the_threshold_is_reachable(self, crowded: Session, clock: Clock) -> None:
        answer(crowded)
        update_session(session=crowded, values={"policy_overrides": {"context_window": 200_000}})
        append(crowded)
        actions.append_turn(session=crowded, incoming=[user("more")], now=clock.move(minutes=1))
        assert state(crowded).breaker_open is False
        closed = events()[1]
        assert (closed.name, closed.payload["cause"], closed.at) == ("breaker_closed", "reachable", clock.now)
        answer(crowded)
        assert len(events()) == 2

    def test_with_compaction_off_nothing_is_opened(self, crowded: Session) -> None:
        update_session(session=crowded, values={"policy_overrides": {"compaction_enabled": False}})
        answer(crowded)
        assert not failed_ever()


class TestReset:
    def test_again_changes_nothing(self, session: Session, clock: Clock) -> None:
        for _ in range(2):
            assert actions.reset_breaker(session=session, now=clock.now) is False
        assert (CompactionState.objects.count(), events()) == (0, [])

    def test_what_lands_just_before_its_lock_is_forgotten_too(
        self, session: Session, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The state is read under the session's lock, or a run that fails at the same moment would open it anew."""
        lock = breaker.lock_session

        def third_failure(*, session_id: int) -> Session:
            CompactionState.objects.create(
                session_id=session_id, consecutive_failures=3, opened_at=clock.now, opened_by="failures"
            )
            return lock(session_id=session_id)

        monkeypatch.setattr(breaker, "lock_session", third_failure)
        assert actions.reset_breaker(session=session, now=clock.now) is True
        told = state(session)
        assert (told.breaker_open, told.consecutive_failures) == (False, 0)


class TestConstraint:
    @pytest.mark.parametrize("values", [{"opened_by": "failures"}, {"opened_at": timezone.now()}])
    def test_open_has_a_moment_and_a_cause(self, values: Any) -> None:
        with pytest.raises(IntegrityError), transaction.atomic():
            CompactionState.objects.create(session=make_session(), **values)
