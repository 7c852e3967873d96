"""The product as a newcomer meets it: started by one command, used over HTTP, stopped by Ctrl-C."""

from __future__ import annotations

import json
import signal
import sqlite3
from pathlib import Path

import pytest

from tests.functional.processes import Served, serving


def password_of(served: Served) -> str:
    [line] = [line for line in served.lines if "password" in line]
    return line.split("password")[1].strip()


def counts(data_dir: Path) -> dict[str, int]:
    with sqlite3.connect(data_dir / "compaction.sqlite3") as database:
        return {
            table: database.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]
            for table in (
                "auth_user",
                "sessions_app_team",
                "sessions_app_apikey",
                "sessions_app_session",
                "sessions_app_message",
                "sessions_app_transcriptentry",
                "sessions_app_compactboundary",
                "compaction_app_compactionrun",
                "compaction_app_telemetryevent",
            )
        }


@pytest.mark.thorough
def test_the_demonstration_from_nothing_and_again(tmp_path: Path) -> None:
    with serving(tmp_path, "--demo") as served:
        served.wait_for("Serving.")
        out = "\n".join(served.lines)
        assert "before 1" in out
        assert "WARNING" not in out
        assert "Traceback" not in out
        key = served.value("API key")
        assert served.get("/admin/login/")[0] == 200
        assert served.get("/api/docs/")[0] == 200
        assert served.get("/api/v1/sessions/")[0] == 401
        status, body = served.get("/api/v1/sessions/", key=key)
        assert status == 200
        [session] = json.loads(body)["results"]
        status, body = served.get(f"/api/v1/sessions/{session['id']}/context/", key=key)
        context = json.loads(body)
        assert (status, context["boundary"] is not None) == (200, True)
        assert context["tokens"] < 50_000
        password = password_of(served)
        assert served.stop(signal.SIGINT) == 0
    first = counts(tmp_path)
    assert first["sessions_app_message"] >= 400
    assert first["sessions_app_compactboundary"] == 1
    with serving(tmp_path, "--demo") as served:
        served.wait_for("Serving.")
        assert served.value("API key") == key
        assert password_of(served) == password
        assert served.stop(signal.SIGTERM) == 0
        assert "stopped" in served.lines, "the signal of a service manager is an orderly stop too"
    assert counts(tmp_path) == first


def test_a_bad_variable_stops_the_start_with_one_line(tmp_path: Path) -> None:
    import subprocess
    import sys

    from tests.functional.processes import ROOT, environment

    for name, value, allowed in (
        ("CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", "101", "1 to 100"),
        ("DISABLE_COMPACT", "maybe", "true"),
        ("COMPACTION_SUMMARIZER", "oracle", "extractive"),
        ("CLAUDE_CODE_AUTO_COMPACT_WINDOW", "-5", "whole number"),
        ("DATABASE_URL", "mongodb://x", "postgres://"),
    ):
        done = subprocess.run(
            [sys.executable, "manage.py", "check"],
            cwd=ROOT,
            env=environment(tmp_path, **{name: value}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode != 0
        [line] = done.stderr.strip().splitlines()
        assert name in line
        assert allowed in line
