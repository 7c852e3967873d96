"""The provider's own compaction, end to end: the block goes through database, context and stub to the letter."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from compaction_app import actions
from compaction_app.engine.ports import ProviderError
from compaction_app.llm import factory
from compaction_app.llm.anthropic_api import AnthropicCounter
from compaction_app.models import CompactionRun, RunStatus, TelemetryEvent
from compaction_app.services import catalog, runs
from compaction_app.services.counts import count_exact
from sessions_app import selectors as transcripts
from sessions_app.models import CompactBoundary, Session
from sessions_app.transcript.request import build_request
from sessions_app.transcript.validation import validate_messages
from tests.build import thinking, use
from tests.cast import Api, Cast
from tests.factories import append, assistant, make_session, turns, user
from tests.stub_api import COMPACTION_FAULTS, StubApi, model

pytestmark = pytest.mark.django_db

MODEL, BETA = "claude-sonnet-5", "compact-2026-09-04"
QUICK = {"summary_retry_seconds": 0.01, "summary_longest_pause_seconds": 0.05, "time_based_enabled": False}
TOOLS = [{"name": "Read", "description": "reads a file", "input_schema": {"type": "object"}}]
# Keys in no order, one that nobody knows, and what databases and encoders like to change.
BLOCK = {
    "signature": "c2lnbmVk",
    "tomorrow": {"z": [1, 2.5, None], "a": 10**20, "b": ""},
    "type": "compaction",
    "tool_changes": [],
    "content": "The ledger is half done.\n\né ☃ 😀 \u2028 \x00 </summary> <script>alert(1)</script>",
}


@pytest.fixture
def stub(provider: StubApi) -> StubApi:
    provider.state.models.append(model(MODEL, 1_000_000, 128_000))
    return provider


@pytest.fixture
def session(stub: StubApi, cast: Cast) -> Session:
    session = make_session(
        cast.alices_team, model=MODEL, system="Be careful.", tools=TOOLS, policy_overrides=QUICK, external_id="n"
    )
    append(session, *turns(40))
    return session


def compact(session: Session, *, summarizer: str = "anthropic_native", **more: Any) -> CompactionRun:
    values = {"trigger": "manual", "instructions": "", "summarizer": summarizer, **more}
    run = runs.queue_run(session=session, now=timezone.now(), **values)
    done = runs.execute(run_id=run.pk)
    assert done is not None
    session.refresh_from_db()
    return done


def boundary_of(run: CompactionRun) -> CompactBoundary:
    assert run.status == RunStatus.SUCCEEDED, run.detail
    assert run.boundary is not None
    return run.boundary


def asked(stub: StubApi) -> list[Any]:
    return stub.of("/v1/messages")


def sent_on(stub: StubApi, context: dict[str, Any]) -> Any:
    """The client's next call, with what it was told to send. Raises where the stub refuses it."""
    import anthropic

    messages = context["messages"]
    if messages[-1]["role"] == "assistant":
        messages = [*messages, {"role": "user", "content": "go on"}]
    body = {"model": MODEL, "max_tokens": 1_000, "messages": messages, "system": context["system"]}
    with anthropic.Anthropic(max_retries=0) as client:
        return client.beta.messages.create(**body, tools=context["tools"], betas=context["betas"])


def context_of(api: Api, session: Session, **params: Any) -> dict[str, Any]:
    answer = api.read(f"sessions/{session.uuid}/context/", **params)
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    assert validate_messages(messages=body["messages"]) == []
    return body


class TestRoundTrip:
    def test_the_block_goes_through_to_the_letter(self, stub: StubApi, session: Session, api: Api) -> None:
        before = context_of(api, session)
        assert before["betas"] == []
        stub.say(blocks=[BLOCK], stop_reason="compaction")
        boundary = boundary_of(compact(session))
        boundary.refresh_from_db()
        assert json.dumps(boundary.summary_blocks) == json.dumps([BLOCK])
        assert (boundary.summarizer, boundary.kind, boundary.generation) == ("anthropic_native", "full", 1)
        after = context_of(api, session)
        first = after["messages"][0]
        assert first["role"] == "assistant"
        assert json.dumps(first["content"][0]) == json.dumps(BLOCK)
        assert after["betas"] == [BETA]
        assert "Step 39 is done" in repr(after["messages"][1:]), "the tail stands behind it"
        assert sent_on(stub, after).stop_reason == "end_turn"

    def test_what_was_asked_for(self, stub: StubApi, session: Session) -> None:
        compact(session)
        [request] = asked(stub)
        body = request.body
        assert request.headers["anthropic-beta"] == BETA
        assert (body["model"], body["system"], body["tools"]) == (MODEL, "Be careful.", TOOLS)
        assert body["compaction"] == {"type": "summarize"}
        assert set(body) == {"model", "max_tokens", "messages", "system", "tools", "compaction", "stream"}
        assert "please do step 0" in repr(body["messages"])
        assert "Step 39 is done" not in repr(body["messages"]), "the kept tail is left out"

    def test_the_run_tells_of_it(self, stub: StubApi, session: Session, api: Api) -> None:
        run = compact(session)
        [call] = run.calls.all()
        assert (call.way, call.outcome, call.stop_reason) == ("native", "ok", "compaction")
        assert (run.usage or {})["input_tokens"] > 0, "billed in the iteration"
        assert run.cost_usd
        assert (run.model, run.prompt_version) == (MODEL, "provider")
        assert api.read(f"runs/{run.uuid}/").json()["calls"][0]["way"] == "native"
        [event] = TelemetryEvent.objects.filter(session=session, name="tengu_compact")
        assert event.payload["compaction_usage"]["output_tokens"] > 0

    def test_instructions_go_in_words_of_ours(self, stub: StubApi, session: Session) -> None:
        compact(session, instructions="Keep the SQL.")
        assert "Keep the SQL." in asked(stub)[0].body["compaction"]["instructions"]

    def test_prepare_carries_the_beta_and_no_edits(self, stub: StubApi, session: Session, api: Api) -> None:
        session.policy_overrides = {**QUICK, "cache_edit_trigger_results": 5, "cache_edit_keep_results": 2}
        session.save()
        compact(session)
        append(session, *turns(30, start=50, size=4_000))
        told = api.send(f"sessions/{session.uuid}/prepare/").json()
        assert told["betas"] == [BETA]
        assert told["context_management"] is None
        assert told["cache_edits"] is None
        [edits] = [link for link in told["applied"] if link["link"] == "cache_edits"]
        assert "compaction block" in edits["why"]
        assert sent_on(stub, told).stop_reason == "end_turn"

    def test_results_that_were_edited_before_show_a_placeholder(
        self, stub: StubApi, session: Session, api: Api
    ) -> None:
        session.policy_overrides = {**QUICK, "cache_edit_trigger_results": 5, "cache_edit_keep_results": 1}
        session.save()
        append(session, *turns(8, start=50, size=8_000))
        told = api.send(f"sessions/{session.uuid}/prepare/").json()
        assert told["context_management"]
        session.refresh_from_db()
        boundary_of(compact(session))
        native = asked(stub)[-1].body
        assert "context_management" not in native
        assert "cleared" not in repr(native["messages"]), "edited results go whole"
        assert api.send(f"sessions/{session.uuid}/prepare/").json()["context_management"] is None

    def test_the_exact_count_carries_the_beta(self, stub: StubApi, session: Session) -> None:
        boundary = boundary_of(compact(session))
        assert count_exact(boundary_id=boundary.pk)
        [request] = stub.of("/v1/messages/count_tokens")
        assert BETA in request.headers["anthropic-beta"]
        assert request.body["messages"][0]["content"][0]["type"] == "compaction"

    def test_it_is_reverted_like_any_other(self, stub: StubApi, session: Session, api: Api) -> None:
        before = context_of(api, session)
        boundary = boundary_of(compact(session))
        right_after = context_of(api, session)
        assert api.send(f"boundaries/{boundary.uuid}/revert/").status_code == 200
        assert context_of(api, session)["messages"] == before["messages"]
        assert context_of(api, session)["betas"] == []
        at = context_of(api, session, at=str(boundary.uuid))
        assert json.dumps(at["messages"]) == json.dumps(right_after["messages"])
        assert at["betas"] == [BETA]

    def test_what_can_be_read_of_it_is_the_summary(self, stub: StubApi, session: Session, api: Api) -> None:
        stub.say(blocks=[BLOCK], stop_reason="compaction")
        boundary = boundary_of(compact(session))
        told = api.read(f"boundaries/{boundary.uuid}/").json()
        assert told["summary"].startswith("The ledger is half done.")
        get_user_model().objects.create_superuser("root", password="x" * 12)
        client = Client()
        client.force_login(get_user_model().objects.get(username="root"))
        page = client.get(f"/admin/sessions_app/compactboundary/{boundary.pk}/change/").content.decode()
        assert "a block that the provider has signed" in page
        assert "The ledger is half done." in page
        assert "<script>alert(1)" not in page

    def test_an_open_round_with_thinking_stays_whole(self, stub: StubApi, session: Session, api: Api) -> None:
        stub.state.bound_thinking = True
        append(session, user("and this", uuid="x1"), assistant([thinking(), use("open")], message_id="open", uuid="x2"))
        boundary_of(compact(session))
        context_of(api, session)


class TestAgain:
    def test_the_second_sends_only_the_newest_block(self, stub: StubApi, session: Session, api: Api) -> None:
        boundary_of(compact(session))
        [first] = context_of(api, session)["messages"][0]["content"][:1]
        append(session, *turns(30, start=50))
        second = boundary_of(compact(session))
        assert second.generation == 2
        body = asked(stub)[1].body
        assert body["messages"][0]["content"][0] == first, "the new one is made from the old one and what came since"
        blocks = [b for m in context_of(api, session)["messages"] for b in m["content"] if b["type"] == "compaction"]
        assert len(blocks) == 1
        assert blocks[0] != first
        assert sent_on(stub, context_of(api, session)).stop_reason == "end_turn"

    def test_a_summary_of_ours_takes_its_place(self, stub: StubApi, session: Session, api: Api) -> None:
        boundary_of(compact(session))
        append(session, *turns(30, start=50))
        boundary_of(compact(session, summarizer="anthropic"))
        own = asked(stub)[1]
        assert own.headers["anthropic-beta"] == BETA
        assert own.body["messages"][0]["content"][0]["type"] == "compaction"
        assert "context_management" not in own.body
        told = context_of(api, session)
        assert "'compaction'" not in repr(told["messages"])
        assert told["betas"] == []

    def test_a_block_that_is_not_taken_back_is_told_as_text(self, stub: StubApi, session: Session) -> None:
        stub.say(blocks=[BLOCK], stop_reason="compaction")
        boundary_of(compact(session))
        stub.state.signed_blocks.blocks.clear()
        append(session, *turns(30, start=50))
        run = compact(session, summarizer="anthropic")
        boundary_of(run)
        assert [call.way for call in run.calls.all()] == ["cached_prefix", "standalone"]
        assert "compaction_signature_invalid" in run.calls.all()[0].detail
        assert "The ledger is half done." in repr(asked(stub)[-1].body["messages"])

    def test_the_embedded_one_after_it(self, stub: StubApi, session: Session, api: Api) -> None:
        boundary_of(compact(session))
        append(session, *turns(30, start=50))
        boundary_of(compact(session, summarizer="extractive"))
        assert context_of(api, session)["betas"] == []

    def test_and_it_after_one_of_ours(self, stub: StubApi, session: Session, api: Api) -> None:
        boundary_of(compact(session, summarizer="anthropic"))
        append(session, *turns(30, start=50))
        boundary_of(compact(session))
        assert context_of(api, session)["betas"] == [BETA]


def for_compactions(body: Any) -> bool:
    return isinstance(body, dict) and "compaction" in body


EVERYWHERE = [
    "400",
    "400-too-long",
    "401",
    "404",
    "413-html",
    "429",
    "500",
    "529",
    "garbage",
    "hangs-up",
    "cut",
    "empty",
]


class TestFallBack:
    @pytest.mark.parametrize("fault", [*sorted(COMPACTION_FAULTS), *EVERYWHERE])
    @pytest.mark.thorough
    def test_every_error_ends_in_a_summary_of_ours(self, stub: StubApi, session: Session, api: Api, fault: str) -> None:
        stub.fail_when(for_compactions, fault)
        run = compact(session)
        boundary = boundary_of(run)
        assert (run.summarizer, boundary.summarizer) == ("anthropic_native", "anthropic")
        assert boundary.summary_blocks is None
        assert boundary.summary.startswith("## 1.")  # type: ignore[union-attr]
        why = run.steps.get(link="full").why
        assert "the provider's own compaction gave no block" in why
        assert "SECRET" not in why + repr([call.detail for call in run.calls.all()])
        calls = list(run.calls.all())
        assert {call.way for call in calls[:-1]} == {"native"}
        assert len(calls) <= 3, "once more where it may pass"
        assert calls[-1].outcome == "ok"
        told = context_of(api, session)
        assert told["betas"] == []
        assert sent_on(stub, told)

    def test_a_model_that_can_not(self, stub: StubApi, session: Session) -> None:
        stub.state.without_compaction.add(MODEL)
        assert boundary_of(compact(session)).summarizer == "anthropic"

    def test_a_model_that_is_known_not_to_is_not_asked(self, stub: StubApi, session: Session) -> None:
        stub.state.models[-1]["capabilities"] = {"compaction": {"supported": False}}
        assert catalog.refresh(now=timezone.now())
        run = compact(session)
        assert boundary_of(run).summarizer == "anthropic"
        assert [call.way for call in run.calls.all()] == ["cached_prefix"]
        assert "has no such compaction" in run.steps.get(link="full").why

    def test_another_model_is_named(self, stub: StubApi, session: Session, settings: Any) -> None:
        settings.COMPACTION_MODEL = "claude-sonnet-4-5"
        run = compact(session)
        assert boundary_of(run).summarizer == "anthropic"
        assert [call.way for call in run.calls.all()] == ["standalone"]
        assert "COMPACTION_MODEL" in run.steps.get(link="full").why

    def test_by_itself_with_the_provider_down_it_ends_by_the_last_resort(self, stub: StubApi, session: Session) -> None:
        stub.keep_failing("529")
        run = compact(session, trigger="auto")
        boundary = boundary_of(run)
        assert boundary.summarizer == "extractive"
        assert "the provider's own compaction" in boundary.why

    def test_by_hand_it_fails_and_tells_both(self, stub: StubApi, session: Session, api: Api) -> None:
        before = context_of(api, session)
        stub.keep_failing("529")
        run = compact(session)
        assert (run.status, run.failure_reason) == (RunStatus.FAILED, "api_error")
        assert "the provider's own compaction gave no block" in run.detail
        assert context_of(api, session) == before


class TestSettings:
    def test_the_setting_names_it(self, stub: StubApi, session: Session, settings: Any) -> None:
        settings.COMPACTION_SUMMARIZER = "anthropic_native"
        assert boundary_of(compact(session, summarizer="")).summary_blocks

    def test_where_only_a_text_will_do(self) -> None:
        assert factory.as_text(name="anthropic_native") == "anthropic"
        assert factory.as_text(name="extractive") == "extractive"
        assert set(factory.CHOICES) == {factory.AUTO, *factory.MODELS, *factory.SUMMARIZERS}


class TestClientsOwn:
    def test_a_clients_block_is_sent_back_with_its_beta(self, stub: StubApi, session: Session, api: Api) -> None:
        stub.state.signed_blocks.blocks[str(BLOCK["signature"])] = json.loads(json.dumps(BLOCK))
        own = make_session(session.team, model=MODEL, tools=TOOLS, policy_overrides=QUICK)
        append(own, assistant([BLOCK], uuid="b"), user("and now?", uuid="c"))
        told = context_of(api, own)
        assert told["betas"] == [BETA]
        assert sent_on(stub, {**told, "system": "x"}).stop_reason == "end_turn"

    def test_a_count_of_it_carries_the_beta(self, stub: StubApi, session: Session) -> None:
        own = make_session(session.team, model=MODEL)
        append(own, assistant([BLOCK], uuid="b"), user("and now?", uuid="c"))
        request = build_request(view=transcripts.context_view(session=own))
        with pytest.raises(ProviderError) as caught:
            AnthropicCounter(seconds=5).count(model=MODEL, request=request)
        assert caught.value.code == "compaction_signature_invalid"


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("eager_worker")
def test_by_the_api_from_end_to_end(stub: StubApi, cast: Cast) -> None:
    api = cast.alice
    session = make_session(cast.alices_team, model=MODEL, tools=TOOLS, system="x", policy_overrides=QUICK)
    append(session, *turns(40))
    answer = api.send(f"sessions/{session.uuid}/compact/", {"summarizer": "anthropic_native", "wait": 20})
    assert answer.status_code == 200, answer.json()
    assert answer.json()["status"] == "succeeded"
    told = context_of(api, session)
    assert told["betas"] == [BETA]
    assert sent_on(stub, told).stop_reason == "end_turn"
    row = CompactBoundary.objects.get(session=session)
    assert row.tokens_after_exact, "counted with the beta"


def test_a_person_may_ask_for_it_in_this_process(stub: StubApi, session: Session) -> None:
    wanted = actions.Wanted(summarizer="anthropic_native")
    run = actions.compact_now(session=session, wanted=wanted, now=timezone.now(), listener=lambda *_: None)
    assert boundary_of(run).summary_blocks
