"""Full compaction by the Messages API: the real SDK, a real socket, the strict stub; what a team can leave running."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from compaction_app import actions
from compaction_app.models import CompactionRun, RunStatus, TelemetryEvent
from compaction_app.selectors import breaker_state
from compaction_app.services import runs
from sessions_app import selectors as transcripts
from sessions_app.models import Session
from sessions_app.transcript.request import build_request
from sessions_app.transcript.validation import validate_messages
from tests.build import res, text, thinking, use
from tests.factories import append, assistant, make_session, turns, user
from tests.stub_api import StubApi, model

pytestmark = pytest.mark.django_db

MODEL = "claude-sonnet-4-5-20250929"
# Short pauses, and no light link, which would help by itself.
QUICK = {
    "summary_retry_seconds": 0.01,
    "summary_longest_pause_seconds": 0.05,
    "time_based_enabled": False,
    "cache_edits_enabled": False,
}


def queue(session: Session, *, trigger: str = "manual", instructions: str = "") -> CompactionRun:
    return runs.queue_run(session=session, trigger=trigger, instructions=instructions, now=timezone.now())


def execute(run: CompactionRun) -> CompactionRun:
    done = runs.execute(run_id=run.pk)
    assert done is not None
    return done


def compact(session: Session, **more: Any) -> CompactionRun:
    return execute(queue(session, **more))


def sent(session: Session) -> list[dict[str, Any]]:
    """What the model would be sent now; valid."""
    request = build_request(view=transcripts.context_view(session=session))
    assert validate_messages(messages=request.messages) == []
    return request.messages


def asked(stub: StubApi) -> list[Any]:
    """The bodies of the calls of a model, in order."""
    return [one.body for one in stub.requests if one.path == "/v1/messages"]


def events(session: Session, name: str) -> list[dict[str, Any]]:
    found = TelemetryEvent.objects.filter(session=session, name=name).order_by("id")
    return [event.payload for event in found]


def words_of(body: dict[str, Any]) -> str:
    return repr(body["messages"][-1]["content"])


@pytest.fixture
def session(provider: StubApi) -> Session:
    session = make_session(policy_overrides=QUICK)
    append(session, *turns(40))
    return session


class TestSuccess:
    def test_what_a_success_leaves(self, provider: StubApi, session: Session) -> None:
        before = sent(session)
        run = compact(session, instructions="Keep the SQL.")
        assert (run.status, run.failure_reason, run.summarizer) == (RunStatus.SUCCEEDED, "", "anthropic"), run.detail
        boundary = run.boundary
        assert boundary is not None
        assert boundary.summarizer == "anthropic"
        assert boundary.model == run.model
        assert boundary.model.startswith("claude-sonnet-4-5")
        assert boundary.response_id == run.response_id
        assert boundary.response_id.startswith("msg_")
        assert boundary.prompt_version == run.prompt_version != ""
        assert boundary.usage == run.usage
        assert run.usage["output_tokens"] > 0
        assert "<analysis>" not in boundary.summary
        assert boundary.summary.startswith("## 1. Primary Request and Intent")
        [call] = run.calls.all()
        assert (call.outcome, call.way, call.said) == ("ok", "cached_prefix", "")
        [body] = asked(provider)
        assert "Keep the SQL." in words_of(body)
        assert body["messages"][:-1] == before, "the conversation as it was, and one message behind it"
        assert "## 1. Primary Request and Intent" in repr(sent(session)[0])

    def test_the_event_tells_all_that_is_asked_for(self, provider: StubApi, session: Session) -> None:
        compact(session)
        append(session, *turns(30, start=50))
        run = compact(session)
        first, second = events(session, "tengu_compact")
        assert first["is_recompaction"] is False
        assert second["is_recompaction"] is True
        assert second["is_recompaction_in_chain"] is False
        assert second["turns_since_previous"] == 60
        for payload in (first, second):
            assert payload["tokens_before"] > payload["tokens_after"] > 0
            assert payload["compaction_usage"]["output_tokens"] > 0
            assert payload["is_auto"] is False
            assert payload["shared_prefix"] is True
            assert payload["prompt_version"] == run.prompt_version
            assert payload["model"].startswith("claude-sonnet")
            assert "query_source" in payload

    def test_an_earlier_summary_is_folded_in(self, provider: StubApi, session: Session) -> None:
        provider.say(text=well_formed("the migration of the ledger is half done"))
        compact(session)
        append(session, *turns(30, start=50))
        provider.say(text=well_formed("all is new"))
        compact(session)
        assert "the migration of the ledger is half done" in repr(asked(provider)[1])
        assert "half done" not in repr(sent(session)), "one live summary, the newest"


def well_formed(what: str) -> str:
    from compaction_app.engine.summary import SECTIONS, heading

    sections = "\n".join(f"{heading(number)}\n- {what} ({number})" for number in range(1, len(SECTIONS) + 1))
    return f"<analysis>first this, then that</analysis>\n<summary>\n{sections}\n</summary>"


# Fault of the stub -> what a run by hand ends with ("": it succeeds all the same).
FAULTS = {
    "400-too-long": "prompt_too_long",
    "413-html": "prompt_too_long",
    "429": "api_error",
    "500": "api_error",
    "529": "api_error",
    "400": "api_error",
    "401": "api_error",
    "403": "api_error",
    "404": "api_error",
    "garbage": "api_error",
    "hangs-up": "api_error",
}


@pytest.mark.parametrize(("fault", "reason"), FAULTS.items())
class TestFaults:
    def test_by_hand_it_fails_and_says_why(self, provider: StubApi, session: Session, fault: str, reason: str) -> None:
        before = sent(session)
        provider.keep_failing(fault)
        run = compact(session)
        assert (run.status, run.failure_reason) == (RunStatus.FAILED, reason), run.detail
        assert run.detail
        assert "SECRET" not in run.detail + repr([call.detail for call in run.calls.all()])
        assert run.calls.count() >= 1
        assert sent(session) == before, "the context is as it was"
        assert breaker_state(session=session).failures == 1
        [failed] = events(session, "tengu_compact_failed")
        assert failed["reason"] == reason
        assert failed["largest_request_bytes"] > 0
        self.goes_on(provider, session)

    def test_by_itself_it_ends_by_the_last_resort(
        self, provider: StubApi, session: Session, fault: str, reason: str
    ) -> None:
        provider.keep_failing(fault)
        run = compact(session, trigger="auto")
        assert run.status == RunStatus.SUCCEEDED, run.detail
        assert run.boundary is not None
        assert run.boundary.summarizer == "extractive"
        assert reason in run.boundary.why
        assert (run.model, run.prompt_version) == ("", ""), "no model has written it"
        assert [step.link for step in run.steps.all()][-2:] == ["full", "last_resort"]
        [told] = events(session, "tengu_compact")
        assert told["last_resort"] == reason
        assert breaker_state(session=session).failures == 0

    def goes_on(self, provider: StubApi, session: Session) -> None:
        """The session still works, and the next run succeeds."""
        append(session, user("and then", uuid="after-the-fault"), assistant("done", uuid="after-2", message_id="after"))
        assert "and then" in repr(sent(session))
        provider.keep_failing(None)
        assert compact(session).status == RunStatus.SUCCEEDED
        assert breaker_state(session=session).failures == 0


class TestTooLong:
    def test_300k_on_a_200k_model_needs_nobody(self, provider: StubApi) -> None:
        provider.state.models[:] = [model(MODEL, 200_000, 64_000)]
        cache.clear()
        session = make_session(policy_overrides=QUICK)
        append(session, *turns(300, size=3_000))
        assert session.context_tokens > 300_000 * 0.9
        run = compact(session, trigger="auto")
        assert run.status == RunStatus.SUCCEEDED, run.detail
        assert run.boundary is not None
        assert run.boundary.summarizer == "anthropic"
        first = run.calls.first()
        assert first is not None
        assert first.preflight
        assert first.dropped_groups > 0
        assert events(session, "tengu_compact_ptl_retry")[0]["preflight"] is True
        assert "please do step 0" in repr(asked(provider)[0]), "the first request survives"

    def test_a_window_that_takes_nothing(self, provider: StubApi, session: Session) -> None:
        provider.state.count = lambda body: 10_000_000
        run = compact(session, trigger="auto")
        assert run.status == RunStatus.SUCCEEDED, run.detail
        assert run.boundary is not None
        assert run.boundary.summarizer == "extractive"
        assert "prompt_too_long" in run.boundary.why
        assert len(asked(provider)) == 2, "with so large a gap all that can go goes at once"

    def test_three_retries_and_no_more(self, provider: StubApi, session: Session) -> None:
        provider.keep_failing("400-too-long-no-figures")
        run = compact(session)
        assert (run.status, run.failure_reason) == (RunStatus.FAILED, "prompt_too_long")
        assert len(asked(provider)) == 4, "once, and three retries"
        told = events(session, "tengu_compact_ptl_retry")
        assert [event["attempt"] for event in told] == [1, 2, 3]
        remaining = [event["remaining"] for event in told]
        assert remaining == sorted(remaining, reverse=True)


def client_call(session: Session, stub: StubApi) -> None:
    """A call of the client itself, with what `prepare/` gives and its own cache marker, as its agent would make it."""
    import anthropic

    told = actions.prepare(session=session, now=timezone.now()).context.context
    messages = [dict(message) for message in told.messages]
    last = [dict(block) for block in messages[-1]["content"]]
    last[-1]["cache_control"] = {"type": "ephemeral"}
    messages[-1] = {**messages[-1], "content": last}
    with anthropic.Anthropic(max_retries=0) as client:
        client.messages.create(model=MODEL, max_tokens=100, system=told.system, tools=told.tools, messages=messages)


class TestCacheSharing:
    @pytest.fixture
    def talk(self, provider: StubApi) -> Session:
        """100,000 tokens, the last reply a minute old, read by the provider when it was made."""
        tools = [{"name": "Read", "description": "reads a file", "input_schema": {"type": "object"}}]
        session = make_session(
            system="You are a careful engineer. " * 50, tools=tools, model=MODEL, policy_overrides=QUICK
        )
        append(session, *turns(38, size=3_000))
        append(session, user("and what now?", uuid="now"))
        session = Session.objects.select_related("team").get(pk=session.pk)
        client_call(session, provider)
        a_minute_ago = timezone.now() - timedelta(minutes=1)
        said = assistant("Next is the test.", uuid="next", message_id="next", sent_at=a_minute_ago)
        append(session, said, now=timezone.now())
        assert 90_000 < session.context_tokens < 120_000, session.context_tokens
        return session

    def test_the_prompt_is_read_from_the_cache(self, provider: StubApi, talk: Session) -> None:
        run = compact(talk)
        assert run.status == RunStatus.SUCCEEDED, run.detail
        assert self.share_read(run) >= 0.95
        assert run.shared_prefix is True
        assert run.cost_usd is not None
        assert run.cost_uncached_usd is not None
        assert run.cost_usd < run.cost_uncached_usd / 2

    def test_with_the_switch_off_nothing_is(self, provider: StubApi, talk: Session) -> None:
        talk.policy_overrides = {**QUICK, "cache_prefix": False}
        talk.save()
        run = compact(talk)
        assert run.status == RunStatus.SUCCEEDED, run.detail
        assert self.share_read(run) == 0
        assert run.shared_prefix is False
        assert run.cost_usd == run.cost_uncached_usd != None  # noqa: E711
        assert "tools" not in asked(provider)[-1]

    def share_read(self, run: CompactionRun) -> float:
        usage = run.usage
        read = usage.get("cache_read_input_tokens") or 0
        return read / (read + usage["input_tokens"] + (usage.get("cache_creation_input_tokens") or 0))


def execute_while(
    run: CompactionRun, stub: StubApi, act: Callable[[], Any], *, answers: bool = True
) -> CompactionRun | None:
    """Bring the run to its end, and do something while the stub holds its answer back; then it `answers`, or never.

    In the worker's own thread, between two looks at the stream: there the run's lease is renewed as well.
    """
    stub.hold()
    done: list[bool] = []

    def listen(stage: str, fraction: float) -> None:
        if not done and stub.of("/v1/messages"):
            done.append(True)
            act()
            if answers:
                stub.release()

    try:
        return runs.execute(run_id=run.pk, listener=listen)
    finally:
        stub.release()
        assert done, "it was never asked"


class TestMeanwhile:
    def test_a_message_that_comes_while_the_model_writes(self, provider: StubApi, session: Session) -> None:
        def act() -> None:
            append(session, user("meanwhile I say this", uuid="meanwhile"))
            with pytest.raises(runs.ActiveRun):
                queue(session)

        run = execute_while(queue(session), provider, act)
        assert run is not None
        assert run.status == RunStatus.SUCCEEDED, run.detail
        messages = sent(session)
        assert "meanwhile I say this" in repr(messages[-1])
        assert "Step 39 is done" in repr(messages[1:]), "the kept tail stands before it"
        assert CompactionRun.objects.filter(session=session).count() == 1

    def test_a_worker_that_finishes_late_publishes_nothing(self, provider: StubApi, session: Session) -> None:
        again: list[CompactionRun] = []
        run = queue(session)

        def act() -> None:
            CompactionRun.objects.filter(pk=run.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))
            runs.recover(now=timezone.now())
            provider.release()
            again.append(execute(CompactionRun.objects.get(pk=run.pk)))

        execute_while(run, provider, act)
        assert again[0].status == RunStatus.SUCCEEDED
        run.refresh_from_db()
        assert (run.status, run.attempt) == (RunStatus.SUCCEEDED, 2)
        assert session.boundaries.summarizing().count() == 1

    def test_cancelled_while_the_first_byte_is_awaited(self, provider: StubApi, session: Session) -> None:
        before = sent(session)
        run = queue(session)

        def act() -> None:
            CompactionRun.objects.filter(pk=run.pk).update(
                status=RunStatus.CANCELLED, lease_expires_at=None, finished_at=timezone.now()
            )

        execute_while(run, provider, act, answers=False)
        run.refresh_from_db()
        assert run.status == RunStatus.CANCELLED
        assert sent(session) == before
        assert [call.outcome for call in run.calls.all()] == ["stopped"]


LANGUAGES = {
    "Chinese": "请把登录页面的错误修好，然后运行测试。",
    "Japanese": "ログインページのバグを直して、テストを実行してください。",
    "Arabic": "أصلح الخطأ في صفحة تسجيل الدخول ثم شغّل الاختبارات.",
}


@pytest.mark.parametrize(("language", "words"), LANGUAGES.items())
def test_the_summary_is_asked_for_in_the_users_language(provider: StubApi, language: str, words: str) -> None:
    session = make_session(policy_overrides=QUICK)
    for number in range(40):
        append(session, user(f"{words} {number}"), assistant(f"OK {number} " * 40, message_id=f"r{number}"))
    translated = "\n".join(f"## {number}. {words[:6]}\n- {words}" for number in range(1, 10))
    provider.say(text=f"<analysis>…</analysis><summary>{translated}</summary>")
    run = compact(session)
    assert run.status == RunStatus.SUCCEEDED, run.detail
    assert language in words_of(asked(provider)[0])
    assert words in run.boundary.summary  # type: ignore[union-attr]


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def everything() -> Iterator[Any]:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}
    yield user([text("look at this"), image, pdf])
    yield assistant([thinking(), text("I look"), use("c1")], message_id="e1")
    yield user([res("c1", [text("shown"), image])])
    yield assistant([{"type": "redacted_thinking", "data": "abc"}, text("I see")], message_id="e2")
    yield user("search for it")
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    yield assistant([search, found, text("found")], message_id="e3")


@pytest.mark.parametrize("shared", [True, False])
def test_every_kind_of_block_is_taken(provider: StubApi, shared: bool) -> None:
    session = make_session(policy_overrides={**QUICK, "cache_prefix": shared})
    append(session, *everything(), *turns(30))
    append(session, assistant([thinking(), use("open")], message_id="open"))
    run = compact(session)
    assert run.status == RunStatus.SUCCEEDED, run.detail
    assert [call.outcome for call in run.calls.all()] == ["ok"]
    assert run.tokens_after is not None
    assert run.tokens_before is not None
    assert run.tokens_after < run.tokens_before / 2
