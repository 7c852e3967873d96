"""A receiver of hooks on this machine: verifies signatures by the library, keeps what came, answers as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook

from compaction_app.services.hook_setup import make_secret

Answering = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Receiver:
    """`got`: (webhook-id, body) of each request that was signed well; `refused`: how many were not."""

    url: str
    secret: str
    answer: Answering
    got: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    refused: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [body for _, body in self.got]


def says(body: Any = None, *, status: int = 200, raw: bytes | None = None, **headers: str) -> Answering:
    """Answer with JSON, or with raw bytes."""
    data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    return answer


@contextmanager
def receiver(answer: Answering | None = None) -> Iterator[Receiver]:
    secret = make_secret()
    here = Receiver(url="", secret=secret, answer=answer or says())

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                told = Webhook(secret).verify(body, dict(self.headers.items()))
            except Exception:
                here.refused += 1
                return says(status=401)(self)
            here.headers.append(dict(self.headers.items()))
            here.got.append((self.headers["webhook-id"], told))
            return here.answer(self)

        def log_message(self, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *args: Any) -> None:  # a caller that hung up
            pass

    server = Server(("127.0.0.1", 0), Handler)
    here.url = f"http://127.0.0.1:{server.server_port}/compaction?token=t"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield here
    finally:
        here.stopping.set()
        server.shutdown()
        server.server_close()
