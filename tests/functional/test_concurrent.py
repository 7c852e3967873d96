"""Several processes or clients at once, on one SQLite file: no gap, no loss, nothing twice, no "database is locked"."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.functional.processes import ROOT, Served, environment, manage, serving
from tests.transcript_lines import file_of, human, reply

PROCESSES, APPENDS = 3, 25


@pytest.mark.thorough
def test_appends_from_several_processes_leave_no_gap(tmp_path: Path) -> None:
    (tmp_path / "talk.jsonl").write_bytes(file_of(human("u1", None, "go"), reply("a1", "u1", "ok")).getvalue())
    manage(tmp_path, "migrate", "-v", "0")
    manage(tmp_path, "import_transcript", str(tmp_path / "talk.jsonl"))
    writers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.scripts.append_many", f"p{number}", str(APPENDS)],
            cwd=ROOT,
            env=environment(tmp_path),
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    for writer in writers:
        _, err = writer.communicate(timeout=120)
        assert writer.returncode == 0, err
    with sqlite3.connect(tmp_path / "compaction.sqlite3") as database:
        positions = [row[0] for row in database.execute("SELECT position FROM sessions_app_message ORDER BY position")]
        [(last, leaf)] = database.execute("SELECT last_position, leaf_position FROM sessions_app_session").fetchall()
    expected = 2 + PROCESSES * APPENDS * 2
    assert positions == list(range(1, expected + 1))
    assert (last, leaf) == (expected, expected)


def compact(served: Served, session: str, key: str) -> tuple[int, str, str]:
    """Status, body, and the code of an error."""
    request = urllib.request.Request(
        f"{served.address}/api/v1/sessions/{session}/compact/",
        data=b"{}",
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json", "Idempotency-Key": "once"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode(), ""
    except urllib.error.HTTPError as error:
        body = error.read().decode()
        return error.code, body, json.loads(body)["errors"][0]["code"]


@pytest.mark.thorough
def test_twenty_identical_calls_with_one_key_make_one_run(tmp_path: Path) -> None:
    lines = [
        line
        for n in range(40)
        for line in (human(f"u{n}", f"a{n - 1}" if n else None, "go"), reply(f"a{n}", f"u{n}", "ok"))
    ]
    (tmp_path / "talk.jsonl").write_bytes(file_of(*lines).getvalue())
    manage(tmp_path, "migrate", "-v", "0")
    key = manage(tmp_path, "create_api_key", "default").splitlines()[-1]
    session = manage(tmp_path, "import_transcript", str(tmp_path / "talk.jsonl")).partition("session ")[2][:36]
    with serving(tmp_path) as served:
        served.wait_for(served.address)
        with ThreadPoolExecutor(20) as clients:
            answers = list(clients.map(lambda _: compact(served, session, key), range(20)))
        later = compact(served, session, key)
    first = {body for status, body, _ in answers if status == 202}
    assert first == {later[1]}
    assert {(status, code) for status, _, code in answers} <= {(202, ""), (409, "idempotency_in_progress")}
    with sqlite3.connect(tmp_path / "compaction.sqlite3") as database:
        assert database.execute("SELECT count(*) FROM compaction_app_compactionrun").fetchone() == (1,)
