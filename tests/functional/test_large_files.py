"""Large files go in and out of the served product as streams: its memory does not follow their size."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

from tests.functional.processes import Served, manage, serving
from tests.transcript_lines import human, reply

MEGABYTES = 60
MESSAGES = MEGABYTES * 50
LINE = "x" * 20_000
EDGE = "----edge"


def lines(messages: int) -> Iterator[bytes]:
    parent = None
    for number in range(messages // 2):
        yield json.dumps(human(f"u{number}", parent, LINE)).encode() + b"\n"
        yield json.dumps(reply(f"a{number}", f"u{number}", LINE)).encode() + b"\n"
        parent = f"a{number}"


def form(name: str, messages: int) -> Iterator[bytes]:
    head = f'--{EDGE}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
    yield head.encode() + b"Content-Type: application/octet-stream\r\n\r\n"
    yield from lines(messages)
    yield f"\r\n--{EDGE}--\r\n".encode()


def peak(served: Served) -> int:
    """Megabytes: the most that the process has held."""
    told = Path(f"/proc/{served.process.pid}/status").read_text(encoding="ascii")
    return int(told.split("VmHWM:")[1].split()[0]) // 1024


class Caller:
    def __init__(self, served: Served, key: str) -> None:
        self.host = urlparse(served.address).netloc
        self.headers = {"Authorization": f"Bearer {key}"}

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self.host, timeout=120)
        chunked = not isinstance(body, (bytes, type(None))) and "Content-Length" not in headers
        connection.request(method, path, body=body, headers={**self.headers, **headers}, encode_chunked=chunked)
        return connection.getresponse()

    def upload(self, name: str, messages: int, **headers: str) -> dict[str, Any]:
        kind = f"multipart/form-data; boundary={EDGE}"
        answer = self.send("POST", "/api/v1/imports/", form(name, messages), **{"Content-Type": kind, **headers})
        told: dict[str, Any] = json.load(answer)
        assert answer.status == 202, told
        return told

    def exported(self, session: str) -> int:
        """Bytes of the session's export."""
        answer = self.send("GET", f"/api/v1/sessions/{session}/export/")
        assert answer.status == 200
        out = 0
        while piece := answer.read(1 << 20):
            out += len(piece)
        return out

    def ended(self, import_id: str) -> tuple[dict[str, Any], list[float]]:
        """The import, and what it told of its progress on the way."""
        progress, until = [], time.monotonic() + 120
        while True:
            told = json.load(self.send("GET", f"/api/v1/imports/{import_id}/"))
            progress.append(told["progress"])
            if told["status"] not in ("queued", "running"):
                return told, progress
            assert time.monotonic() < until, told
            time.sleep(0.2)


@pytest.mark.thorough
def test_in_by_the_worker_and_out_again(tmp_path: Path) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("memory is read from /proc")
    key = manage_key(tmp_path)
    with serving(tmp_path) as served:
        served.wait_for("Serving")
        caller = Caller(served, key)
        json.load(caller.send("GET", "/api/v1/sessions/"))
        # Half as much, in and out, takes what memory batches take; the rest is to take no more.
        few = MESSAGES // 2
        first, _ = caller.ended(caller.upload("small.jsonl", few, **{"Transfer-Encoding": "chunked"})["id"])
        assert first["messages"] == few
        assert caller.exported(first["session"]) > few * len(LINE)
        before = peak(served)
        size = sum(len(piece) for piece in form("large.jsonl", MESSAGES))
        told, progress = caller.ended(caller.upload("large.jsonl", MESSAGES, **{"Content-Length": str(size)})["id"])
        # The same session, which has grown.
        assert (told["status"], told["messages"], told["duplicates"]) == ("succeeded", MESSAGES - few, few), told
        assert any(0 < part < 1 for part in progress)
        # A body that names no length.
        again, _ = caller.ended(caller.upload("large.jsonl", MESSAGES, **{"Transfer-Encoding": "chunked"})["id"])
        assert (again["messages"], again["duplicates"]) == (0, MESSAGES)
        assert caller.exported(told["session"]) > MESSAGES * len(LINE)
        assert list((tmp_path / "uploads" / "imports").iterdir()) == []
        assert peak(served) - before < MEGABYTES // 2, (before, peak(served))


def manage_key(data_dir: Path) -> str:
    manage(data_dir, "migrate", "--verbosity", "0")
    return manage(data_dir, "create_api_key", "large").splitlines()[-1]
