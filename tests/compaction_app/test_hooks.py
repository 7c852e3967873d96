"""Hooks: asked before a compaction, told after it, at least once; signals for code in the same process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from compaction_app import signals, tasks
from compaction_app.engine.outcome import CompactionCancelled, CompactionRefused, FailureReason
from compaction_app.models import CompactionRun, Hook, HookDelivery, HookEvent, TelemetryEvent
from compaction_app.services import hooks, runs
from compaction_app.services.hook_setup import MOST_HOOKS, BadHook, create_hook, make_secret, update_hook
from sessions_app.models import Session
from tests.factories import append, make_session, make_team, turns, user
from tests.hook_receiver import Answering, Receiver, receiver, says

Status = HookDelivery.Status
pytestmark = pytest.mark.django_db
SECRET_TEXT = "the launch code is 4711"


@pytest.fixture
def here(settings: Any) -> Iterator[Receiver]:
    settings.HOOKS_ALLOW_PRIVATE_ADDRESSES = True
    with receiver() as made:
        yield made


@pytest.fixture
def session() -> Session:
    return make_session(make_team("red"), title="Fix the parser", external_id="ext-1")


@pytest.fixture
def connected() -> Iterator[Callable[..., None]]:
    """Connects receivers of signals for one test."""
    made: list[tuple[Any, Any]] = []

    def connect(signal: Any, receiver: Any) -> None:
        signal.connect(receiver, weak=False)
        made.append((signal, receiver))

    yield connect
    for signal, one in made:
        signal.disconnect(one)


def add_hook(session: Session, here: Receiver, event: str = HookEvent.PRE_COMPACT, **values: Any) -> Hook:
    given = {"url": here.url, "secret": here.secret, "team": session.team, "event": event}
    return Hook.objects.create(**(given | values))


def down(session: Session, **values: Any) -> Hook:
    """A hook that nobody answers at."""
    values = {"event": HookEvent.PRE_COMPACT, "url": "http://127.0.0.1:9/", "secret": make_secret(), **values}
    return Hook.objects.create(team=session.team, **values)


def ask(session: Session, run: CompactionRun | None = None, **more: Any) -> str:
    given: dict[str, Any] = {"trigger": "manual", "tokens": 1_234, "instructions": "keep the names"}
    return hooks.ask_pre_compact(run=run, session=session, now=timezone.now(), **(given | more))


def queue(session: Session) -> CompactionRun:
    return runs.queue_run(session=session, trigger="manual", instructions="keep the names", now=timezone.now())


def tell(session: Session, now: datetime, **payload: Any) -> list[int]:
    return hooks.tell(event=HookEvent.POST_COMPACT, session=session, run=None, payload=payload, now=now)


class TestAsking:
    def test_without_hooks_it_costs_one_query(self, session: Session, django_assert_num_queries: Any) -> None:
        with django_assert_num_queries(1):
            assert ask(session) == ""
        assert not HookDelivery.objects.exists()

    def test_what_is_asked_and_what_is_logged(self, session: Session, here: Receiver) -> None:
        hook, run = add_hook(session, here), queue(session)
        here.answer = says({"instructions": "mind the port numbers"})
        assert ask(session, run) == "mind the port numbers"
        row = HookDelivery.objects.get()
        [(webhook_id, body)] = here.got
        assert webhook_id == str(row.uuid) == body["id"]
        assert row.payload == body
        assert body["type"] == "pre_compact"
        assert body["data"] == {
            "team": "red",
            "session": {
                "id": str(session.uuid),
                "external_id": "ext-1",
                "title": "Fix the parser",
                "url": f"/api/v1/sessions/{session.uuid}/",
            },
            "run": {"id": str(run.uuid), "url": f"/api/v1/runs/{run.uuid}/"},
            "trigger": "manual",
            "tokens_before": 1_234,
            "instructions": "keep the names",
        }
        assert (row.hook, row.run, row.status, row.tries, row.http_status) == (hook, run, Status.DELIVERED, 1, 200)
        assert row.detail == "gave instructions of 21 characters"

    def test_all_are_asked_in_order_and_joined(self, session: Session, here: Receiver) -> None:
        for number in (1, 2, 3):
            add_hook(session, here, url=f"{here.url}&n={number}")
        here.answer = lambda handler: says({"instructions": f"rule {handler.path[-1]}"})(handler)
        assert ask(session) == "rule 1\nrule 2\nrule 3"

    def test_others_are_not_asked(self, session: Session, here: Receiver) -> None:
        add_hook(session, here, enabled=False)
        add_hook(session, here, event=HookEvent.POST_COMPACT)
        add_hook(make_session(), here)
        assert ask(session) == ""
        assert here.got == []

    def test_instructions_are_plain_and_bounded(self, session: Session, here: Receiver) -> None:
        add_hook(session, here)
        here.answer = says({"instructions": "a\x00b\x1b[31m\ud800\u202e\r\n" + "x" * 10_000})
        told = ask(session)
        assert told.startswith("ab[31m\nxxx")
        assert len(told) == 4_000

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            ({"refuse": "not now"}, ": not now"),
            ({"refuse": True}, ", without a reason"),
            ({"refuse": True, "reason": "not now"}, ": not now"),
            ({"decision": "block", "reason": "not now"}, ": not now"),
            ({"decision": "block"}, ", without a reason"),
            ({"decision": "block", "reason": "\x1b" + "x" * 1_000, "instructions": "y"}, ": " + "x" * 500),
        ],
    )
    def test_a_refusal(self, session: Session, here: Receiver, body: Any, reason: str) -> None:
        hook = add_hook(session, here, can_block=True)
        here.answer = says(body)
        with pytest.raises(CompactionRefused) as refused:
            ask(session)
        assert refused.value.reason is FailureReason.REFUSED_BY_HOOK
        assert refused.value.detail == "refused by 127.0.0.1" + reason
        assert "token" not in refused.value.detail
        update_hook(hook=hook, values={"can_block": False})
        ask(session)
        assert "may not" in HookDelivery.objects.latest("pk").detail

    @pytest.mark.parametrize(
        "body", [{}, {"refuse": None}, {"refuse": ""}, {"refuse": False}, {"decision": "approve", "reason": "x"}]
    )
    def test_no_refusal(self, session: Session, here: Receiver, body: Any) -> None:
        add_hook(session, here, can_block=True)
        here.answer = says(body)
        assert ask(session) == ""

    @pytest.mark.parametrize(
        ("answer", "problem"),
        [
            (says(raw=b"<html>secret"), "its answer is no JSON"),
            (says(raw=b"\xff\xfe"), "its answer is no JSON"),
            (says(raw=b"[" * 50_000), "its answer is no JSON"),
            (says(["refuse"]), "its answer is no JSON object"),
            (says({"instructions": ["x"]}), '"instructions" of its answer is no string'),
            (says({"refuse": {"a": 1}}), '"refuse" of its answer is neither a string nor true or false'),
            (says({"instructions": "x" * 70_000}), "its answer is longer than 65,536 bytes"),
            (says({"instructions": "x"}, status=500), "HTTP 500"),
            (says(status=301, Location="/"), "HTTP 301: redirects are not followed"),
        ],
    )
    def test_what_is_no_answer_is_passed_over_unless_it_is_required(
        self, session: Session, here: Receiver, answer: Answering, problem: str
    ) -> None:
        hook = add_hook(session, here, can_block=True)
        here.answer = answer
        assert ask(session) == ""
        row = HookDelivery.objects.get()
        assert (row.status, row.detail) == (Status.GIVEN_UP, problem)
        update_hook(hook=hook, values={"required": True})
        with pytest.raises(CompactionRefused) as refused:
            ask(session)
        assert refused.value.reason is FailureReason.HOOK_FAILED
        assert refused.value.detail == f"the required hook at 127.0.0.1 gave no answer: {problem}"

    def test_one_that_is_down_does_not_keep_back_the_others(self, session: Session, here: Receiver) -> None:
        down(session)
        add_hook(session, here)
        here.answer = says({"instructions": "x"})
        assert ask(session) == "x"

    def test_one_that_is_slow(self, session: Session, here: Receiver) -> None:
        add_hook(session, here, timeout=1)
        here.answer = lambda handler: (here.stopping.wait(5), None)[1]
        assert ask(session) == ""
        assert HookDelivery.objects.get().detail == "no whole answer within 1 seconds"

    def test_a_private_address_fails_like_one_that_is_down(
        self, session: Session, here: Receiver, settings: Any
    ) -> None:
        settings.HOOKS_ALLOW_PRIVATE_ADDRESSES = False
        add_hook(session, here)
        assert ask(session) == ""
        assert here.got == []
        assert HookDelivery.objects.get().detail == "its address is not public"

    def test_gone_switches_it_off_unless_it_stands_guard(self, session: Session, here: Receiver) -> None:
        plain, guard = add_hook(session, here), add_hook(session, here, required=True)
        here.answer = says(status=410)
        with pytest.raises(CompactionRefused):
            ask(session)
        plain.refresh_from_db()
        guard.refresh_from_db()
        assert (plain.enabled, guard.enabled) == (False, True)

    def test_the_run_is_told_that_it_goes_on_and_may_end_the_asking(self, session: Session, here: Receiver) -> None:
        for _ in range(3):
            add_hook(session, here)
        beats: list[int] = []

        def beat() -> None:
            beats.append(1)
            if len(beats) == 3:
                raise CompactionCancelled

        with pytest.raises(CompactionCancelled):
            ask(session, beat=beat)
        assert len(here.got) == HookDelivery.objects.count() == 2

    @pytest.mark.django_db(transaction=True)
    def test_a_hook_that_is_deleted_meanwhile_ends_no_run(self, session: Session, here: Receiver) -> None:
        hook = add_hook(session, here)
        here.answer = says({"instructions": "x"})
        assert ask(session, beat=lambda: Hook.objects.filter(pk=hook.pk).delete() and None) == "x"
        assert not HookDelivery.objects.exists()


class TestSignals:
    def test_a_receiver_adds_instructions_before_the_hooks(
        self, session: Session, here: Receiver, connected: Callable[..., None]
    ) -> None:
        add_hook(session, here)
        here.answer = says({"instructions": "second"})
        seen: list[dict[str, Any]] = []
        connected(signals.pre_compact, lambda **given: seen.append(given) or "first")
        assert ask(session) == "first\nsecond"
        assert {name: seen[0][name] for name in ("session", "run", "trigger", "tokens", "instructions")} == {
            "session": session,
            "run": None,
            "trigger": "manual",
            "tokens": 1_234,
            "instructions": "keep the names",
        }

    @pytest.mark.parametrize("how", ["raised", "returned"])
    def test_a_receiver_refuses(
        self, session: Session, connected: Callable[..., None], how: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        def refuse(**given: Any) -> signals.Refuse:
            if how == "raised":
                raise signals.Refuse("on holiday")
            return signals.Refuse("on holiday")

        connected(signals.pre_compact, refuse)
        with pytest.raises(CompactionRefused, match="refused by a receiver in this process: on holiday") as refused:
            ask(session)
        assert refused.value.reason is FailureReason.REFUSED_BY_HOOK
        assert caplog.text == ""

    def test_one_that_raises_hurts_nothing_and_its_words_are_not_logged(
        self, session: Session, connected: Callable[..., None], caplog: pytest.LogCaptureFixture
    ) -> None:
        def broken(**given: Any) -> None:
            raise ValueError(SECRET_TEXT)

        connected(signals.pre_compact, broken)
        connected(signals.pre_compact, lambda **given: 17)
        assert ask(session) == ""
        assert "ValueError" in caplog.text
        assert SECRET_TEXT not in caplog.text

    def test_what_has_happened_is_told_on_commit(
        self, session: Session, connected: Callable[..., None], django_capture_on_commit_callbacks: Any
    ) -> None:
        seen: list[dict[str, Any]] = []

        def broken(**given: Any) -> None:
            raise ValueError

        connected(signals.post_compact, broken)
        connected(signals.post_compact, lambda **given: seen.append(given))
        with django_capture_on_commit_callbacks(execute=True):
            tell(session, timezone.now(), tokens_before=9)
            assert seen == []
        assert (seen[0]["session"], seen[0]["payload"]) == (session, {"tokens_before": 9})


class TestTelling:
    def test_without_hooks_it_costs_one_query(self, session: Session, django_assert_num_queries: Any) -> None:
        with django_assert_num_queries(1):
            assert tell(session, timezone.now()) == []

    def test_it_goes_with_the_transaction(self, session: Session, here: Receiver) -> None:
        add_hook(session, here, HookEvent.POST_COMPACT)

        def failing() -> None:
            with transaction.atomic():
                assert len(tell(session, timezone.now())) == 1
                raise KeyError

        with pytest.raises(KeyError):
            failing()
        assert not HookDelivery.objects.exists()

    def test_only_what_is_named_is_told(self, session: Session, here: Receiver) -> None:
        add_hook(session, here, HookEvent.POST_COMPACT)
        run = queue(session)
        boundary = "6dcb4a8b-0000-4000-8000-000000000000"
        payload = {"tokens_before": 9, "summary": SECRET_TEXT, "boundary": boundary, "detail": "x" * 1_000}
        now = timezone.now()
        [pk] = hooks.tell(event="post_compact", session=session, run=run, payload=payload, now=now)
        row = HookDelivery.objects.get(pk=pk)
        assert SECRET_TEXT not in str(row.payload)
        data = row.payload["data"]
        assert data["boundary"] == {"id": boundary, "url": f"/api/v1/boundaries/{boundary}/"}
        assert (data["tokens_before"], len(data["detail"]), data["trigger"]) == (9, 500, "manual")
        assert (row.status, row.next_try_at, row.created_at, row.run) == (Status.WAITING, now, now, run)


class TestDelivering:
    @pytest.fixture
    def hook(self, session: Session, here: Receiver) -> Hook:
        return add_hook(session, here, HookEvent.POST_COMPACT)

    @pytest.fixture
    def delivery(self, session: Session, hook: Hook) -> HookDelivery:
        return HookDelivery.objects.get(pk=tell(session, timezone.now(), tokens_before=9)[0])

    def test_it_is_sent_once(self, delivery: HookDelivery, here: Receiver) -> None:
        now = timezone.now()
        hooks.deliver(delivery_id=delivery.pk, now=now)
        hooks.deliver(delivery_id=delivery.pk, now=now + timedelta(days=1))
        assert here.got == [(str(delivery.uuid), delivery.payload)]
        delivery.refresh_from_db()
        assert (delivery.status, delivery.finished_at, delivery.tries) == (Status.DELIVERED, now, 1)
        assert (delivery.http_status, delivery.next_try_at, delivery.detail) == (200, None, "")
        assert hooks.due(now=now + timedelta(days=1)) == []

    def test_a_slow_body_does_not_make_a_success_a_failure(self, delivery: HookDelivery, here: Receiver) -> None:
        def endless(handler: BaseHTTPRequestHandler) -> None:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n")
            here.stopping.wait(5)

        here.answer = endless
        hooks.deliver(delivery_id=delivery.pk, now=timezone.now())
        delivery.refresh_from_db()
        assert delivery.status == Status.DELIVERED

    def test_it_is_tried_again_with_growing_pauses_until_it_is_given_up(
        self, delivery: HookDelivery, here: Receiver
    ) -> None:
        here.answer = says({"secret": "s"}, status=503)
        now, pauses = timezone.now(), []
        for _ in range(7):
            hooks.deliver(delivery_id=delivery.pk, now=now)
            delivery.refresh_from_db()
            assert (delivery.status, delivery.detail, delivery.http_status) == (Status.WAITING, "HTTP 503", 503)
            assert delivery.next_try_at is not None
            pauses.append((delivery.next_try_at - now).total_seconds())
            hooks.deliver(delivery_id=delivery.pk, now=now)  # not due: nothing is sent
            HookDelivery.objects.update(next_try_at=now)  # the receiver takes no request from the future
        assert pauses == [5, 25, 125, 625, 3_125, 15_625, 21_600]
        hooks.deliver(delivery_id=delivery.pk, now=now)
        delivery.refresh_from_db()
        assert (delivery.status, delivery.tries, delivery.finished_at) == (Status.GIVEN_UP, 8, now)
        assert [webhook_id for webhook_id, _ in here.got] == [str(delivery.uuid)] * 8

    def test_it_gets_through_in_the_end(self, delivery: HookDelivery, here: Receiver) -> None:
        now = timezone.now()
        here.answer = says(status=302, Location="/")
        hooks.deliver(delivery_id=delivery.pk, now=now)
        here.answer = says(status=202)
        hooks.deliver(delivery_id=delivery.pk, now=now + timedelta(seconds=5))
        delivery.refresh_from_db()
        assert (delivery.status, delivery.tries, delivery.http_status) == (Status.DELIVERED, 2, 202)

    def test_a_worker_that_dies_between_sending_and_marking_makes_it_sent_again(
        self, delivery: HookDelivery, here: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = timezone.now()

        def die(**given: Any) -> None:
            raise SystemExit

        with monkeypatch.context() as patch:
            patch.setattr(hooks, "_settle", die)
            with pytest.raises(SystemExit):
                hooks.deliver(delivery_id=delivery.pk, now=now)
        assert hooks.due(now=now + timedelta(seconds=30)) == [], "the claim holds while the call may last"
        later = now + timedelta(minutes=1)
        assert hooks.due(now=later) == [delivery.pk]
        hooks.deliver(delivery_id=delivery.pk, now=later)
        assert [webhook_id for webhook_id, _ in here.got] == [str(delivery.uuid)] * 2
        delivery.refresh_from_db()
        assert (delivery.status, delivery.tries) == (Status.DELIVERED, 2)

    def test_a_worker_that_dies_on_the_last_try(self, delivery: HookDelivery, here: Receiver) -> None:
        HookDelivery.objects.update(tries=8)
        hooks.deliver(delivery_id=delivery.pk, now=timezone.now())
        delivery.refresh_from_db()
        assert (delivery.status, here.got) == (Status.GIVEN_UP, [])

    def test_two_workers_do_not_send_at_once(self, delivery: HookDelivery, here: Receiver) -> None:
        now = timezone.now()
        assert hooks._claim(delivery_id=delivery.pk, now=now) is not None
        hooks.deliver(delivery_id=delivery.pk, now=now)
        assert here.got == []

    def test_a_late_worker_does_not_undo_what_another_has_marked(self, delivery: HookDelivery, here: Receiver) -> None:
        now = timezone.now()

        held = hooks._claim(delivery_id=delivery.pk, now=now)
        assert held is not None
        HookDelivery.objects.filter(pk=delivery.pk).update(status=Status.DELIVERED, next_try_at=None, tries=2)
        hooks._settle(held=held, answer=hooks.hook_http.HookAnswer(status=500, problem="HTTP 500"), now=now)
        delivery.refresh_from_db()
        assert delivery.status == Status.DELIVERED

    def test_gone_switches_the_hook_off_and_what_waits_is_given_up(
        self, session: Session, hook: Hook, delivery: HookDelivery, here: Receiver
    ) -> None:
        [other] = tell(session, timezone.now())
        here.answer = says(status=410)
        for pk in (delivery.pk, other):
            hooks.deliver(delivery_id=pk, now=timezone.now())
        hook.refresh_from_db()
        assert (hook.enabled, len(here.got)) == (False, 1)
        told = HookDelivery.objects.order_by("pk").values_list("status", "detail")
        assert list(told) == [(Status.GIVEN_UP, "HTTP 410"), (Status.GIVEN_UP, "the hook is switched off")]

    def test_a_hook_that_is_deleted_takes_what_waits_with_it(self, hook: Hook, delivery: HookDelivery) -> None:
        hook.delete()
        hooks.deliver(delivery_id=delivery.pk, now=timezone.now())
        assert not HookDelivery.objects.exists()

    def test_the_sweep_hands_out_what_is_due_and_little_of_each_hook(
        self, session: Session, hook: Hook, here: Receiver
    ) -> None:
        other = add_hook(make_session(), here, HookEvent.POST_COMPACT)
        now = timezone.now()
        for _ in range(10):
            tell(session, now)
        [late] = hooks.tell(
            event="post_compact",
            session=make_session(other.team),
            run=None,
            payload={},
            now=now + timedelta(seconds=1),
        )
        assert len(hooks.due(now=now)) == 5
        assert hooks.due(now=now + timedelta(seconds=1))[-1] == late
        assert hooks.due(now=now, most=2) == hooks.due(now=now)[:2]

    def test_a_dead_queue_breaks_nothing(
        self, delivery: HookDelivery, monkeypatch: pytest.MonkeyPatch, eager_worker: None, here: Receiver
    ) -> None:
        def dead(**given: Any) -> None:
            raise ConnectionError

        with monkeypatch.context() as patch:
            patch.setattr(tasks.deliver_hook, "delay", dead)
            assert tasks.hand_out_left_behind(now=timezone.now()) == 0
        assert here.got == []
        tasks.hand_out_left_behind(now=timezone.now())
        assert len(here.got) == 1


class TestSettingUp:
    def test_rights_are_for_pre_compact_only(self, session: Session) -> None:
        values = {"url": "https://example.com/", "can_block": True, "required": True}
        with pytest.raises(BadHook) as bad:
            create_hook(team=session.team, event=HookEvent.POST_COMPACT, values=values)
        assert set(bad.value.problems) == {"can_block", "required"}
        assert create_hook(team=session.team, event=HookEvent.PRE_COMPACT, values=values).can_block

    def test_a_team_has_not_many(self, session: Session) -> None:
        for _ in range(MOST_HOOKS):
            create_hook(team=session.team, event="post_compact", values={"url": "https://example.com/"})
        with pytest.raises(BadHook, match="at most 20"):
            create_hook(team=session.team, event="post_compact", values={"url": "https://example.com/"})


class TestWholeRuns:
    """From the request of a compaction to the hook, and nothing of the transcript on the way."""

    @pytest.fixture
    def full(self, session: Session) -> Session:
        append(session, user(SECRET_TEXT), *turns(20, size=2_000))
        return session

    def test_a_success_is_asked_and_told(self, full: Session, here: Receiver, eager_worker: None) -> None:
        add_hook(full, here, HookEvent.PRE_COMPACT)
        add_hook(full, here, HookEvent.POST_COMPACT)
        run = queue(full)
        tasks.compact_session(run_id=run.pk)
        run.refresh_from_db()
        assert run.boundary is not None, run.detail
        asked, told = here.bodies
        assert (asked["type"], told["type"]) == ("pre_compact", "post_compact")
        assert told["data"]["boundary"]["id"] == str(run.boundary.uuid)
        assert told["data"]["tokens_after"] == run.tokens_after
        assert SECRET_TEXT not in str(here.bodies)

    def test_a_refusal_fails_the_run_and_is_told(self, full: Session, here: Receiver, eager_worker: None) -> None:
        add_hook(full, here, HookEvent.PRE_COMPACT, can_block=True)
        add_hook(full, here, HookEvent.COMPACT_FAILED)
        here.answer = says({"refuse": "deploy freeze"})
        run = queue(full)
        tasks.compact_session(run_id=run.pk)
        run.refresh_from_db()
        assert (run.status, run.failure_reason) == ("failed", "refused_by_hook")
        assert "deploy freeze" in run.detail
        told = here.bodies[-1]
        assert (told["type"], told["data"]["reason"]) == ("compact_failed", "refused_by_hook")
        assert TelemetryEvent.objects.filter(name="tengu_compact_failed").count() == 1
