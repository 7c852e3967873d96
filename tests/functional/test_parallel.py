"""Many clients ask for the same at the same moment: one wins, the others are told so, nothing is lost or kept twice."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.functional.client import Client
from tests.functional.processes import manage, serving

DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.database)]
Answer = tuple[int, Any]


@pytest.fixture(scope="module", params=DATABASES)
def client(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder: Path = tmp_path_factory.mktemp(request.param)
    if request.param == "sqlite":
        yield from served(folder, {})
        return
    url = os.environ.get("DATABASE_URL", "")
    if not url.startswith("postgres"):
        pytest.skip("DATABASE_URL names no PostgreSQL")
    import psycopg

    name, base = f"parallel_{os.getpid()}", url.rpartition("/")[0]
    # The database that the address names need not be there: the tests make one of their own beside it.
    with psycopg.connect(f"{base}/postgres", autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        try:
            yield from served(folder, {"DATABASE_URL": f"{base}/{name}"})
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def served(folder: Path, variables: dict[str, str]) -> Iterator[Client]:
    with serving(folder, variables=variables) as process:
        process.wait_for("Serving")
        key = manage(folder, "create_api_key", "alice", variables=variables).split()[-1]
        yield Client(process, key)
        assert not [line for line in process.lines if "Traceback" in line or "ERROR" in line]


def at_once(count: int, call: Callable[[int], tuple[int, bytes, Any]]) -> list[Answer]:
    """The answers of calls that begin together."""
    gate = threading.Barrier(count)

    def one(number: int) -> Answer:
        gate.wait(timeout=30)
        status, body, _ = call(number)
        return status, json.loads(body)

    with ThreadPoolExecutor(max_workers=count) as pool:
        return list(pool.map(one, range(count)))


def messages(client: Client, session: str) -> list[tuple[int, str]]:
    found = client.json("GET", f"sessions/{session}/messages/?page_size=500")["results"]
    return [(message["position"], message["uuid"]) for message in found]


def test_one_of_fifty_compactions_is_queued(client: Client) -> None:
    """The run waits for approval, so that it has not ended when the last of them comes."""
    session = client.session(policy_overrides={"approve_compactions": True})
    answers = at_once(50, lambda number: client.call("POST", f"sessions/{session}/compact/", {}))
    assert Counter(status for status, _ in answers) == {202: 1, 409: 49}
    [run] = [body["id"] for status, body in answers if status == 202]
    for status, body in answers:
        if status == 409:
            assert (body["errors"][0]["code"], body["run"]) == ("active_run", run)
    assert [one["id"] for one in client.json("GET", f"runs/?session={session}")["results"]] == [run]


def test_fifty_appends_leave_no_gap(client: Client) -> None:
    session = client.json("POST", "sessions/", {})["id"]

    def append(number: int) -> tuple[int, bytes, Any]:
        body = {"role": "user", "content": f"message {number}", "uuid": f"m{number}"}
        return client.call("POST", f"sessions/{session}/messages/", body)

    answers = at_once(50, append)
    assert {status for status, _ in answers} == {201}
    stored = messages(client, session)
    assert [position for position, _ in stored] == list(range(1, 51))
    assert {uuid for _, uuid in stored} == {f"m{number}" for number in range(50)}
    told = [(body["messages"][0]["position"], body["messages"][0]["uuid"]) for _, body in answers]
    assert sorted(told) == stored, "each was told the position that its own message has"


def test_one_batch_sent_twenty_times_is_stored_once(client: Client) -> None:
    session = client.json("POST", "sessions/", {})["id"]
    batch = [{"role": "user", "content": f"message {number}", "uuid": f"m{number}"} for number in range(30)]
    answers = at_once(20, lambda number: client.call("POST", f"sessions/{session}/messages/", batch))
    assert {status for status, _ in answers} == {201}
    assert Counter(len(body["duplicates"]) for _, body in answers) == {0: 1, 30: 19}
    assert messages(client, session) == [(number + 1, f"m{number}") for number in range(30)]


def test_one_of_many_that_cancel_is_told_and_so_are_the_others(client: Client) -> None:
    run = client.waiting_run()
    answers = at_once(20, lambda number: client.call("POST", f"runs/{run}/cancel/", {}))
    assert {status for status, _ in answers} == {200}
    assert len({json.dumps(body) for _, body in answers}) == 1


def test_one_of_many_retries_is_queued(client: Client) -> None:
    session = client.session(policy_overrides={"approve_compactions": True})
    tried = client.json("POST", f"sessions/{session}/compact/", {"wait": 20})["id"]
    client.json("POST", f"runs/{tried}/cancel/", {})
    answers = at_once(20, lambda number: client.call("POST", f"runs/{tried}/retry/", {}))
    assert Counter(status for status, _ in answers) == {202: 1, 409: 19}
    [run] = [body["id"] for status, body in answers if status == 202]
    assert {body["run"] for status, body in answers if status == 409} == {run}


def test_a_session_is_erased_while_everybody_writes_to_it(client: Client) -> None:
    """Each call came before or finds nothing; one erases, and none that is told so has left anything behind."""

    def one(number: int) -> tuple[int, bytes, Any]:
        path = f"sessions/{sessions[number % len(sessions)]}/"
        say = {"role": "user", "content": f"message {number}"}
        calls: list[tuple[str, str, Any]] = [
            ("PUT", "state/", {"plan": f"plan {number}"}),
            ("POST", "messages/", say),
            ("POST", "compact/", {}),
            ("DELETE", "", None),
            ("PATCH", "", {"title": f"title {number}"}),
            ("PUT", "state/", {"plan": f"plan {number}"}),
            ("POST", "prepare/", {}),
            ("POST", "reset-breaker/", {}),
            ("DELETE", "", None),
        ]
        method, part, body = calls[number // len(sessions)]
        status, told, headers = client.call(method, path + part, body)
        return status, told or b'"erased"', headers

    sessions = [client.session() for _ in range(4)]
    answers = at_once(9 * len(sessions), one)
    assert {status for status, _ in answers} <= {200, 201, 202, 204, 404}, answers
    assert Counter(status for status, _ in answers)[204] == len(sessions)
    for session in sessions:
        assert client.call("GET", f"sessions/{session}/")[0] == 404
        assert client.json("GET", f"runs/?session={session}")["results"] == []
