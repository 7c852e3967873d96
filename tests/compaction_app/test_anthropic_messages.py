"""A request of the Messages API, streamed: the real SDK on real sockets, and every way in which it can go wrong."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import logging
import signal
import socket
import threading
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from compaction_app.engine.model_summary.cost import total_usage
from compaction_app.engine.outcome import CompactionCancelled
from compaction_app.engine.overflow import OverflowKind
from compaction_app.engine.ports import Completion, ModelRequest, ProviderError, ProviderProblem
from compaction_app.llm import anthropic_messages, anthropic_stream
from compaction_app.llm.anthropic_api import AnthropicCounter
from compaction_app.llm.anthropic_errors import retry_after
from compaction_app.llm.anthropic_messages import AnthropicModel
from sessions_app.transcript.request import MessagesRequest
from tests.stub_api import COMPACTION_FAULTS, EVERY_FAULT, MESSAGES_PATH, Answer, StubApi

MODEL = "claude-sonnet-4-5-20250929"
MESSAGES = [{"role": "user", "content": "Summarise SECRET-PROMPT."}]
P = ProviderProblem


def ask(
    *,
    heard: Callable[[int], None] = lambda characters: None,
    seconds: float = 20.0,
    silence: float = 10.0,
    max_tokens: int = 4_000,
    **more: Any,
) -> Completion:
    request = ModelRequest(model=MODEL, max_tokens=max_tokens, messages=more.pop("messages", MESSAGES), **more)
    return AnthropicModel().complete(request=request, seconds=seconds, silence_seconds=silence, heard=heard)


def failed(**how: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        ask(**how)
    told = caught.value
    assert "SECRET" not in str(told) + repr(told.__dict__)
    assert told.__context__ is None, "what the SDK raised quotes request and answer"
    return told


@pytest.fixture(scope="module", autouse=True)
def only_new_objects_are_looked_through() -> Iterator[None]:
    """`nothing_is_left` collects after each test."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def nothing_is_left(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No socket, loop, task or coroutine outlives its call, however that ends."""
    with warnings.catch_warnings(record=True) as seen, caplog.at_level(logging.WARNING, logger="asyncio"):
        warnings.simplefilter("always")
        yield
        gc.collect()
    kinds = (ResourceWarning, RuntimeWarning, UserWarning)
    # The SDK says of old models that they are old.
    told = [w for w in seen if issubclass(w.category, kinds) and not issubclass(w.category, DeprecationWarning)]
    assert [str(w.message) for w in told] == []
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


class RawServer:
    """One that says what no stub would: `script` gets the socket once a request has come in whole."""

    def __init__(self, script: Callable[[socket.socket], None]) -> None:
        self.script = script
        self.asked, self.hung_up, self.stopping = threading.Event(), threading.Event(), threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(0.05)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        while not self.stopping.is_set():
            try:
                link, _ = self._listening.accept()
            except TimeoutError:
                continue
            with link:
                self._talk(link)

    def _talk(self, link: socket.socket) -> None:
        link.settimeout(10)
        received = b""
        while b"\r\n\r\n" not in received:
            received += link.recv(65_536)
        head, _, body = received.partition(b"\r\n\r\n")
        size = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-len"))
        while len(body) < size:
            body += link.recv(65_536)
        self.asked.set()
        try:
            self.script(link)
            if not link.recv(1):
                self.hung_up.set()
        except ConnectionError:
            self.hung_up.set()
        except TimeoutError:
            pass

    def __enter__(self) -> RawServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._thread.join()
        self._listening.close()


@pytest.fixture
def raw(provider: StubApi, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., RawServer]]:
    """Starts a raw server that the environment names from then on."""
    started: list[RawServer] = []

    def start(script: Callable[[socket.socket], None] = lambda link: None) -> RawServer:
        server = RawServer(script)
        started.append(server.__enter__())
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        return server

    yield start
    for server in started:
        server.__exit__()


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nrequest-id: req_1\r\nconnection: close\r\n"
USAGE = {"input_tokens": 25, "cache_read_input_tokens": 7, "output_tokens": 1}


def event(kind: str, **data: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()


def started(**message: Any) -> bytes:
    given = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": USAGE}
    return event("message_start", message={**given, **message})


def block(index: Any = 0, **given: Any) -> bytes:
    return event("content_block_start", index=index, content_block={"type": "text", "text": "", **given})


def said(text: Any, index: Any = 0) -> bytes:
    return event("content_block_delta", index=index, delta={"type": "text_delta", "text": text})


def ended(reason: Any = "end_turn", **usage: Any) -> bytes:
    closing = event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 5, **usage})
    return closing + event("message_stop")


def whole(*frames: bytes) -> Callable[[socket.socket], None]:
    """A response of these frames, and its end."""
    return lambda link: (link.sendall(HEAD + b"\r\n" + b"".join(frames)), link.shutdown(socket.SHUT_WR))[1]


class TestSuccess:
    def test_what_came(self, provider: StubApi) -> None:
        provider.say(text="Hello, " * 100 + "world")
        told = ask(system="Be brief.", tools=[{"name": "Read", "input_schema": {"type": "object"}}])
        [request] = provider.of(MESSAGES_PATH)
        assert told.text == "Hello, " * 100 + "world"
        assert (told.stop_reason, told.blocks, told.model) == ("end_turn", ("text",), MODEL)
        assert request.message is not None
        assert (told.response_id, told.request_id) == (request.message["id"], request.request_id)
        assert told.usage["input_tokens"] > 0
        assert told.usage["output_tokens"] == request.message["usage"]["output_tokens"]
        assert json.loads(json.dumps(told.usage)) == told.usage
        assert request.body == {
            "model": MODEL,
            "max_tokens": 4_000,
            "messages": MESSAGES,
            "system": "Be brief.",
            "tools": [{"name": "Read", "input_schema": {"type": "object"}}],
            "stream": True,
        }
        assert "anthropic-beta" not in request.headers

    def test_betas_and_edits(self, provider: StubApi) -> None:
        edits = {"edits": [{"type": "clear_tool_uses_20250919"}]}
        ask(context_management=edits, betas=("context-management-2025-06-27",))
        [request] = provider.of(MESSAGES_PATH)
        assert request.headers["anthropic-beta"] == "context-management-2025-06-27"
        assert request.body["context_management"] == edits

    def test_text_of_several_blocks(self, provider: StubApi) -> None:
        call = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "x"}}
        thought = {"type": "thinking", "thinking": "SECRET", "signature": "c2ln"}
        blocks = (thought, {"type": "text", "text": "a"}, call, {"type": "text", "text": "b"})
        provider.answer(Answer(blocks=blocks))
        told = ask()
        assert (told.text, told.stop_reason) == ("ab", "tool_use")
        assert told.blocks == ("thinking", "text", "tool_use", "text")

    def test_usage_of_every_kind(self, provider: StubApi) -> None:
        iterations = [{"type": "compaction", "input_tokens": 9, "output_tokens": 2, "cache_creation": None}]
        provider.answer(
            Answer(
                blocks=({"type": "text", "text": "a"},),
                usage={"server_tool_use": {"web_search_requests": 1}},
                delta_usage={"iterations": iterations, "cache_read_input_tokens": None, "output_tokens": 77},
            )
        )
        usage = ask().usage
        assert usage["output_tokens"] == 77
        assert usage["cache_read_input_tokens"] == 0, "null leaves what message_start told"
        assert usage["cache_creation"] == {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}
        assert usage["server_tool_use"] == {"web_search_requests": 1}
        assert usage["iterations"] == [{"type": "compaction", "input_tokens": 9, "output_tokens": 2}]

    @pytest.mark.parametrize("in_thread", [False, True])
    def test_from_any_thread_without_a_loop(self, provider: StubApi, in_thread: bool) -> None:
        told: list[Completion] = []
        if in_thread:
            worker = threading.Thread(target=lambda: told.append(ask()))
            worker.start()
            worker.join(20)
        else:
            told.append(ask())
        assert told[0].stop_reason == "end_turn"

    def test_several_at_once(self, provider: StubApi) -> None:
        told: list[Completion] = []
        workers = [threading.Thread(target=lambda: told.append(ask())) for _ in range(6)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(20)
        assert len(told) == 6

    def test_the_end_is_noticed_at_once(self, provider: StubApi, monkeypatch: pytest.MonkeyPatch) -> None:
        ask()
        monkeypatch.setattr(anthropic_messages, "TICK_SECONDS", 30.0)
        began = time.monotonic()
        ask()
        assert time.monotonic() - began < 5


COMPACTING: dict[str, Any] = {"compaction": {"type": "summarize"}, "betas": ("compact-2026-09-04",)}


class TestCompaction:
    def test_the_block_is_kept_to_the_letter(self, provider: StubApi) -> None:
        tomorrow = {"z": [1, 2.5, {"y": None}], "a": 10**20, "text": "a\n\nb é ☃ 😀 \u2028 \x00"}
        block = {
            "signature": "c2ln",
            "tomorrow": tomorrow,
            "type": "compaction",
            "tool_changes": [],
            "content": "é\r\n",
        }
        provider.say(blocks=[block], stop_reason="compaction")
        told = ask(**COMPACTING)
        assert (told.stop_reason, told.text, told.blocks) == ("compaction", "", ("compaction",))
        assert json.dumps(told.compactions) == json.dumps([block]), "the order of keys too"
        [sent] = provider.of(MESSAGES_PATH)
        assert sent.headers["anthropic-beta"] == "compact-2026-09-04"
        assert sent.body["compaction"] == {"type": "summarize"}

    def test_what_it_used_stands_in_its_iteration(self, provider: StubApi) -> None:
        usage = ask(**COMPACTING).usage
        assert (usage["input_tokens"], usage["output_tokens"]) == (0, 0)
        [iteration] = usage["iterations"]
        assert iteration["type"] == "compaction"
        assert iteration["input_tokens"] > 0
        assert total_usage([usage])["input_tokens"] == iteration["input_tokens"]

    @pytest.mark.parametrize("characters", [1, 7, 100_000])
    def test_a_large_block_in_pieces_of_any_size(self, raw: Callable[..., RawServer], characters: int) -> None:
        block = {"type": "compaction", "content": "x\n\n☃" * 300, "signature": "c2ln"}
        start = {"type": "content_block_start", "index": 0, "content_block": block}
        bare = {"id": "m", "type": "message", "role": "assistant", "model": MODEL, "content": [], "usage": {}}
        ended = {"type": "message_delta", "delta": {"stop_reason": "compaction"}, "usage": {"output_tokens": 0}}
        events = [{"type": "message_start", "message": bare}, start, ended, {"type": "message_stop"}]
        body = "".join(f"event: {e['type']}\r\ndata: {json.dumps(e, ensure_ascii=False)}\r\n\r\n" for e in events)

        def script(link: socket.socket) -> None:
            link.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            told = body.encode()
            for begin in range(0, len(told), characters):
                link.sendall(told[begin : begin + characters])
            link.shutdown(socket.SHUT_WR)

        raw(script)
        assert ask(**COMPACTING).compactions == (block,)

    def test_the_name_of_the_cause_is_told(self, provider: StubApi) -> None:
        provider.fail("compaction-signature_invalid", "compaction-unavailable", "400")
        told = [failed(**COMPACTING) for _ in range(3)]
        assert [one.code for one in told] == ["compaction_signature_invalid", "compaction_unavailable", ""]
        assert [one.problem for one in told] == [P.REFUSED, P.OVERLOADED, P.REFUSED]
        assert "compaction_signature_invalid" in str(told[0])

    def test_no_block_is_looked_for_where_none_is_asked_for(self, provider: StubApi) -> None:
        assert ask().compactions == ()


# Fault -> what the error is; a stop reason (or None) where a response comes all the same.
PROBLEMS: dict[str, ProviderProblem] = {
    "400-too-long": P.TOO_LONG,
    "400-too-long-no-figures": P.TOO_LONG,
    "400-output-too-long": P.TOO_LONG,
    "bedrock-too-long": P.TOO_LONG,
    "gateway-too-long": P.TOO_LONG,
    "stream-too-long": P.TOO_LONG,
    "413-html": P.TOO_LARGE,
    "413-json": P.TOO_LARGE,
    "400": P.REFUSED,
    "404": P.REFUSED,
    "401": P.CREDENTIALS,
    "402": P.CREDENTIALS,
    "403": P.CREDENTIALS,
    "429": P.RATE_LIMITED,
    "429-short": P.RATE_LIMITED,
    "429-bare": P.RATE_LIMITED,
    "429-date": P.RATE_LIMITED,
    "529": P.OVERLOADED,
    "stream-overloaded": P.OVERLOADED,
    "stream-error-first": P.OVERLOADED,
    "409": P.SERVER_ERROR,
    "500": P.SERVER_ERROR,
    "500-final": P.SERVER_ERROR,
    "502-html": P.SERVER_ERROR,
    "503": P.SERVER_ERROR,
    "stream-api-error": P.SERVER_ERROR,
    "408": P.TIMEOUT,
    "504": P.TIMEOUT,
    "silent": P.TIMEOUT,
    "silent-mid-stream": P.TIMEOUT,
    "garbage": P.UNREADABLE,
    "list": P.UNREADABLE,
    "number": P.UNREADABLE,
    "null-parts": P.UNREADABLE,
    "text-parts": P.UNREADABLE,
    "html": P.UNREADABLE,
    "hangs-up": P.UNREACHABLE,
    "cut": P.UNREACHABLE,
}
SILENT = {"silent", "silent-mid-stream"}
STOPS: dict[str, str | None] = {
    "empty": None,
    "truncated": None,
    "half-frame": "end_turn",
    "no-message-stop": "end_turn",
    "slow": "end_turn",
    "duplicated-events": "end_turn",
    "unknown-events": "end_turn",
    "blank": "end_turn",
    "only-thinking": "end_turn",
    "tool-call": "tool_use",
    "max-tokens": "max_tokens",
    "window-exceeded": "model_context_window_exceeded",
    "pause-turn": "pause_turn",
    "unknown-stop": "tomorrow_reason",
    "refusal": "refusal",
    "overlong": "end_turn",
    "missing-sections": "end_turn",
    "no-tags": "end_turn",
    "only-analysis": "end_turn",
    "empty-content": "end_turn",
    "unknown-block": "end_turn",
    "sparse-usage": "end_turn",
    "other-model": "end_turn",
}


class TestFaults:
    def test_every_fault_has_its_row_here(self) -> None:
        assert {*PROBLEMS, *STOPS, *COMPACTION_FAULTS} == set(EVERY_FAULT), "those of a compaction: test_native.py"

    @pytest.mark.parametrize(("fault", "problem"), PROBLEMS.items())
    def test_errors(self, provider: StubApi, fault: str, problem: ProviderProblem) -> None:
        provider.keep_failing(fault)
        told = failed(silence=0.4 if fault in SILENT else 10.0)
        assert told.problem == problem
        assert len(provider.requests) == 1, "the SDK tries nothing again"
        assert (told.overflow is not None) == (problem in (P.TOO_LONG, P.TOO_LARGE))
        if problem not in (P.TIMEOUT, P.UNREACHABLE):
            assert told.status == provider.requests[0].status
            assert told.request_id == provider.requests[0].request_id

    @pytest.mark.parametrize(("fault", "reason"), STOPS.items())
    def test_responses(self, provider: StubApi, fault: str, reason: str | None) -> None:
        provider.state.slow_seconds = 0.2
        provider.keep_failing(fault)
        told = ask()
        assert told.stop_reason == reason
        assert len(provider.requests) == 1
        assert json.loads(json.dumps(told.usage)) == told.usage

    @pytest.mark.parametrize("fault", ["400-too-long", "stream-overloaded", "cut", "html", "duplicated-events"])
    def test_with_betas_it_is_the_same(self, provider: StubApi, fault: str) -> None:
        provider.keep_failing(fault)
        betas = ("compact-2026-01-12",)
        if fault in PROBLEMS:
            assert failed(betas=betas).problem == PROBLEMS[fault]
        else:
            assert ask(betas=betas).stop_reason == STOPS[fault]

    def test_how_much_too_long(self, provider: StubApi) -> None:
        provider.fail("400-too-long", "stream-too-long", "400-output-too-long", "413-html", "gateway-too-long")
        told = [failed().overflow for _ in range(5)]
        assert [(one.kind, one.gap_tokens) for one in told if one] == [
            (OverflowKind.TOKENS, 4_123),
            (OverflowKind.TOKENS, 4_123),
            (OverflowKind.OUTPUT, 9_573),
            (OverflowKind.BYTES, None),
            (OverflowKind.TOKENS, None),
        ]

    def test_how_long_to_wait(self, provider: StubApi) -> None:
        provider.fail("429", "429-short", "429-bare", "429-date")
        assert [failed().retry_after for _ in range(4)] == [3_600.0, 0.01, None, None]

    @pytest.mark.parametrize("fault", ["stream-overloaded", "stream-too-long", "cut", "silent-mid-stream"])
    def test_what_was_billed_is_told(self, provider: StubApi, fault: str) -> None:
        provider.keep_failing(fault)
        told = failed(silence=0.4 if fault in SILENT else 10.0)
        [request] = provider.requests
        assert request.usage is not None
        assert told.usage["input_tokens"] == request.usage["input_tokens"] > 0
        assert told.request_id == request.request_id

    def test_events_that_come_twice_count_once(self, provider: StubApi) -> None:
        text = "ha ha " * 100
        provider.state.frame_characters = 3
        for fault in ("duplicated-events", "unknown-events", None):
            provider.say(text=text)
            provider.keep_failing(fault)
            assert ask().text == text

    def test_a_part_is_told_where_the_stream_ends_early(self, provider: StubApi) -> None:
        provider.say(text="first half, second half" * 100)
        provider.fail("truncated")
        told = ask()
        assert 0 < len(told.text) < 2_300
        assert told.usage["input_tokens"] > 0


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://127.0.0.1:9", P.UNREACHABLE),
        ("127.0.0.1", P.UNREACHABLE),
        ("ftp://127.0.0.1", P.UNREACHABLE),
        ("http://127.0.0.1:port", P.UNREACHABLE),
    ],
)
def test_nobody_there(provider: StubApi, monkeypatch: pytest.MonkeyPatch, url: str, problem: ProviderProblem) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
    assert failed().problem == problem


def test_without_a_key_nothing_is_sent(provider: StubApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    assert failed().problem == P.CREDENTIALS
    assert provider.requests == []


# Status, type, problem: the type says more than the status, but not where everything has that type.
TYPES = [
    (400, "overloaded_error", P.OVERLOADED),
    (400, "rate_limit_error", P.RATE_LIMITED),
    (400, "billing_error", P.CREDENTIALS),
    (500, "authentication_error", P.CREDENTIALS),
    (500, "overloaded_error", P.OVERLOADED),
    (401, "invalid_request_error", P.CREDENTIALS),
    (429, "invalid_request_error", P.RATE_LIMITED),
    (529, "api_error", P.OVERLOADED),
    (422, "tomorrow_error", P.REFUSED),
    (501, "tomorrow_error", P.SERVER_ERROR),
    (431, "", P.REFUSED),
]


@pytest.mark.parametrize(("status", "kind", "problem"), TYPES)
def test_the_type_decides(raw: Any, status: int, kind: str, problem: ProviderProblem) -> None:
    body = json.dumps({"type": "error", "error": {"type": kind, "message": "SECRET"}}).encode()
    head = f"HTTP/1.1 {status} No\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    raw(lambda link: link.sendall(head.encode() + body))
    told = failed()
    assert (told.problem, told.status) == (problem, status)


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (400, b'{"message":"Input is too long for requested model."}', P.TOO_LONG),
        (400, b'{"error":"prompt is too long: 204123 tokens > 200000 maximum"}', P.TOO_LONG),
        (400, b'{"error":{"code":"context_length_exceeded","message":"no"}}', P.TOO_LONG),
        (400, b"prompt is too long", P.TOO_LONG),
        (400, b"", P.TOO_LONG),
        (413, b"", P.TOO_LARGE),
        (429, b"prompt is too long", P.RATE_LIMITED),
        (400, b'{"error":[1,{"message":2}]}', P.REFUSED),
        (400, b'{"error":{"type":["x"],"message":{"a":1}}}', P.REFUSED),
        (503, b"[" * 100_000, P.SERVER_ERROR),
    ],
)
def test_bodies_of_gateways(raw: Any, status: int, body: bytes, problem: ProviderProblem) -> None:
    head = f"HTTP/1.1 {status} No\r\ncontent-length: {len(body)}\r\n\r\n"
    raw(lambda link: link.sendall(head.encode() + body))
    assert failed().problem == problem


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "nan", "retry-after": "7"}, 7.0),
        ({}, None),
        *[
            ({"retry-after": told}, None)
            for told in ("nan", "inf", "-inf", "-5", "0", "1e300", "9" * 5_000, "soon", "", "86401")
        ],
        ({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}, None),
        ({"retry-after": "Fri, 31 Dec 99999999999999999999 23:59:59 GMT"}, None),
        ({"retry-after": "Fri, 31 Dec 2049 23:59:59 +9999999999"}, None),
    ],
)
def test_retry_after(headers: Mapping[str, str], expected: Any) -> None:
    assert retry_after(headers=headers) == expected


def test_retry_after_as_a_date() -> None:
    in_an_hour = format_datetime(datetime.now(tz=UTC) + timedelta(hours=1), usegmt=True)
    assert retry_after(headers={"retry-after": in_an_hour}) == pytest.approx(3_600, abs=60)


class TestHeard:
    def test_it_is_called_while_the_first_byte_is_awaited(
        self, provider: StubApi, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(anthropic_messages, "TICK_SECONDS", 0.05)
        provider.hold()
        heard: list[int] = []

        def hear(characters: int) -> None:
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()
            heard.append(characters)
            if len(heard) == 5:
                provider.release()

        assert ask(heard=hear).stop_reason == "end_turn"
        assert len(heard) >= 5
        assert set(heard[:5]) == {0}

    def test_about_once_a_second(self) -> None:
        assert 0.2 <= anthropic_messages.TICK_SECONDS <= 1

    def test_it_tells_how_much_has_come(self, provider: StubApi, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(anthropic_messages, "TICK_SECONDS", 0.02)
        provider.state.frame_characters, provider.state.frame_seconds = 10, 0.02
        provider.say(text="0123456789" * 20)
        heard: list[int] = []
        ask(heard=heard.append)
        assert heard == sorted(heard)
        assert 0 < heard[-1] <= 200

    @pytest.mark.parametrize("after", [b"", HEAD + b"\r\n" + started() + block() + said("SECRET")])
    @pytest.mark.parametrize("stop", [CompactionCancelled("cancelled"), KeyboardInterrupt(), ValueError("a bug")])
    def test_what_it_raises_ends_the_call_and_its_connection(
        self, raw: Any, monkeypatch: pytest.MonkeyPatch, stop: BaseException, after: bytes
    ) -> None:
        monkeypatch.setattr(anthropic_messages, "TICK_SECONDS", 0.05)
        server = raw(lambda link: link.sendall(after))

        def hear(characters: int) -> None:
            if server.asked.is_set() and bool(after) == bool(characters):
                raise stop

        began = time.monotonic()
        with pytest.raises(type(stop)) as caught:
            ask(heard=hear, seconds=60, silence=60)
        assert caught.value is stop
        assert time.monotonic() - began < 5
        assert server.hung_up.wait(2), "the connection is closed at once"

    def test_an_interrupt_while_the_loop_runs(self, raw: Any) -> None:
        import _thread

        server = raw(lambda link: _thread.interrupt_main())
        # An earlier test of the same process may have left another handler.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                ask(seconds=60, silence=60)
        finally:
            signal.signal(signal.SIGINT, before)
        assert server.hung_up.wait(2)


class TestTime:
    @pytest.mark.parametrize("how", [{"seconds": 0.4, "silence": 60.0}, {"seconds": 60.0, "silence": 0.4}])
    def test_before_the_first_byte(self, raw: Any, how: dict[str, float]) -> None:
        server = raw()
        began = time.monotonic()
        assert failed(**how).problem == P.TIMEOUT
        assert 0.3 < time.monotonic() - began < 3
        assert server.hung_up.wait(2)

    def test_headers_are_bytes_but_not_for_ever(self, raw: Any) -> None:
        raw(lambda link: link.sendall(HEAD + b"\r\n"))
        told = failed(silence=0.4)
        assert (told.problem, told.request_id) == (P.TIMEOUT, "req_1")

    def test_pings_keep_it_alive(self, raw: Any) -> None:
        def dribble(link: socket.socket) -> None:
            link.sendall(HEAD + b"\r\n" + started() + block())
            for _ in range(8):
                time.sleep(0.2)
                link.sendall(event("ping"))
            link.sendall(said("late") + ended())
            link.shutdown(socket.SHUT_WR)

        raw(dribble)
        assert ask(silence=0.8).text == "late"

    def test_but_not_beyond_the_deadline(self, raw: Any) -> None:
        def dribble(link: socket.socket) -> None:
            link.sendall(HEAD + b"\r\n" + started())
            while True:
                link.sendall(event("ping"))
                time.sleep(0.02)

        server = raw(dribble)
        began = time.monotonic()
        told = failed(seconds=0.6)
        assert (told.problem, told.usage["input_tokens"]) == (P.TIMEOUT, 25)
        assert time.monotonic() - began < 3
        assert server.hung_up.wait(2)

    def test_a_slow_listener_is_no_silence(self, provider: StubApi, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(anthropic_messages, "TICK_SECONDS", 0.05)
        provider.state.frame_seconds = 0.1
        provider.say(text="x" * 300)
        assert ask(silence=0.3, heard=lambda characters: time.sleep(0.35)).text == "x" * 300

    def test_but_the_deadline_waits_for_nobody(self, raw: Any) -> None:
        raw()
        began = time.monotonic()
        assert failed(seconds=1.0, heard=lambda characters: time.sleep(0.7)).problem == P.TIMEOUT
        assert time.monotonic() - began < 4


def endless(piece: bytes, head: bytes = HEAD + b"\r\n") -> Callable[[socket.socket], None]:
    def pour(link: socket.socket) -> None:
        link.sendall(head)
        while True:
            link.sendall(piece)

    return pour


ODD_EVENTS = [
    "7",
    "null",
    "[]",
    '"x"',
    "{}",
    '{"type": 7}',
    '{"type": "message_start"}',
    '{"type": "message_start", "message": 7}',
    '{"type": "message_start", "message": {"usage": [1]}}',
    '{"type": "content_block_start"}',
    '{"type": "content_block_delta", "index": {}, "delta": {"type": "text_delta", "text": 7}}',
    '{"type": "content_block_delta", "index": null, "delta": [7]}',
    '{"type": "message_delta", "usage": "x"}',
    '{"type": "message_delta", "delta": {"stop_reason": {"a": 1}}, "usage": {"output_tokens": "many"}}',
    '{"type": "message_delta", "delta": null, "usage": {"iterations": [7, null, {"type": 3}], "input_tokens": -4}}',
]


class TestHostile:
    @pytest.mark.parametrize(
        ("pour", "problem"),
        [
            (endless(said("x" * 1_000)), P.UNREADABLE),
            (endless(b"x" * 65_536), P.UNREADABLE),
            (endless(b"data: x\n" * 1_000), P.UNREADABLE),
            (endless(event("tomorrow", data="x" * 10_000)), P.UNREADABLE),
            (endless(event("ping") * 100), P.UNREADABLE),
            (endless(block(1) + block(2, type="x" * 5_000)), P.UNREADABLE),
            (endless(b"x" * 65_536, b"HTTP/1.1 529 No\r\n\r\n"), P.OVERLOADED),
        ],
    )
    @pytest.mark.thorough
    def test_streams_without_end(
        self, raw: Any, monkeypatch: pytest.MonkeyPatch, pour: Any, problem: ProviderProblem
    ) -> None:
        monkeypatch.setattr(anthropic_stream, "LEAST_BYTES", 1_500_000)
        server = raw(pour)
        tracemalloc.start()
        try:
            assert failed(max_tokens=100, seconds=60).problem == problem
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 60e6
        assert server.hung_up.wait(2)

    @pytest.mark.parametrize(("status", "problem"), [(200, P.UNREADABLE), (503, P.SERVER_ERROR), (413, P.TOO_LARGE)])
    def test_what_is_packed_has_no_bound(self, raw: Any, status: int, problem: ProviderProblem) -> None:
        bomb = gzip.compress(b"data: " + b"x" * 50_000_000)
        head = HEAD.replace(b"200 OK", b"%d No" % status) + b"content-encoding: gzip\r\n\r\n"
        raw(lambda link: (link.sendall(head + bomb), link.shutdown(socket.SHUT_WR)))
        told = failed()
        assert (told.problem, told.status) == (problem, status)

    def test_an_event_in_small_pieces(self, raw: Any) -> None:
        frames = started() + block() + said("x" * 900_000) + said("y" * 900_000) + ended()
        frames = frames.replace(b"\n", b"\r\n")

        def drip(link: socket.socket) -> None:
            link.sendall(HEAD + b"\r\n")
            for start in range(0, len(frames), 30_001):
                link.sendall(frames[start : start + 30_001])
            link.shutdown(socket.SHUT_WR)

        raw(drip)
        assert len(ask(max_tokens=60_000).text) == 1_800_000

    def test_a_large_response_is_taken(self, provider: StubApi) -> None:
        provider.state.frame_characters = 2_000
        text = "0123456789abcdef" * 50_000
        provider.say(text=text)
        tracemalloc.start()
        try:
            told = ask(max_tokens=64_000)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert told.text == text
        assert peak < 40e6

    @pytest.mark.parametrize(
        "frames",
        [
            [b"event: message_start\ndata: {\n\n"],
            [b"event: message_start\ndata: \xff\xfe\n\n"],
            [b"event: message_start\ndata: " + b"[" * 100_000 + b"\n\n"],
        ],
    )
    def test_what_is_no_json(self, raw: Any, frames: list[bytes]) -> None:
        raw(whole(*frames))
        assert failed().problem == P.UNREADABLE

    @pytest.mark.parametrize("data", ODD_EVENTS)
    @pytest.mark.parametrize("name", ["message_start", "tomorrow"])
    def test_events_of_any_shape(self, raw: Any, name: str, data: str) -> None:
        raw(whole(f"event: {name}\ndata: {data}\n\n".encode(), started(), block(), said("ok"), ended()))
        told = ask()
        assert (told.text, told.stop_reason, told.usage["input_tokens"]) == ("ok", "end_turn", 25)

    def test_text_of_blocks_that_are_no_text(self, raw: Any) -> None:
        odd = block(0, type="tomorrow_block", text="not this") + said("nor this", 0)
        raw(whole(started(), odd, block(1), said("this", 1), said("and this, of no block", 2), ended()))
        told = ask()
        assert told.text == "thisand this, of no block"
        assert told.blocks == ("tomorrow_block", "text")

    def test_what_a_database_refuses_is_not_handed_on(self, raw: Any) -> None:
        names = {"model": "claude\x00\ud800" + "m" * 500, "id": "msg\n" + "i" * 500}
        halves = said("\ud83d") + said("\ude00")
        raw(whole(started(**names), block(), said("a\x00b\udfffc "), halves, ended("end\x00_turn")))
        told = ask()
        assert told.text == "a\ufffdb\ufffdc \U0001f600", "a character whose halves come apart is whole again"
        assert told.model == "claude" + "m" * 194
        assert told.response_id == "msg" + "i" * 125
        assert told.stop_reason == "end_turn"
        for name in (told.model, told.response_id, told.request_id):
            name.encode("ascii")

    def test_usage_is_bounded(self, raw: Any) -> None:
        flood = {f"n{number}\x00": number for number in range(1_000)}
        many = [{"type": "t" * 500, "output_tokens": 1}] * 1_000
        usage = {**flood, "cache_creation": flood, "iterations": many, "cache_read_input_tokens": 2**70}
        raw(whole(started(usage={**USAGE, **usage}), block(), said("x"), ended(output_tokens=True)))
        told = ask()
        assert len(json.dumps(told.usage)) < 10_000
        assert "\\u0000" not in json.dumps(told.usage)
        assert told.usage["output_tokens"] == 1
        assert "cache_read_input_tokens" not in told.usage

    def test_a_transcript_that_utf8_can_not_say(self, provider: StubApi) -> None:
        messages = [{"role": "user", "content": [{"type": "text", "text": "a\ud800b \ud83d\ude00 \x00"}]}]
        ask(messages=messages, system="s\udc00")
        [request] = provider.of(MESSAGES_PATH)
        assert request.body["messages"][0]["content"][0]["text"] == "a\ufffdb \U0001f600 \x00"
        assert request.body["system"] == "s\ufffd"
        counted = AnthropicCounter(seconds=5).count(model=MODEL, request=MessagesRequest(None, None, messages, 0, ()))
        assert counted > 0
