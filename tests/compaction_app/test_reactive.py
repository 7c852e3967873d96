"""Reactive compaction (S19): the provider has refused a request, and a context comes out that it takes."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest
from django.core.cache import cache
from django.utils import timezone

from compaction_app import actions
from compaction_app.actions import Wanted
from compaction_app.engine.summary import heading
from compaction_app.models import CompactionRun, RunStatus
from compaction_app.services import runs
from sessions_app import selectors as transcripts
from sessions_app.models import Session
from sessions_app.transcript.request import build_request
from tests.build import thinking, use
from tests.cast import Api, Cast, errors
from tests.factories import append, assistant, make_session, turns, user
from tests.stub_api import StubApi, model

pytestmark = pytest.mark.django_db

MODEL = "claude-sonnet-4-5-20250929"
FAST = {"reactive_compact": True, "summary_retry_seconds": 0.01, "summary_longest_pause_seconds": 0.05}


def filled(window: int, share: float, **values: Any) -> Session:
    """A session of `share` times the window."""
    session = make_session(policy_overrides={**FAST, "context_window": window}, **values)
    start = 0
    while session.context_tokens < share * window:
        append(session, *turns(10, start=start, size=2_000))
        start += 10
    return Session.objects.select_related("team").get(pk=session.pk)


def react(session: Session, error: str = "prompt is too long", **more: Any) -> CompactionRun:
    wanted = Wanted(reported=actions.reported(error=error), **more)
    run = actions.request_compaction(session=session, wanted=wanted, now=timezone.now())
    done = runs.execute(run_id=run.pk)
    assert done is not None
    return done


def taken(stub: StubApi, session: Session) -> int:
    """The provider takes what is to be sent now; its own count of it."""
    request = build_request(view=transcripts.context_view(session=session))
    client = anthropic.Anthropic(api_key="dummy-key", base_url=stub.url, max_retries=0)
    messages: Any = [*request.messages]
    if messages[-1]["role"] == "assistant":
        messages.append({"role": "user", "content": "go on"})
    answer = client.messages.create(model=MODEL, max_tokens=1_000, messages=messages)
    usage = answer.usage
    return usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)


@pytest.fixture(params=[60_000, 200_000])
def window(request: pytest.FixtureRequest, provider: StubApi) -> int:
    size: int = request.param
    provider.state.models[:] = [model(MODEL, size, 8_000)]
    cache.clear()
    return size


class TestAlways:
    @pytest.mark.parametrize("share", [1.05, 1.5, 3.0])
    def test_an_accepted_request_comes_out(self, provider: StubApi, window: int, share: float) -> None:
        session = filled(window, share)
        run = react(session)
        assert run.status == RunStatus.SUCCEEDED, run.detail
        assert taken(provider, session) < window

    @pytest.mark.parametrize("fault", ["500", "400-too-long-no-figures"])
    def test_also_with_the_provider_down(self, provider: StubApi, window: int, fault: str) -> None:
        session = filled(window, 1.5)
        provider.keep_failing(fault)
        run = react(session)
        assert run.status == RunStatus.SUCCEEDED, run.detail
        provider.keep_failing(None)
        assert taken(provider, session) < window

    def test_also_where_our_own_count_is_far_too_low(self, provider: StubApi) -> None:
        provider.state.models[:] = [model(MODEL, 60_000, 8_000)]
        cache.clear()
        session = filled(60_000, 1.0)
        told = int(session.context_tokens * 1.4)
        run = react(session, f"prompt is too long: {told} tokens > 60000 maximum")
        assert run.status == RunStatus.SUCCEEDED, run.detail
        session.refresh_from_db()
        assert session.context_tokens * 1.4 < 60_000

    def test_a_model_that_writes_far_too_much(self, provider: StubApi) -> None:
        provider.state.models[:] = [model(MODEL, 60_000, 8_000)]
        cache.clear()
        session = filled(60_000, 1.5)
        flood = "\n".join(f"{heading(n)}\n" + "much more than was asked for " * 1_500 for n in range(1, 10))
        provider.say(f"<summary>{flood}</summary>")
        run = react(session)
        assert run.status == RunStatus.SUCCEEDED, run.detail
        assert run.boundary is not None
        assert taken(provider, session) < 60_000

    def test_with_thinking_and_an_open_round(self, provider: StubApi) -> None:
        provider.state.models[:] = [model(MODEL, 60_000, 8_000)]
        cache.clear()
        session = filled(60_000, 1.4)
        append(session, user("and now?"), assistant([thinking("hm"), use("last", file_path="/a.py")], message_id="z"))
        run = react(Session.objects.select_related("team").get(pk=session.pk))
        assert run.status == RunStatus.SUCCEEDED, run.detail
        assert taken(provider, session) < 60_000


class TestWhatCanNotGo:
    def test_a_message_that_is_larger_than_the_window_is_named(self, provider: StubApi) -> None:
        session = filled(60_000, 0.5)
        append(session, user("read this: " + "word " * 90_000, uuid="huge"))
        run = react(Session.objects.select_related("team").get(pk=session.pk))
        assert (run.status, run.failure_reason) == (RunStatus.FAILED, "exceeds_window")
        assert "message huge" in run.detail
        assert run.trigger == "reactive"


class TestClearing:
    def test_is_enough_where_it_makes_room(self) -> None:
        session = make_session(policy_overrides={**FAST, "context_window": 100_000})
        start = 0
        while session.context_tokens < 90_000:
            append(session, *turns(5, start=start, size=12_000))
            start += 5
        run = react(Session.objects.select_related("team").get(pk=session.pk))
        assert run.boundary is not None, run.detail
        assert run.boundary.kind == "microcompact"


class TestRequest:
    @pytest.fixture
    def full(self, cast: Cast) -> Session:
        session = make_session(cast.alices_team, policy_overrides={**FAST, "context_window": 60_000})
        append(session, *turns(120, size=2_000))
        return session

    @pytest.mark.django_db(transaction=True)
    def test_the_answer_holds_what_to_send(self, api: Api, full: Session, eager_worker: None) -> None:
        answer = api.send(f"sessions/{full.uuid}/compact/", {"mode": "reactive", "error": "prompt is too long"})
        assert (answer.status_code, answer.json()["trigger"]) == (200, "reactive")
        assert answer.json()["context"] == api.read(f"sessions/{full.uuid}/context/").json()
        assert answer.json()["context"]["tokens"] < 60_000

    @pytest.mark.parametrize(
        ("figures", "code"),
        [
            ({"reactive_compact": False}, "reactive_compact_disabled"),
            ({"auto_compact_enabled": False}, "auto_compact_disabled"),
            ({"compaction_enabled": False}, "auto_compact_disabled"),
        ],
    )
    def test_where_it_is_not_wanted(self, api: Api, full: Session, figures: dict[str, Any], code: str) -> None:
        """Known failure T36."""
        Session.objects.filter(pk=full.pk).update(policy_overrides={**full.policy_overrides, **figures})
        answer = api.send(f"sessions/{full.uuid}/compact/", {"mode": "reactive"})
        assert (answer.status_code, errors(answer)) == (400, [(code, "mode")])
        assert not CompactionRun.objects.exists()

    def test_the_same_refusal_told_twice(self, full: Session) -> None:
        """Without figures too: nothing was said since, and what there is now fits."""
        full = Session.objects.select_related("team").get(pk=full.pk)
        assert react(full).status == RunStatus.SUCCEEDED
        full = Session.objects.select_related("team").get(pk=full.pk)
        again = react(full)
        assert (again.status, again.failure_reason) == (RunStatus.FAILED, "nothing_to_compact")
        assert "can be sent as it is" in again.detail
        append(full, *turns(1, start=500))
        full = Session.objects.select_related("team").get(pk=full.pk)
        assert react(full).status == RunStatus.SUCCEEDED, "that is another request"

    def test_a_refusal_that_no_context_explains(self, full: Session) -> None:
        """Neither the one of then nor the one of now: what else the request held is named, and nobody sends in vain."""
        full = Session.objects.select_related("team").get(pk=full.pk)
        assert react(full).status == RunStatus.SUCCEEDED
        for _ in range(2):
            full = Session.objects.select_related("team").get(pk=full.pk)
            run = react(full, error="prompt is too long: 900000 tokens > 60000 maximum")
        assert run.failure_reason == "exceeds_window", run.detail
        assert "something that the request held and this session does not" in run.detail

    def test_a_limit_that_holds_nothing(self, full: Session) -> None:
        full = Session.objects.select_related("team").get(pk=full.pk)
        run = react(full, error="prompt is too long: 30000 tokens > 500 maximum")
        assert run.failure_reason == "exceeds_window"
        assert "nothing else" not in run.detail

    def test_it_goes_before_one_that_only_waits(self, full: Session) -> None:
        full = Session.objects.select_related("team").get(pk=full.pk)
        waiting = runs.queue_run(session=full, trigger="auto", instructions="", now=timezone.now())
        assert react(full).status == RunStatus.SUCCEEDED
        waiting.refresh_from_db()
        assert (waiting.status, "takes its place" in waiting.detail) == (RunStatus.CANCELLED, True)

    def test_but_not_before_one_that_somebody_asked_for(self, full: Session) -> None:
        full = Session.objects.select_related("team").get(pk=full.pk)
        runs.queue_run(session=full, trigger="manual", instructions="", now=timezone.now())
        with pytest.raises(actions.ActiveRun):
            react(full)
