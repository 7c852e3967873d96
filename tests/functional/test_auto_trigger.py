"""Automatic compaction on a real transcript, message by message, and by several processes at once."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.test import TestCase

from compaction_app.models import CompactionRun, RunStatus
from sessions_app.models import Message
from sessions_app.policy import Policy
from sessions_app.services.transcripts import import_transcript
from tests.cast import Api, Cast
from tests.factories import NOW, make_session, make_team
from tests.functional.processes import ROOT, environment, manage
from tests.real_transcripts import CLAUDE_CODE, needs_transcripts
from tests.transcript_lines import file_of, human, reply

# File -> a context window, in tokens, that the conversation outgrows step by step before it ends.
OUTGROWN = {
    "gitsync-626k-context-fork": 200_000,
    "packmind-images-auto-compact": 150_000,
    "entire-two-auto-compacts-ansi": 120_000,
    "sniffly-v1-emoji": 100_000,
}
PATHS = [path for path in CLAUDE_CODE if path.stem in OUTGROWN]


def conversation(path: Path) -> list[dict[str, Any]]:
    """The messages of a transcript up to its first own compaction, as a client would append them."""
    with path.open("rb") as stream:
        report = import_transcript(team=make_team(), stream=stream, name=path.name, policy=Policy(), now=NOW)
    rows = Message.objects.filter(session=report.session, is_sidechain=False, left_path_at__isnull=True)
    told = []
    for row in rows.order_by("position"):
        if row.kind == "compact_summary":
            break
        given = {"role": row.role, "content": row.content, "uuid": row.uuid, "model": row.model, "usage": row.usage}
        told.append({**given, "message_id": row.message_id} if row.kind == "normal" else {})
    return [one for one in told if one]


@pytest.mark.django_db
@pytest.mark.transcripts
@needs_transcripts
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
@pytest.mark.thorough
def test_a_real_session_crosses_its_thresholds_and_is_compacted_once(
    path: Path, api: Api, cast: Cast, eager_worker: None
) -> None:
    """Its client did not know of the compaction: later usages tell of a context that nobody compacted."""
    figures = {
        "context_window": OUTGROWN[path.stem],
        "warning_buffer_tokens": 40_000,
        "error_buffer_tokens": 25_000,
    }
    session = make_session(cast.alices_team, policy_overrides=figures)
    crossed: dict[str, int] = {}
    messages = conversation(path)
    for number, message in enumerate(messages):
        with TestCase.captureOnCommitCallbacks(execute=True):
            body = api.send(f"sessions/{session.uuid}/messages/", message).json()
        for name in ("warning", "error", "auto_compact"):
            if body["token_state"][f"above_{name}"]:
                crossed.setdefault(name, number)
        if body["auto_compaction"]:
            break
    assert crossed["warning"] < crossed["error"] < crossed["auto_compact"] <= number
    assert message["role"] == "assistant"
    run = CompactionRun.objects.get()
    assert (run.trigger, run.status) == ("auto", RunStatus.SUCCEEDED)
    state = api.read(f"sessions/{session.uuid}/token-state/").json()
    assert (state["level"], state["above_warning"], state["breaker_open"]) == ("ok", False, False)
    for message in messages[number + 1 :]:
        with TestCase.captureOnCommitCallbacks(execute=True):
            told = api.send(f"sessions/{session.uuid}/messages/", message).json()
        if told["auto_compaction"]:
            again = CompactionRun.objects.latest("pk")
            covered = Message.objects.filter(session=session, position__gt=run.as_of, position__lte=again.as_of)
            grown = sum(covered.values_list("tokens", flat=True))
            assert state["context_tokens"] + grown >= 0.9 * state["auto_compact_threshold"], "not by its own growth"
            break
        assert message["role"] == "user" or told["token_state"]["level"] != "auto_compact"


@pytest.mark.thorough
def test_three_processes_that_append_over_the_threshold_make_one_run(tmp_path: Path) -> None:
    talk = file_of(human("u1", None, "go"), reply("a1", "u1", "word " * 60_000))
    (tmp_path / "talk.jsonl").write_bytes(talk.getvalue())
    small = {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "90000"}
    manage(tmp_path, "migrate", "-v", "0")
    manage(tmp_path, "import_transcript", str(tmp_path / "talk.jsonl"))
    writers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.scripts.append_over", f"p{number}"],
            cwd=ROOT,
            env=environment(tmp_path, **small),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    started = []
    for writer in writers:
        out, _ = writer.communicate(timeout=60)
        assert writer.returncode == 0
        started.append(out.strip())
    assert sorted(one == "-" for one in started) == [False, True, True]
    with sqlite3.connect(tmp_path / "compaction.sqlite3") as database:
        runs = database.execute("SELECT trigger, status FROM compaction_app_compactionrun").fetchall()
        outcomes = database.execute("SELECT outcome FROM compaction_app_decision").fetchall()
        [(messages,)] = database.execute("SELECT count(*) FROM sessions_app_message").fetchall()
    assert runs == [("auto", "queued")]
    assert sorted(outcome for (outcome,) in outcomes) == ["active_run", "active_run", "requested"]
    assert messages == 5
