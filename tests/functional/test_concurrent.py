"""Several processes append to one session at once: no gap, no loss, no "database is locked"."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

from tests.functional.processes import ROOT, environment, manage
from tests.transcript_lines import file_of, human, reply

PROCESSES, APPENDS = 3, 25


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
