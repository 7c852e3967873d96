"""kill -9 in the middle of a compaction: after a restart the run is taken up again, and exactly one boundary exists."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.functional.processes import ROOT, environment, manage, serving
from tests.transcript_lines import SESSION, file_of, human, reply

QUEUE = """
from django.utils import timezone
from compaction_app.services.runs import queue_run
from sessions_app.models import Session
run = queue_run(session=Session.objects.get(), trigger="manual", instructions="", now=timezone.now())
print(run.pk)
"""
APPEND = """
from django.utils import timezone
from sessions_app.models import Session
from sessions_app.services.append import append_messages
from sessions_app.services.incoming import IncomingMessage
from sessions_app.transcript.messages import Role
message = IncomingMessage(role=Role.USER, content="while it runs", uuid="meanwhile")
append_messages(session_id=Session.objects.get().pk, incoming=[message], now=timezone.now())
"""


def talk(path: Path) -> None:
    lines, parent = [], None
    for number in range(60):
        lines.append(human(f"u{number}", parent, f"please do step {number}: " + "words " * 60))
        lines.append(reply(f"a{number}", f"u{number}", f"step {number} is done. " + "explanation " * 60))
        parent = f"a{number}"
    path.write_bytes(file_of(*lines).getvalue())


def rows(data_dir: Path, sql: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(data_dir / "compaction.sqlite3", timeout=20) as database:
        return database.execute(sql).fetchall()


def expire_lease(data_dir: Path) -> None:
    """As if the lease had run out: the test need not wait for it."""
    past = (datetime.now(tz=UTC) - timedelta(minutes=1)).strftime("%Y-%m-%d %H:%M:%S")
    with sqlite3.connect(data_dir / "compaction.sqlite3", timeout=20) as database:
        database.execute(
            "UPDATE compaction_app_compactionrun SET lease_expires_at = ? WHERE status = 'running'", [past]
        )


@pytest.mark.thorough
def test_a_killed_worker_leaves_nothing_by_halves_and_its_run_is_finished(tmp_path: Path) -> None:
    talk(tmp_path / "talk.jsonl")
    manage(tmp_path, "migrate", "-v", "0")
    manage(tmp_path, "import_transcript", str(tmp_path / "talk.jsonl"))
    run_id = manage(tmp_path, "shell", "-v", "0", "-c", QUEUE).split()[-1]
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.scripts.slow_compaction", run_id],
        cwd=ROOT,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    assert worker.stdout.readline().strip() == "summarizing"
    manage(tmp_path, "shell", "-v", "0", "-c", APPEND)
    worker.kill()
    worker.wait(timeout=10)
    worker.stdout.close()
    assert rows(tmp_path, "SELECT COUNT(*) FROM sessions_app_compactboundary") == [(0,)]
    assert rows(tmp_path, "SELECT status FROM compaction_app_compactionrun") == [("running",)]

    expire_lease(tmp_path)
    with serving(tmp_path) as served:
        served.wait_for("Serving")
        for _ in range(300):
            if rows(tmp_path, "SELECT status FROM compaction_app_compactionrun") == [("succeeded",)]:
                break
            time.sleep(0.1)
    assert rows(tmp_path, "SELECT status, attempt FROM compaction_app_compactionrun") == [("succeeded", 2)]
    [(covers_to,)] = rows(tmp_path, "SELECT covers_to FROM sessions_app_compactboundary")
    [(position,)] = rows(tmp_path, "SELECT position FROM sessions_app_message WHERE uuid = 'meanwhile'")
    assert position > covers_to
    assert rows(tmp_path, "SELECT COUNT(*), MAX(position) FROM sessions_app_message") == [(121, 121)]
    assert rows(tmp_path, "SELECT external_id FROM sessions_app_session") == [(SESSION,)]
