"""The exact size of a context after a compaction: asked of the provider, kept with the boundary, once."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.db import connection
from kombu.exceptions import OperationalError

from compaction_app import actions, tasks
from compaction_app.services import counts
from compaction_app.services.counts import count_exact
from sessions_app import selectors
from sessions_app.models import CompactBoundary, Session
from sessions_app.policy import Policy
from sessions_app.transcript.request import MessagesRequest, build_request
from tests.factories import NOW, append, make_session, turns, user
from tests.stub_api import StubApi

pytestmark = pytest.mark.django_db

TOOLS = [{"name": "Read", "description": "reads", "input_schema": {"type": "object"}}]


@pytest.fixture(autouse=True)
def no_model_writes(settings: Any) -> None:
    """The provider counts only; what is compacted here is compacted without it."""
    settings.COMPACTION_SUMMARIZER = "extractive"


def compacted(**values: Any) -> tuple[Session, CompactBoundary]:
    session = make_session(**values)
    append(session, *turns(40))
    run = actions.compact_now(session=session, wanted=actions.Wanted(), now=NOW, listener=lambda *_: None)
    assert run.boundary is not None, run.detail
    return session, run.boundary


def exact(boundary: CompactBoundary) -> int | None:
    boundary.refresh_from_db()
    return boundary.tokens_after_exact


class TestCountExact:
    def test_it_works(self, provider: StubApi) -> None:
        session, boundary = compacted(system="Be brief.", tools=TOOLS)
        provider.state.count = lambda body: 1_234
        assert count_exact(boundary_id=boundary.pk) == 1_234 == exact(boundary)
        [request] = provider.requests
        expected = build_request(view=selectors.context_view(session=session), system="Be brief.", tools=TOOLS)
        assert (request.method, request.path) == ("POST", "/v1/messages/count_tokens")
        assert request.body == {
            "model": "claude-sonnet-4-5",
            "system": "Be brief.",
            "tools": TOOLS,
            "messages": expected.messages,
        }

    def test_the_context_is_as_it_was_right_after(self, provider: StubApi) -> None:
        session, boundary = compacted()
        right_after = build_request(view=selectors.context_view(session=session)).messages
        append(session, user("and one more thing"))
        count_exact(boundary_id=boundary.pk)
        assert provider.requests[0].body["messages"] == right_after
        assert set(provider.requests[0].body) == {"model", "messages"}, "what the session has not is not sent"

    def test_repeated_it_changes_nothing(self, provider: StubApi) -> None:
        _, boundary = compacted()
        first = count_exact(boundary_id=boundary.pk)
        provider.state.count = lambda body: 7
        assert count_exact(boundary_id=boundary.pk) is None
        assert exact(boundary) == first
        assert len(provider.requests) == 1

    def test_of_two_at_once_the_first_figure_stays(self, provider: StubApi) -> None:
        _, boundary = compacted()

        class Overtaken:
            def count(self, *, model: str, request: MessagesRequest) -> int:
                CompactBoundary.objects.filter(pk=boundary.pk).update(tokens_after_exact=5)
                return 9

        assert count_exact(boundary_id=boundary.pk, counter=Overtaken()) is None
        assert exact(boundary) == 5

    @pytest.mark.parametrize("fault", ["400", "401", "429", "529", "500", "garbage", "text-parts", "hangs-up"])
    def test_a_failure_leaves_the_estimate(
        self, provider: StubApi, caplog: pytest.LogCaptureFixture, fault: str
    ) -> None:
        _, boundary = compacted()
        provider.fail(fault)
        with caplog.at_level(logging.WARNING):
            assert count_exact(boundary_id=boundary.pk) is None
        assert exact(boundary) is None
        assert str(boundary.uuid) in caplog.text
        assert "SECRET" not in caplog.text
        assert count_exact(boundary_id=boundary.pk) == exact(boundary) is not None, "it can be asked again"

    def test_a_silent_provider(self, provider: StubApi, monkeypatch: pytest.MonkeyPatch) -> None:
        _, boundary = compacted()
        monkeypatch.setattr(counts, "Policy", lambda: Policy(count_exact_seconds=1))
        provider.keep_failing("silent")
        assert count_exact(boundary_id=boundary.pk) is None
        assert exact(boundary) is None

    def test_a_model_that_the_provider_has_not(self, provider: StubApi) -> None:
        _, boundary = compacted(model="glm-4.7")
        assert count_exact(boundary_id=boundary.pk) is None
        assert provider.requests[0].body["model"] == "glm-4.7"

    def test_the_clients_mark_of_a_long_window_is_not_sent(self, provider: StubApi) -> None:
        _, boundary = compacted(model="claude-sonnet-4-5[1m]")
        assert count_exact(boundary_id=boundary.pk) == exact(boundary) is not None
        assert provider.requests[0].body["model"] == "claude-sonnet-4-5"

    def test_without_key_or_model_or_boundary_nothing_is_asked(self, provider: StubApi, settings: Any) -> None:
        _, nameless = compacted(model="")
        assert count_exact(boundary_id=nameless.pk) is None
        assert count_exact(boundary_id=4_711) is None
        _, boundary = compacted()
        settings.ANTHROPIC_KEY_SET = False
        assert count_exact(boundary_id=boundary.pk) is None
        assert provider.requests == []

    @pytest.mark.django_db(transaction=True)
    def test_no_transaction_is_open_meanwhile(self, provider: StubApi) -> None:
        _, boundary = compacted()
        open_meanwhile: list[bool] = []

        class Watching:
            def count(self, *, model: str, request: MessagesRequest) -> int:
                open_meanwhile.append(connection.in_atomic_block)
                return 9

        count_exact(boundary_id=boundary.pk, counter=Watching())
        assert open_meanwhile == [False]


class TestHandingOut:
    def test_a_run_by_the_worker_is_counted_after_it(
        self, provider: StubApi, eager_worker: None, django_capture_on_commit_callbacks: Any
    ) -> None:
        session = make_session()
        append(session, *turns(20))
        with django_capture_on_commit_callbacks(execute=True):
            run = actions.request_compaction(session=session, wanted=actions.Wanted(), now=NOW)
        run.refresh_from_db()
        assert run.boundary is not None
        assert exact(run.boundary) is not None

    def test_and_one_by_the_command(self, provider: StubApi, eager_worker: None) -> None:
        _, boundary = compacted()
        tasks.count_exact_after(run=boundary.run)
        assert exact(boundary) is not None

    def test_without_a_key_nothing_is_handed_out(self, provider: StubApi, eager_worker: None, settings: Any) -> None:
        settings.ANTHROPIC_KEY_SET = False
        _, boundary = compacted()
        tasks.count_exact_after(run=boundary.run)
        assert (provider.requests, exact(boundary)) == ([], None)

    def test_a_queue_that_does_not_answer_is_no_error(
        self, provider: StubApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def unreachable(**_: Any) -> None:
            raise OperationalError

        _, boundary = compacted()
        monkeypatch.setattr(tasks.count_exact_tokens, "delay", unreachable)
        tasks.count_exact_after(run=boundary.run)
        assert f"boundary {boundary.pk} keeps its estimate" in caplog.text
