"""Bytes: reads a request, records it, goes wrong where that was asked for, else asks the route and sends."""

from __future__ import annotations

import json
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.stub_api.faults import Fault, Stream, error_body
from tests.stub_api.messages import Reply, create_message, frame_bytes
from tests.stub_api.record import Recorded
from tests.stub_api.routes import ROUTES
from tests.stub_api.state import Call, Refusal, invalid

if TYPE_CHECKING:
    from tests.stub_api.server import StubApi

QUERY_OF_POSTS = {"beta": "true"}
# What may stand between events: one of an unknown name, a comment, data without a name, a ping.
NOISE = frame_bytes(event="tomorrow_event", data={"type": "tomorrow_event", "tomorrow": 1})
NOISE += b': a comment\n\ndata: {"type": "nameless"}\n\n' + frame_bytes(event="ping", data={"type": "ping"})


class HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    stub: StubApi

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # each frame leaves at once
    server: HttpServer
    received: Recorded

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    @property
    def _stub(self) -> StubApi:
        return self.server.stub

    def _serve(self) -> None:
        size = int(self.headers.get("content-length") or 0)
        self.received = self._read(self.rfile.read(size))
        self._stub.record(self.received)
        fault = self._stub.fault_for(self.received)
        if self.received.for_message:
            self._stub.wait_at_gate(frames=0)
        if fault.slow:
            self._stub.stopping.wait(self._stub.state.slow_seconds)
        if fault.answers:
            self._answer(fault, size)
        elif fault.silent or fault.hangs_up:
            if fault.silent:
                self._stub.stopping.wait(self._stub.state.silent_seconds)
            self.close_connection = True
        else:
            self._send(fault.status, fault.body, fault.content_type, fault.headers)

    def _read(self, raw: bytes) -> Recorded:
        where = urlsplit(self.path)
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = raw
        headers = {name.lower(): value for name, value in self.headers.items()}
        query = dict(parse_qsl(where.query, keep_blank_values=True))
        return Recorded(self.command, unquote(where.path), query, headers, body)

    def _answer(self, fault: Fault, size: int) -> None:
        try:
            answer = self._route(fault, size)
        except Refusal as refusal:
            self._send(refusal.status, self._error_bytes(refusal.kind, refusal.message, refusal.code))
            return
        if not isinstance(answer, Reply):
            self._send(200, json.dumps(answer).encode())
            return
        self.received.message, self.received.prefix = answer.message, answer.prompt.hashes
        self.received.usage = answer.message["usage"]
        answer.opened()
        if answer.streamed:
            self._send_stream(answer, fault.stream or Stream("all"))
        else:
            self._send(200, json.dumps(answer.message).encode())

    def _route(self, fault: Fault, size: int) -> Any:
        request, state = self.received, self._stub.state
        if not (request.headers.get("authorization", "").startswith("Bearer ") or request.headers.get("x-api-key")):
            raise Refusal(401, "authentication_error", "a key is required")
        if not request.headers.get("anthropic-version"):
            raise invalid("anthropic-version: header is required")
        if size > state.most_body_bytes:
            raise Refusal(413, "request_too_large", "Request exceeds the maximum size")
        if self.command == "POST":
            if not isinstance(request.body, dict):
                raise invalid("the body is not a JSON object")
            if request.query not in ({}, QUERY_OF_POSTS):
                raise invalid("query: Extra inputs are not permitted")
        call = Call(names={}, query=request.query, body=request.body or {}, headers=request.headers)
        if self.command == "POST" and request.for_message:
            return create_message(
                state, call, lambda seen: fault.says(seen, state) if fault.says else self._stub.scripted()
            )
        for method, pattern, handler in ROUTES:
            found = pattern.fullmatch(request.path)
            if found is not None and method == self.command:
                return handler(state, Call(found.groupdict(), call.query, call.body, call.headers))
        raise Refusal(404, "not_found_error", f"{self.command} {request.path}")

    def _send_stream(self, reply: Reply, how: Stream) -> None:
        state = self._stub.state
        frames = reply.frames(characters=state.frame_characters)
        sent = how.sent_of([event for event, _ in frames])
        self._head(200, "text/event-stream", (("transfer-encoding", "chunked"), ("cache-control", "no-cache")))
        for event, data in frames[:sent]:
            frame = (NOISE if how.noise else b"") + frame_bytes(event=event, data=data)
            for _ in range(2 if how.twice else 1):
                self._chunk(frame)
            self.received.frames += 1
            self._stub.wait_at_gate(frames=self.received.frames)
            if state.frame_seconds:
                self._stub.stopping.wait(state.frame_seconds)
        if sent == len(frames):
            self._chunk(b"")
        else:
            event, data = frames[sent]
            self._go_wrong(how, frame_bytes(event=event, data=data))

    def _go_wrong(self, how: Stream, frame: bytes) -> None:
        """`frame`: the one that would come next."""
        if how.then == "silence":
            self._stub.stopping.wait(self._stub.state.silent_seconds)
        if how.then in ("cut", "silence"):
            self.wfile.write(b"%x\r\n%s" % (len(frame), frame[: len(frame) // 2]))
            self._cut_off()
            return
        if how.then == "error":
            kind, message = how.error
            self._chunk(b"event: error\ndata: " + self._error_bytes(kind, message) + b"\n\n")
        elif how.then == "half_frame":
            self._chunk(frame[: len(frame) // 2])
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        """Written at once, as the file is not buffered. An empty one ends the body."""
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _cut_off(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _error_bytes(self, kind: str, message: str, code: str = "") -> bytes:
        return error_body(kind=kind, message=message, code=code, request_id=self.received.request_id)

    def _send(
        self,
        status: int,
        body: bytes,
        content_type: str = "application/json",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self._head(status, content_type, (("content-length", str(len(body))), *headers))
        self.wfile.write(body)

    def _head(self, status: int, content_type: str, headers: tuple[tuple[str, str], ...]) -> None:
        self.received.status = status
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("request-id", self.received.request_id)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
