"""Many watch runs of a served product: none holds a thread or a connection of the database; all are told the end."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.functional.client import Client
from tests.functional.processes import ROOT, Served, manage, serving

WATCHERS = int(os.environ.get("WATCHERS", "300"))
# Two that look up who may watch, one that looks at the rows, one for Django's signals, and what an ordinary request
# may have begun meanwhile.
MORE_THREADS, MORE_CONNECTIONS = 8, 4


class Stream:
    """An open stream of events, read as it comes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.text = b""

    @classmethod
    async def open(cls, client: Client, run: str) -> Stream:
        host, _, port = client.served.address.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        lines = (
            f"GET /api/v1/runs/{run}/events/ HTTP/1.1",
            f"Host: {host}",
            f"Authorization: Bearer {client.key}",
            "Accept: text/event-stream",
        )
        writer.write("".join(f"{line}\r\n" for line in (*lines, "")).encode())
        await writer.drain()
        return cls(reader, writer)

    async def until(self, words: bytes) -> None:
        while words not in self.text:
            part = await self.reader.read(65_536)
            assert part, self.text
            self.text += part

    async def rest(self) -> bytes:
        while part := await self.reader.read(65_536):
            self.text += part
        return self.text


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder: Path = tmp_path_factory.mktemp("served")
    with serving(folder) as served:
        served.wait_for("Serving")
        yield Client(served, manage(folder, "create_api_key", "alice").split()[-1])


def threads(served: Served) -> int:
    return len(os.listdir(f"/proc/{served.process.pid}/task"))


def open_files(served: Served) -> list[str]:
    return [target(entry) for entry in Path(f"/proc/{served.process.pid}/fd").iterdir()]


def target(entry: Path) -> str:
    try:
        return os.readlink(entry)
    except OSError:  # closed meanwhile
        return ""


def connections(served: Served) -> int:
    """Open descriptors of the database's file."""
    return sum(name.endswith(".sqlite3") for name in open_files(served))


def quickly(client: Client, path: str) -> float:
    begun = time.monotonic()
    client.json("GET", path)
    return time.monotonic() - begun


def test_a_run_as_it_goes_on(client: Client) -> None:
    session = client.session()
    run = client.json("POST", f"sessions/{session}/compact/", {})

    async def scene() -> bytes:
        stream = await Stream.open(client, run["id"])
        await stream.until(b"event: done")
        return stream.text

    text = asyncio.run(asyncio.wait_for(scene(), timeout=60))
    told = [json.loads(line.removeprefix(b"data: ")) for line in text.splitlines() if line.startswith(b"data: ")]
    shown = client.json("GET", f"runs/{run['id']}/")
    assert [data for data in told if "attempt" in data] == shown["stages"]
    assert (told[-1]["status"], told[-1]["boundary"]) == ("succeeded", shown["boundary"])


def test_the_watcher_of_the_page(client: Client) -> None:
    """docs/api.md shows one in Python."""
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    [code] = re.findall(
        r"```python\n(.*?)```", page[page.index("\n## Runs\n") : page.index("\n## Export\n")], re.DOTALL
    )
    shown: dict[str, Any] = {}
    exec(code, shown)
    run = client.waiting_run()
    told = shown["watch"](f"{client.served.address}/api/v1/runs/{run}/events/", client.key)
    name, data = next(told)
    while data["stage"] != "awaiting_approval":
        assert name == "stage"
        name, data = next(told)
    client.json("POST", f"runs/{run}/cancel/", {})
    *_, (name, data) = told
    assert (name, data["status"]) == ("done", "cancelled")


@pytest.mark.thorough
def test_many_watchers_hold_neither_threads_nor_connections(client: Client) -> None:
    run, page = client.waiting_run(), "runs/?page_size=1"
    quickly(client, page)
    before = threads(client.served), connections(client.served)

    async def scene() -> list[bytes]:
        streams = [await Stream.open(client, run) for _ in range(WATCHERS)]
        await asyncio.gather(*(stream.until(b'"stage": "awaiting_approval"') for stream in streams))
        took = [await asyncio.to_thread(quickly, client, page) for _ in range(5)]
        await asyncio.sleep(1)  # the poller has looked by now
        now = threads(client.served), connections(client.served)
        print(f"{WATCHERS} watchers: threads {before[0]} to {now[0]}, connections {before[1]} to {now[1]}, {took}")
        assert now[0] - before[0] <= MORE_THREADS
        assert now[1] - before[1] <= MORE_CONNECTIONS
        assert max(took) < 2
        await asyncio.to_thread(client.json, "POST", f"runs/{run}/reject/", {})
        begun = time.monotonic()
        await asyncio.gather(*(stream.until(b"event: done") for stream in streams))
        assert time.monotonic() - begun < 5
        return [stream.text for stream in streams]

    for text in asyncio.run(asyncio.wait_for(scene(), timeout=120)):
        assert text.count(b"event: done") == 1
        assert b'"status": "cancelled"' in text


def test_one_that_goes_away_is_forgotten(client: Client) -> None:
    run = client.waiting_run()

    async def scene() -> None:
        streams = [await Stream.open(client, run) for _ in range(20)]
        await asyncio.gather(*(stream.until(b"awaiting_approval") for stream in streams))
        most = len(open_files(client.served))
        for stream in streams:
            stream.writer.close()
        for _ in range(100):
            if len(open_files(client.served)) <= most - 20:
                return
            await asyncio.sleep(0.05)
        raise AssertionError("their connections are still open")

    asyncio.run(asyncio.wait_for(scene(), timeout=60))
    assert not [line for line in client.served.lines if "Traceback" in line or "ERROR" in line]


NOWHERE = "runs/6dcb4a8b-0000-4000-8000-000000000000/events/"


class TestTheAnswersAreThoseOfEveryCall:
    """The handler of its own goes through the same middleware, view and errors."""

    def test_without_a_key(self, client: Client) -> None:
        status, body, headers = Client(client.served, "").call("GET", NOWHERE, Authorization="")
        assert (status, json.loads(body)["errors"][0]["code"]) == (401, "not_authenticated")
        assert headers["WWW-Authenticate"] == "Bearer"

    @pytest.mark.parametrize(
        ("method", "path", "more", "expected"),
        [
            ("GET", NOWHERE, {}, (404, "not_found")),
            ("GET", "runs/x/events/", {}, (404, "not_found")),
            ("POST", NOWHERE, {}, (405, "method_not_allowed")),
            ("GET", NOWHERE, {"Host": "elsewhere.example.com"}, (400, "bad_request")),
        ],
    )
    def test_what_is_wrong(
        self, client: Client, method: str, path: str, more: dict[str, str], expected: tuple[int, str]
    ) -> None:
        status, body, headers = client.call(method, path, {} if method == "POST" else None, **more)
        assert (status, json.loads(body)["errors"][0]["code"]) == expected
        _, _, others = client.call("GET", "runs/")
        names = {"X-Content-Type-Options", "X-Frame-Options", "Referrer-Policy", "Content-Language"}
        if status != 400:
            assert {name: headers[name] for name in names} == {name: others[name] for name in names}

    def test_head(self, client: Client) -> None:
        status, body, headers = client.call("HEAD", f"runs/{client.waiting_run()}/events/")
        assert (status, body, headers["Content-Type"]) == (200, b"", "text/event-stream")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.thorough
def test_open_streams_do_not_hold_the_stop(tmp_path: Path, number: int) -> None:
    with serving(tmp_path) as served:
        served.wait_for("Serving")
        client = Client(served, manage(tmp_path, "create_api_key", "alice").split()[-1])
        run = client.waiting_run()

        async def scene() -> tuple[int, float]:
            streams = [await Stream.open(client, run) for _ in range(20)]
            await asyncio.gather(*(stream.until(b"awaiting_approval") for stream in streams))
            begun = time.monotonic()
            code = await asyncio.to_thread(served.stop, number)
            for stream in streams:
                assert (await stream.rest()).endswith(b"0\r\n\r\n"), "the stream ends, and is not cut off"
            return code, time.monotonic() - begun

        code, seconds = asyncio.run(asyncio.wait_for(scene(), timeout=60))
        assert code == 0
        assert seconds < 4, "the time that what is being answered may take is not needed"
        assert not [line for line in served.lines if "Traceback" in line or "ERROR" in line or "Cancel" in line]
