"""The stub's server: reads a request, records it, goes wrong where that was asked for, else asks the route."""

from __future__ import annotations

import json
import threading
from collections import deque
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.stub_api.faults import FAULTS, Fault, error_body
from tests.stub_api.routes import ROUTES, Call, Json, Refusal, State, invalid

LONGEST_SILENCE_SECONDS = 30  # a silent answer ends with the server, or after this where nobody stops it


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request as it came: header names in small letters, `body` as JSON (None where there was none)."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class StubApi:
    """Serves between `with` and its end. `state` may be changed at any time; `requests` is all that came, in order."""

    def __init__(self, *, models: list[Json] | None = None, port: int = 0, **state: Any) -> None:
        self.state = State(models=list(models or []), **state)
        self.requests: list[Recorded] = []
        self.always: Fault | None = None
        self._next: deque[Fault] = deque()
        self.stopping = threading.Event()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.stub = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def fail(self, *names: str) -> None:
        """The next requests meet these faults, one each."""
        self._next.extend(FAULTS[name] for name in names)

    def keep_failing(self, name: str | None) -> None:
        """Every request meets this fault from now on; None: no more."""
        self.always = FAULTS[name] if name else None

    def fault(self) -> Fault | None:
        return self._next.popleft() if self._next else self.always

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    stub: StubApi

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _serve(self) -> None:
        stub, where = self.server.stub, urlsplit(self.path)
        path, query = unquote(where.path), dict(parse_qsl(where.query, keep_blank_values=True))
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = raw
        headers = {name.lower(): value for name, value in self.headers.items()}
        stub.requests.append(Recorded(self.command, path, query, headers, body))
        fault = stub.fault()
        if fault is None:
            self._answer(path, query, headers, body)
        elif fault.silent or fault.hangs_up:
            if fault.silent:
                stub.stopping.wait(LONGEST_SILENCE_SECONDS)
            self.close_connection = True
        else:
            self._send(fault.status, fault.body, fault.content_type, fault.headers)

    def _answer(self, path: str, query: dict[str, str], headers: dict[str, str], body: Any) -> None:
        try:
            answer = self._route(path, query, headers, body)
        except Refusal as refusal:
            self._send(refusal.status, error_body(kind=refusal.kind, message=refusal.message))
        else:
            self._send(200, json.dumps(answer).encode())

    def _route(self, path: str, query: dict[str, str], headers: dict[str, str], body: Any) -> Json:
        if not (headers.get("authorization", "").startswith("Bearer ") or headers.get("x-api-key")):
            raise Refusal(401, "authentication_error", "a key is required")
        if not headers.get("anthropic-version"):
            raise invalid("anthropic-version: header is required")
        for method, pattern, handler in ROUTES:
            found = pattern.fullmatch(path)
            if found is None or method != self.command:
                continue
            if method == "POST" and not isinstance(body, dict):
                raise invalid("the body is not a JSON object")
            return handler(self.server.stub.state, Call(names=found.groupdict(), query=query, body=body or {}))
        raise Refusal(404, "not_found_error", f"{self.command} {path}")

    def _send(
        self,
        status: int,
        body: bytes,
        content_type: str = "application/json",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.send_header("request-id", "req_stub")
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
