"""Asking the provider for the windows of its models: over a real socket, once a day, and never at a caller's cost."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.cache import cache
from kombu.exceptions import OperationalError

from compaction_app import actions, tasks
from compaction_app.engine.ports import ProviderError, ProviderProblem
from compaction_app.llm import anthropic_api
from compaction_app.services import catalog
from sessions_app import selectors
from sessions_app.catalog import WindowSource, model_info
from sessions_app.policy import Policy
from tests.cast import Cast
from tests.factories import NOW, append, make_session, turns
from tests.stub_api import FAULTS, StubApi, model

DAY = timedelta(seconds=Policy().catalog_refresh_seconds)
PAUSE = timedelta(seconds=Policy().catalog_retry_seconds)
SONNET = "claude-sonnet-4-5"

PROBLEMS = {
    "400-too-long": ProviderProblem.TOO_LONG,
    "400": ProviderProblem.REFUSED,
    "401": ProviderProblem.CREDENTIALS,
    "403": ProviderProblem.CREDENTIALS,
    "404": ProviderProblem.REFUSED,
    "413-html": ProviderProblem.TOO_LARGE,
    "429": ProviderProblem.RATE_LIMITED,
    "500": ProviderProblem.SERVER_ERROR,
    "529": ProviderProblem.OVERLOADED,
    "garbage": ProviderProblem.UNREADABLE,
    "list": ProviderProblem.UNREADABLE,
    "number": ProviderProblem.UNREADABLE,
    "null-parts": ProviderProblem.UNREADABLE,
    "text-parts": ProviderProblem.UNREADABLE,
    "html": ProviderProblem.UNREADABLE,
    "empty": ProviderProblem.UNREADABLE,
    "silent": ProviderProblem.TIMEOUT,
    "hangs-up": ProviderProblem.UNREACHABLE,
}


class TestListModels:
    def test_all_pages(self, provider: StubApi) -> None:
        provider.state.models = [model(f"claude-x-{n}", 1_000 * n, n) for n in range(1, 6)]
        provider.state.page_models = 2
        told = anthropic_api.list_models(seconds=5).limits
        assert told == {f"claude-x-{n}": (1_000 * n, n) for n in range(1, 6)}
        assert [request.query.get("after_id") for request in provider.requests] == [None, "claude-x-2", "claude-x-4"]
        assert {request.headers["authorization"] for request in provider.requests} == {"Bearer dummy-key"}

    def test_nulls_and_nonsense_were_not_told(self, provider: StubApi) -> None:
        rows = [
            model("A", None, 5),
            model("b", 5_000, None),
            model("c", -1, 0),
            {**model("d"), "max_input_tokens": "9"},
        ]
        provider.state.models = rows
        told = anthropic_api.list_models(seconds=5).limits
        assert told == {"a": (None, 5), "b": (5_000, None), "c": (None, None), "d": (None, 64_000)}

    def test_every_fault_has_its_row_here(self) -> None:
        assert set(PROBLEMS) == set(FAULTS)

    @pytest.mark.parametrize("fault", sorted(PROBLEMS))
    def test_faults(self, provider: StubApi, fault: str) -> None:
        provider.keep_failing(fault)
        with pytest.raises(ProviderError) as caught:
            anthropic_api.list_models(seconds=0.3)
        assert caught.value.problem == PROBLEMS[fault]
        assert len(provider.requests) == 1, "the SDK tries nothing again"
        assert "SECRET" not in str(caught.value)
        told = caught.value
        assert told.__context__ is None or told.__suppress_context__, "what the SDK raised quotes the answer"

    def test_no_models_at_all_tells_nothing(self, provider: StubApi) -> None:
        provider.state.models = []
        with pytest.raises(ProviderError, match="unreadable"):
            anthropic_api.list_models(seconds=5)

    def test_nobody_there(self, monkeypatch: pytest.MonkeyPatch, provider: StubApi) -> None:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
        with pytest.raises(ProviderError, match="unreachable"):
            anthropic_api.list_models(seconds=1)

    def test_pages_without_end_are_not_followed(self, provider: StubApi, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(anthropic_api, "MOST_PAGES", 3)
        provider.state.models = [model(f"claude-x-{n}") for n in range(9)]
        provider.state.page_models = 1
        assert len(anthropic_api.list_models(seconds=5).limits) == len(provider.requests) - 1 == 3


class TestRefresh:
    def test_it_works(self, provider: StubApi) -> None:
        assert selectors.model_limits(model=SONNET).source == WindowSource.TABLE
        assert catalog.refresh(now=NOW)
        info = selectors.model_limits(model=SONNET)
        assert (info.context_window, info.max_output_tokens) == (400_000, 80_000)
        assert info.source == WindowSource.MODELS_API

    def test_a_model_that_the_table_does_not_know(self, provider: StubApi) -> None:
        provider.state.models.append(model("claude-tomorrow-1", 500_000, 32_000))
        assert selectors.model_limits(model="claude-tomorrow-1").assumed
        catalog.refresh(now=NOW)
        info = selectors.model_limits(model="claude-tomorrow-1")
        assert (info.context_window, info.assumed) == (500_000, False)

    def test_what_was_told_is_plain_data(self, provider: StubApi) -> None:
        catalog.refresh(now=NOW)
        stored = cache.get(selectors.MODEL_LIMITS_KEY)
        assert stored == json.loads(json.dumps(stored))
        models = {"claude-sonnet-4-5-20250929": [400_000, 80_000]}
        assert stored == {"fetched_at": NOW.timestamp(), "models": models, "without_compaction": []}

    @pytest.mark.parametrize("told", [False, True, None, "no"])
    def test_who_has_no_compaction_of_its_own(self, provider: StubApi, told: Any) -> None:
        row = provider.state.models[0]
        row["capabilities"] = None if told is None else {"compaction": {"supported": told, "summarize": None}}
        assert catalog.can_compact(model=SONNET), "nobody has said anything yet"
        catalog.refresh(now=NOW)
        assert provider.requests[0].headers["anthropic-beta"] == "compact-2026-09-04"
        assert catalog.can_compact(model=f"us.anthropic.{SONNET}") == (told is not False)
        assert catalog.can_compact(model="claude-sonnet-5")

    def test_it_asks_once_a_day(self, provider: StubApi) -> None:
        moments = [NOW, NOW + PAUSE, NOW + DAY - timedelta(seconds=1)]
        assert [catalog.refresh(now=now) for now in moments] == [True, False, False]
        assert len(provider.requests) == 1
        assert catalog.refresh(now=NOW + DAY)

    def test_a_clock_that_was_set_back_does_not_stop_it(self, provider: StubApi) -> None:
        catalog.refresh(now=NOW)
        assert catalog.due(now=NOW - timedelta(days=400))

    @pytest.mark.parametrize("fault", ["401", "429", "529", "500", "garbage", "null-parts", "hangs-up"])
    def test_an_outage_loses_nothing_and_raises_nothing(
        self, provider: StubApi, caplog: pytest.LogCaptureFixture, fault: str
    ) -> None:
        catalog.refresh(now=NOW)
        provider.keep_failing(fault)
        with caplog.at_level(logging.WARNING):
            assert not catalog.refresh(now=NOW + DAY)
        assert selectors.model_limits(model=SONNET).context_window == 400_000
        assert PROBLEMS[fault].value in caplog.text
        assert "SECRET" not in caplog.text
        assert "dummy-key" not in caplog.text

    def test_a_page_that_fails_keeps_what_was_told_before(self, provider: StubApi) -> None:
        catalog.refresh(now=NOW)
        provider.state.models = [model("claude-a", 5_000), model("claude-b", 6_000)]
        provider.state.page_models = 1
        provider.fail("garbage")
        assert not catalog.refresh(now=NOW + DAY)
        assert selectors.model_limits(model=SONNET).context_window == 400_000

    def test_after_a_failure_it_waits(self, provider: StubApi) -> None:
        provider.fail("529")
        moments = [NOW, NOW + PAUSE - timedelta(seconds=1), NOW + PAUSE]
        assert [catalog.refresh(now=now) for now in moments] == [False, False, True]
        assert len(provider.requests) == 2

    def test_a_silent_provider(self, provider: StubApi, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(catalog, "Policy", lambda: Policy(catalog_ask_seconds=1))
        provider.keep_failing("silent")
        assert not catalog.refresh(now=NOW)

    def test_without_a_key_nothing_is_asked(self, provider: StubApi, settings: Any) -> None:
        settings.ANTHROPIC_KEY_SET = False
        assert not catalog.refresh(now=NOW)
        assert provider.requests == []

    def test_the_table_stands_where_the_cache_does_not_answer(
        self, provider: StubApi, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: Any, **__: Any) -> None:
            raise ConnectionError

        monkeypatch.setattr(cache, "get", broken)
        assert selectors.model_limits(model=SONNET) == model_info(SONNET)
        assert not catalog.refresh(now=NOW)
        assert provider.requests == []

    def test_what_was_told_before_stands_where_the_cache_does_not_answer(
        self, provider: StubApi, lookups: Lookups
    ) -> None:
        catalog.refresh(now=NOW)
        assert selectors.model_limits(model=SONNET).context_window == 400_000
        lookups.broken = True
        lookups.clock += Policy().catalog_held_seconds
        assert selectors.model_limits(model=SONNET).context_window == 400_000

    @pytest.mark.django_db
    def test_reading_costs_no_query(self, provider: StubApi, django_assert_num_queries: Any) -> None:
        catalog.refresh(now=NOW)
        with django_assert_num_queries(0):
            selectors.model_limits(model=SONNET)


class Lookups:
    """Counts how often the windows of models are looked up in the cache, under a clock that stands still."""

    def __init__(self) -> None:
        self.count = 0
        self.clock = 1_000.0
        self.broken = False

    def get(self, key: str, *rest: Any) -> Any:
        self.count += key == selectors.MODEL_LIMITS_KEY
        if self.broken:
            raise ConnectionError
        return self.real(key, *rest)

    real = staticmethod(cache.get)


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> Lookups:
    found = Lookups()
    monkeypatch.setattr(cache, "get", found.get)
    monkeypatch.setattr(selectors, "monotonic", lambda: found.clock)
    return found


class TestHolding:
    @pytest.mark.parametrize("broken", [False, True], ids=["answers", "silent"])
    def test_an_append_and_a_prepare_look_once(self, cast: Cast, lookups: Lookups, broken: bool) -> None:
        session = make_session(cast.alices_team)
        append(session, *turns(12, size=4_000))
        selectors.forget_model_limits()
        lookups.count, lookups.broken = 0, broken
        for call, body in (("messages", {"role": "assistant", "content": "x"}), ("prepare", None)):
            assert cast.alice.send(f"sessions/{session.uuid}/{call}/", body).status_code in (200, 201)
        assert lookups.count == 1

    @pytest.mark.parametrize(
        ("broken", "seconds"), [(False, Policy().catalog_held_seconds), (True, Policy().catalog_pause_seconds)]
    )
    def test_after_a_while_it_looks_again(self, lookups: Lookups, broken: bool, seconds: int) -> None:
        lookups.broken = broken
        for passed, count in ((0, 1), (seconds - 1, 1), (1, 2), (0, 2)):
            lookups.clock += passed
            selectors.model_limits(model=SONNET)
            assert lookups.count == count, passed

    def test_what_the_worker_of_another_process_told_is_seen_after_a_while(self, lookups: Lookups) -> None:
        assert selectors.model_limits(model=SONNET).source == WindowSource.TABLE
        told = {"fetched_at": 0, "models": {SONNET: [300_000, 1_000]}}
        cache.set(selectors.MODEL_LIMITS_KEY, told, timeout=None)
        lookups.clock += Policy().catalog_held_seconds
        assert selectors.model_limits(model=SONNET).context_window == 300_000
        cache.delete(selectors.MODEL_LIMITS_KEY)


class TestHandingOut:
    def test_the_worker_asks_where_it_is_due(self, provider: StubApi, eager_worker: None, now: datetime) -> None:
        actions.refresh_catalog(now=now)
        actions.refresh_catalog(now=now)
        assert len(provider.requests) == 1
        assert selectors.model_limits(model=SONNET).source == WindowSource.MODELS_API

    def test_nothing_is_handed_out_where_it_is_not(
        self, provider: StubApi, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings.ANTHROPIC_KEY_SET = False
        monkeypatch.setattr(tasks.refresh_catalog, "delay", lambda: pytest.fail("handed out"))
        actions.refresh_catalog(now=NOW)

    def test_a_queue_that_does_not_answer_is_no_error(
        self, provider: StubApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def unreachable() -> None:
            raise OperationalError

        monkeypatch.setattr(tasks.refresh_catalog, "delay", unreachable)
        actions.refresh_catalog(now=NOW)
        assert "the queue does not answer" in caplog.text

    def test_the_schedule_names_tasks_that_are_there(self, settings: Any) -> None:
        names = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
        assert tasks.refresh_catalog.name in names
