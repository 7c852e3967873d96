"""export_transcript: to a file or to standard output, and one clear line for what can't be done."""

from __future__ import annotations

import json
import os
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from sessions_app.models import Session
from sessions_app.policy import Policy
from sessions_app.services.exports import export_session
from tests.factories import append, make_session, turns, user

pytestmark = pytest.mark.django_db


def run(*args: str) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command("export_transcript", *args, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


@pytest.fixture
def session() -> Session:
    session = make_session(external_id="mine")
    append(session, user("修复 \ud800 \x00"), *turns(2))
    return session


def expected(session: Session) -> bytes:
    return b"".join(export_session(session=session, format_name="claude-code", policy=Policy()).chunks)


class TestExportTranscript:
    def test_it_works(self, session: Session, tmp_path: Path) -> None:
        path = tmp_path / f"{session.uuid}.jsonl"
        out, err = run("mine", "-o", str(path))
        assert path.read_bytes() == expected(session)
        assert (out, err) == ("", f"{path}: 9 lines\n")
        assert os.listdir(tmp_path) == [path.name]

    def test_to_standard_output(self, session: Session) -> None:
        out, _ = run(str(session.uuid), "--format", "claude-code")
        assert out.encode() == expected(session)

    def test_the_bytes_of_standard_output(self, session: Session, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
        call_command("export_transcript", "mine")
        assert capfdbinary.readouterr().out == expected(session)

    def test_another_name_than_its_client_looks_for(self, session: Session, tmp_path: Path) -> None:
        _, err = run("mine", "-o", str(tmp_path / "talk.jsonl"))
        assert f"looks for it by the name {session.uuid}.jsonl" in err

    @pytest.mark.parametrize("format_name", ["anthropic", "openai"])
    def test_a_chat_document(self, session: Session, tmp_path: Path, format_name: str) -> None:
        path = tmp_path / "talk.json"
        _, err = run("mine", "--format", format_name, "-o", str(path))
        assert len(json.loads(path.read_bytes())["messages"]) > 0
        assert "looks for it" not in err
        out = StringIO()
        call_command("import_transcript", str(path), "--team", session.team.slug, stdout=out)
        assert f"session {session.uuid} (known before): 0 messages, 9 duplicates" in out.getvalue()

    def test_an_exported_file_is_imported_again(self, session: Session, tmp_path: Path) -> None:
        path = tmp_path / f"{session.uuid}.jsonl"
        run("mine", "-o", str(path))
        out = StringIO()
        call_command("import_transcript", str(path), "--team", session.team.slug, stdout=out)
        assert f"session {session.uuid} (known before): 0 messages, 9 duplicates, 0 other entries" in out.getvalue()

    @pytest.mark.parametrize(
        ("args", "reason"),
        [
            (["nobody"], "no session 'nobody'"),
            (["mine", "--format", "yaml"], "format 'yaml' can not be written; known: claude-code"),
            (["empty"], "the session has no messages"),
            (["mine", "-o", "/nowhere/at/all.jsonl"], "No such file or directory"),
        ],
    )
    def test_what_can_not_be_done(self, session: Session, args: list[str], reason: str) -> None:
        make_session(session.team, external_id="empty")
        with pytest.raises(CommandError, match=reason):
            run(*args)

    def test_a_folder_is_no_file(self, session: Session, tmp_path: Path) -> None:
        with pytest.raises(CommandError, match="Is a directory"):
            run("mine", "-o", str(tmp_path))
        assert list(tmp_path.iterdir()) == []
