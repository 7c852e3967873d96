"""The stub of the Messages API is as strict, and fails in the same ways, as what it stands for (the real SDK sees)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import pytest

from compaction_app.engine.summary import SECTIONS, missing_sections, parse_summary
from tests.stub_api import COMPACTION_FAULTS, EVERY_FAULT, MODEL_FAULTS, Answer, StubApi, model

MODEL = "claude-sonnet-4-5"
EDITING = "context-management-2025-06-27"
SUMMARISE = [{"role": "user", "content": "Look at src/app.py and write a <summary>"}]
TOOLS = [{"name": "Read", "description": "reads " * 100, "input_schema": {"type": "object"}}]
MARK = {"type": "ephemeral"}


@pytest.fixture(scope="module")
def shared() -> Iterator[anthropic.Anthropic]:
    patch = pytest.MonkeyPatch()
    patch.setenv("no_proxy", "127.0.0.1")
    with anthropic.Anthropic(api_key="dummy", max_retries=0) as client:
        yield client
    patch.undo()


@pytest.fixture
def stub() -> Iterator[StubApi]:
    with StubApi(models=[model(f"{MODEL}-20250929"), model("claude-opus-5-5")]) as stub:
        yield stub


@pytest.fixture
def client(shared: anthropic.Anthropic, stub: StubApi) -> anthropic.Anthropic:
    return shared.with_options(base_url=stub.url, timeout=5)


def create(client: anthropic.Anthropic, **body: Any) -> Any:
    return client.post("/v1/messages", body=request(**body), cast_to=object)


def request(**body: Any) -> dict[str, Any]:
    whole = {"model": MODEL, "max_tokens": 5_000, "messages": SUMMARISE, **body}
    return {key: value for key, value in whole.items() if value is not None}


def streamed(client: anthropic.Anthropic, **body: Any) -> tuple[list[str], Any]:
    with client.messages.stream(**request(**body)) as stream:
        events = [str(event.type) for event in stream]
        return events, stream.get_final_message()


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


class TestAnswers:
    def test_events_come_in_order(self, client: anthropic.Anthropic) -> None:
        with client.messages.create(**request(), stream=True) as stream:
            events = list(stream)
        kinds = [event.type for event in events]
        assert kinds[:3] == ["message_start", "content_block_start", "content_block_delta"]
        assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
        assert set(kinds[2:-3]) == {"content_block_delta"}
        assert events[0].message.usage.input_tokens > 0

    def test_a_summary_by_default_is_well_formed_and_tells_of_the_request(self, client: anthropic.Anthropic) -> None:
        _, message = streamed(client)
        text = message.content[0].text
        assert text.startswith("<analysis>")
        assert "src/app.py" in text
        assert missing_sections(text=parse_summary(text=text)) == []
        assert message.id.startswith("msg_")

    def test_ids_are_unique(self, client: anthropic.Anthropic, stub: StubApi) -> None:
        first, second = client.messages.create(**request()), client.messages.create(**request())
        assert first.id != second.id
        assert [first._request_id, second._request_id] == [one.request_id for one in stub.requests]
        assert first._request_id != second._request_id
        assert [one.status for one in stub.requests] == [200, 200]

    def test_what_is_scripted_comes_in_turn_then_the_default(self, client: anthropic.Anthropic, stub: StubApi) -> None:
        stub.say(text="first")
        stub.say(blocks=[{"type": "tool_use", "id": "t", "name": "Read", "input": {"a": [1]}}], stop_reason="tool_use")
        stub.answer(Answer(blocks=(said("third"),), usage={"output_tokens": 77}))
        first, second, third, fourth = (streamed(client)[1] for _ in range(4))
        assert (first.content[0].text, first.stop_reason) == ("first", "end_turn")
        assert (second.content[0].input, second.stop_reason) == ({"a": [1]}, "tool_use")
        assert third.usage.output_tokens == 77
        assert SECTIONS[0] in fourth.content[0].text

    def test_a_plain_request_gets_a_short_reply(self, client: anthropic.Anthropic) -> None:
        _, message = streamed(client, messages=[{"role": "user", "content": "hello"}])
        assert 0 < len(message.content[0].text) < 100

    def test_the_answer_ends_at_max_tokens(self, client: anthropic.Anthropic) -> None:
        _, message = streamed(client, max_tokens=20)
        assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 20)

    @pytest.mark.parametrize("frames", [0, 3])
    def test_it_can_be_held(self, client: anthropic.Anthropic, stub: StubApi, frames: int) -> None:
        stub.hold(frames=frames)
        done: list[Any] = []
        thread = threading.Thread(target=lambda: done.append(streamed(client)))
        thread.start()
        [request] = stub.wait_for(path="/v1/messages")
        thread.join(0.1)
        assert not done
        assert request.frames == frames
        stub.release()
        thread.join(5)
        assert done
        with pytest.raises(TimeoutError):
            stub.wait_for(path="/v1/messages", count=2, seconds=0.01)

    def test_a_prompt_over_the_models_window(self, client: anthropic.Anthropic, stub: StubApi) -> None:
        stub.state.models[0]["max_input_tokens"] = 1_000
        with pytest.raises(anthropic.BadRequestError) as caught:
            create(client, messages=[user(said("x" * 5_000))])
        assert caught.value.api_message == "prompt is too long: 1250 tokens > 1000 maximum"
        long: Any = [user(said("x" * 5_000))]
        assert client.messages.count_tokens(model=MODEL, messages=long).input_tokens == 1_250
        stub.state.count = lambda body: 999
        stub.state.room_for_output = True
        with pytest.raises(anthropic.BadRequestError, match=r"999 \+ 5000 > 1000"):
            create(client)
        create(client, max_tokens=1)


BIG = "words " * 1_000  # 1,500 tokens


def prompt(**changes: Any) -> dict[str, Any]:
    return {"tools": TOOLS, "system": [said(BIG)], "messages": [user(said("hello", cache_control=MARK))], **changes}


def usage(client: anthropic.Anthropic, **body: Any) -> tuple[int, int, int]:
    """(uncached, read, written)"""
    told = create(client, **body)["usage"]
    assert sum(told["cache_creation"].values()) == told["cache_creation_input_tokens"]
    return told["input_tokens"], told["cache_read_input_tokens"], told["cache_creation_input_tokens"]


class TestCacheBooks:
    def test_the_same_prefix_is_read(self, client: anthropic.Anthropic) -> None:
        uncached, read, written = usage(client, **prompt())
        assert (uncached, read) == (0, 0)
        longer = [user(said("hello")), assistant(said("yes")), user(said("and now", cache_control=MARK))]
        assert usage(client, **prompt(messages=longer)) == (0, written, 3)
        _, message = streamed(client, **prompt())
        assert message.usage.cache_read_input_tokens == written

    @pytest.mark.parametrize(
        "changes",
        [
            {"tools": [*TOOLS, {"name": "Edit", "input_schema": {"type": "object"}}]},
            {"tools": None},
            {"system": [said(BIG + ".")]},
            {"model": "claude-opus-5-5"},
            {"thinking": {"type": "enabled", "budget_tokens": 2_000}},
            {"messages": [user(said("hello!", cache_control=MARK))]},
            {"messages": [user(said("hello"))]},
        ],
        ids=["tools", "no tools", "system", "model", "thinking", "message", "no marker"],
    )
    def test_another_is_not(self, client: anthropic.Anthropic, changes: dict[str, Any]) -> None:
        usage(client, **prompt())
        assert usage(client, **prompt(**changes))[1] == 0

    def test_moving_markers_and_the_form_of_a_text_do_not_count(self, client: anthropic.Anthropic) -> None:
        _, _, written = usage(client, **prompt())
        moved = prompt(system=BIG, messages=[{"role": "user", "content": "hello"}], cache_control=MARK)
        assert usage(client, **moved) == (0, written, 0)

    @pytest.mark.parametrize(("added", "hit"), [(19, True), (20, False)])
    def test_a_marker_looks_back_20_blocks(self, client: anthropic.Anthropic, added: int, hit: bool) -> None:
        _, _, written = usage(client, **prompt())
        more = [said(f"block {number}") for number in range(added)]
        more[-1]["cache_control"] = MARK
        assert usage(client, **prompt(messages=[user(said("hello"), *more)]))[1] == (written if hit else 0)

    @pytest.mark.parametrize(("ttl", "seconds"), [("5m", 300), ("1h", 3_600)])
    def test_it_ends_and_a_read_refreshes(
        self, client: anthropic.Anthropic, stub: StubApi, ttl: str, seconds: int
    ) -> None:
        stub.state.clock = lambda: 0.0
        marked = prompt(messages=[user(said("hello", cache_control={**MARK, "ttl": ttl}))])
        told = create(client, **marked)["usage"]
        assert told["cache_creation"][f"ephemeral_{ttl}_input_tokens"] == told["cache_creation_input_tokens"] > 0
        for _ in range(2):
            stub.state.skipped += seconds - 1
            assert usage(client, **marked)[1] > 0
        stub.state.skipped += seconds
        assert usage(client, **marked)[1] == 0

    def test_a_short_prefix_is_not_kept(self, client: anthropic.Anthropic, stub: StubApi) -> None:
        short = prompt(system=[said("words " * 500)])
        for _ in range(2):
            assert usage(client, **short)[1:] == (0, 0)
        stub.state.minimum = 512
        usage(client, **short)
        assert usage(client, **short)[1] > 0

    def test_a_refused_call_writes_nothing(self, client: anthropic.Anthropic, stub: StubApi) -> None:
        stub.fail("529")
        with pytest.raises(anthropic.OverloadedError):
            create(client, **prompt())
        assert usage(client, **prompt())[1] == 0

    def test_edits_are_applied_before(self, client: anthropic.Anthropic) -> None:
        use = {"type": "tool_use", "id": "t1", "name": "Read", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "t1", "content": BIG}
        edit = {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 0}}
        edit["keep"] = {"type": "tool_uses", "value": 0}
        body = request(messages=[user(said("a")), assistant(use), user(result)], context_management={"edits": [edit]})
        told = client.beta.messages.create(**body, betas=[EDITING])
        [applied] = told.context_management.applied_edits
        assert applied.cleared_tool_uses == 1
        assert applied.cleared_input_tokens > 1_000 > told.usage.input_tokens
        with client.beta.messages.stream(**body, betas=[EDITING]) as stream:
            final: Any = stream.get_final_message()
        assert final.context_management.applied_edits == [applied]


def marked(count: int) -> list[Any]:
    return [user(*[said(f"t{number}", cache_control=MARK) for number in range(count)])]


def edits(**changes: Any) -> dict[str, Any]:
    return {"context_management": {"edits": [{"type": "clear_tool_uses_20250919", **changes}]}}


THOUGHT = {"type": "thinking", "thinking": "so", "signature": "s"}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"tomorrow": 1}, "tomorrow: Extra inputs are not permitted"),
    "temperature": ({"temperature": 1.0}, "temperature: Extra inputs are not permitted"),
    "top_p": ({"top_p": 1.0}, "top_p: Extra inputs are not permitted"),
    "top_k": ({"top_k": 1}, "top_k: Extra inputs are not permitted"),
    "no max_tokens": ({"max_tokens": None}, "max_tokens: Field required"),
    "max_tokens over the model's": ({"max_tokens": 64_001}, "64001 > 64000"),
    "no model": ({"model": None}, "model: Field required"),
    "no messages": ({"messages": []}, "at least one message"),
    "assistant first": ({"messages": [assistant(said("a")), user(said("b"))]}, "the first message"),
    "prefill": ({"messages": [*SUMMARISE, assistant(said("a"))]}, "must end with a user message"),
    "blank text": ({"messages": [user(said(" "))]}, "blank"),
    "open call": (
        {"messages": [*SUMMARISE, assistant({"type": "tool_use", "id": "t", "name": "R", "input": {}}), *SUMMARISE]},
        "has 0 results",
    ),
    "unknown key of a message": ({"messages": [{**SUMMARISE[0], "uuid": "1"}]}, "extra inputs"),
    "five markers": ({"messages": marked(4), "cache_control": MARK}, "Found 5"),
    "five markers in all": ({"messages": marked(4), "system": [said("a", cache_control=MARK)]}, "Found 5"),
    "marker of a strange kind": ({"cache_control": {"type": "durable"}}, "'ephemeral'"),
    "marker of a strange ttl": ({"cache_control": {**MARK, "ttl": "2h"}}, "'5m' or '1h'"),
    "marker on thinking": (
        {"messages": [*SUMMARISE, assistant({**THOUGHT, "cache_control": MARK}, said("a")), *SUMMARISE]},
        "cache_control",
    ),
    "marker on a blank text": ({"system": [said("  ", cache_control=MARK)]}, "non-whitespace"),
    "long ttl after a short one": (
        {"system": [said("a", cache_control=MARK)], "cache_control": {**MARK, "ttl": "1h"}},
        "must not come after",
    ),
    "tools no list": ({"tools": {"name": "Read"}}, "tools"),
    "tool without schema": ({"tools": [{"name": "Read"}]}, "input_schema"),
    "tool with a strange key": ({"tools": [{**TOOLS[0], "uuid": 1}]}, "uuid: Extra inputs"),
    "tools of one name": ({"tools": TOOLS * 2}, "unique"),
    "tool_choice without tools": ({"tool_choice": {"type": "none"}}, "tool_choice"),
    "system of a strange kind": ({"system": [{"type": "image"}]}, "system.0"),
    "edits without beta": (edits(), "context_management: Extra inputs are not permitted"),
    "compaction without beta": ({"compaction": {"type": "summarize"}}, "compaction: Extra inputs"),
    "thinking over max_tokens": ({"thinking": {"type": "enabled", "budget_tokens": 5_000}}, "greater than"),
}


class TestValidation:
    @pytest.mark.parametrize(("changes", "words"), REFUSED.values(), ids=list(REFUSED))
    def test_refused(self, client: anthropic.Anthropic, changes: dict[str, Any], words: str) -> None:
        with pytest.raises(anthropic.BadRequestError) as caught:
            create(client, **changes)
        assert caught.value.type == "invalid_request_error"
        assert words in str(caught.value.api_message)

    @pytest.mark.parametrize(
        ("changes", "fine"),
        [
            ({}, True),
            ({"keep": {"type": "tool_uses", "value": 2}, "exclude_tools": ["Read"], "clear_tool_inputs": True}, True),
            ({"keep": 2}, False),
            ({"trigger": {"type": "messages", "value": 2}}, False),
            ({"tool_use_ids": ["t1"]}, False),
            ({"type": "cache_edits"}, False),
        ],
    )
    def test_edits_with_beta(self, client: anthropic.Anthropic, changes: dict[str, Any], fine: bool) -> None:
        def call() -> Any:
            options: Any = {"headers": {"anthropic-beta": EDITING}}
            return client.post("/v1/messages", body=request(**edits(**changes)), cast_to=object, options=options)

        if fine:
            assert call()["context_management"] == {"applied_edits": []}
        else:
            with pytest.raises(anthropic.BadRequestError, match=r"context_management\.edits\.0"):
                call()

    def test_an_unknown_model(self, client: anthropic.Anthropic) -> None:
        with pytest.raises(anthropic.NotFoundError):
            create(client, model="claude-nobody")

    def test_a_body_over_the_limit(self, client: anthropic.Anthropic, stub: StubApi) -> None:
        assert stub.state.most_body_bytes == 32 * 1024 * 1024
        stub.state.most_body_bytes = 1_000
        with pytest.raises(anthropic.APIStatusError) as caught:
            create(client, messages=[user(said("x" * 1_000))])
        assert (caught.value.status_code, caught.value.type) == (413, "request_too_large")


def seen(call: Callable[[], tuple[list[str], Any]]) -> tuple[Any, ...]:
    """What a caller of the SDK gets: (class, status, type) of an error, or (stop reason, types of the blocks)."""
    try:
        message = call()[1]
    except Exception as error:
        return type(error).__name__, getattr(error, "status_code", None), getattr(error, "type", None)
    return message.stop_reason, *(block.type for block in message.content)


FINE = ("end_turn", "text")
BAD = ("BadRequestError", 400, "invalid_request_error")
SEEN: dict[str, tuple[Any, ...]] = {
    "400-too-long-no-figures": BAD,
    "400-output-too-long": BAD,
    "bedrock-too-long": BAD,
    "gateway-too-long": ("BadRequestError", 400, None),
    "402": ("PaymentRequiredError", 402, "billing_error"),
    "408": ("RequestTimeoutError", 408, "timeout_error"),
    "409": ("ConflictError", 409, "conflict_error"),
    "413-json": ("ContentTooLargeError", 413, "request_too_large"),
    "429-short": ("RateLimitError", 429, "rate_limit_error"),
    "429-bare": ("RateLimitError", 429, "rate_limit_error"),
    "429-date": ("RateLimitError", 429, "rate_limit_error"),
    "500-final": ("InternalServerError", 500, "api_error"),
    "502-html": ("InternalServerError", 502, None),
    "503": ("ServiceUnavailableError", 503, "api_error"),
    "504": ("GatewayTimeoutError", 504, "timeout_error"),
    "slow": ("APITimeoutError", None, None),
    "stream-overloaded": ("APIStatusError", 200, "overloaded_error"),
    "stream-api-error": ("APIStatusError", 200, "api_error"),
    "stream-too-long": ("APIStatusError", 200, "invalid_request_error"),
    "stream-error-first": ("APIStatusError", 200, "overloaded_error"),
    "truncated": (None, "text"),
    "no-message-stop": FINE,
    "half-frame": FINE,
    "cut": ("RemoteProtocolError", None, None),
    "silent-mid-stream": ("ReadTimeout", None, None),
    "duplicated-events": ("end_turn", "text", "text"),
    "unknown-events": FINE,
    "blank": FINE,
    "only-thinking": ("end_turn", "thinking"),
    "tool-call": ("tool_use", "tool_use"),
    "max-tokens": ("max_tokens", "text"),
    "window-exceeded": ("model_context_window_exceeded", "text"),
    "pause-turn": ("pause_turn", "text"),
    "unknown-stop": ("tomorrow_reason", "text"),
    "refusal": ("refusal", "text"),
    "overlong": FINE,
    "missing-sections": FINE,
    "no-tags": FINE,
    "only-analysis": FINE,
    "empty-content": ("end_turn",),
    "unknown-block": ("end_turn", "tomorrow_block"),
    "sparse-usage": FINE,
    "other-model": FINE,
    "400-too-long": BAD,
    "400": BAD,
    "401": ("AuthenticationError", 401, "authentication_error"),
    "403": ("PermissionDeniedError", 403, "permission_error"),
    "404": ("NotFoundError", 404, "not_found_error"),
    "413-html": ("ContentTooLargeError", 413, None),
    "429": ("RateLimitError", 429, "rate_limit_error"),
    "500": ("InternalServerError", 500, "api_error"),
    "529": ("OverloadedError", 529, "overloaded_error"),
    # A body that is no stream at all: the SDK has no message to give.
    **dict.fromkeys(
        ["garbage", "list", "number", "null-parts", "text-parts", "html", "empty"], ("AssertionError", None, None)
    ),
    "silent": ("APITimeoutError", None, None),
    "hangs-up": ("APIConnectionError", None, None),
}


class TestFaults:
    def test_every_fault_is_told_of_here(self) -> None:
        assert set(SEEN) | COMPACTION_FAULTS == set(EVERY_FAULT)

    @pytest.mark.parametrize("name", sorted(SEEN))
    def test_what_the_sdk_makes_of_it(self, client: anthropic.Anthropic, stub: StubApi, name: str) -> None:
        stub.state.slow_seconds = 0.5
        quick = client.with_options(timeout=0.25)
        stub.fail(name)
        assert seen(lambda: streamed(quick)) == SEEN[name]
        assert stub.requests[0].fault == name
        assert seen(lambda: streamed(client)) == FINE, "only once"

    def test_slow_is_only_slow(self, client: anthropic.Anthropic, stub: StubApi) -> None:
        stub.state.slow_seconds = 0.1
        stub.keep_failing("slow")
        assert seen(lambda: streamed(client)) == FINE

    def test_faults_of_a_stream_leave_json_alone(self, client: anthropic.Anthropic, stub: StubApi) -> None:
        stub.keep_failing("cut")
        assert create(client)["stop_reason"] == "end_turn"

    @pytest.mark.parametrize("name", ["529", "blank"])
    def test_faults_of_models_wait_for_a_call_of_one(
        self, client: anthropic.Anthropic, stub: StubApi, name: str
    ) -> None:
        stub.fail(name)
        if name in MODEL_FAULTS:
            assert client.models.retrieve("claude-opus-5-5").id == "claude-opus-5-5"
            assert create(client)["content"][0]["text"].strip() == ""
        else:
            with pytest.raises(anthropic.OverloadedError):
                client.models.retrieve("claude-opus-5-5")

    def test_only_where_the_body_is_such(self, client: anthropic.Anthropic, stub: StubApi) -> None:
        stub.fail_when(lambda body: "tools" in (body or {}), "400-too-long")
        assert seen(lambda: streamed(client)) == FINE
        assert seen(lambda: streamed(client, tools=TOOLS)) == BAD

    def test_a_short_pause_is_one(self, client: anthropic.Anthropic, stub: StubApi) -> None:
        stub.fail("429-short")
        assert seen(lambda: streamed(client.with_options(max_retries=1))) == FINE
        assert [one.headers["x-stainless-retry-count"] for one in stub.requests] == ["0", "1"]
