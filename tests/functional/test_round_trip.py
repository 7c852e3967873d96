"""Every real transcript in, out in its own format and the others, and in again: equal histories, equal contexts; and
once more after a compaction."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import pytest
from django.utils import timezone

from compaction_app import actions
from compaction_app.models import RunStatus
from sessions_app.models import Session
from sessions_app.policy import Policy
from sessions_app.services.exports import export_session
from sessions_app.services.transcripts import ImportReport, import_transcript
from sessions_app.transcript.validation import validate_messages
from tests.factories import NOW, make_team
from tests.openai_requests import validate_openai
from tests.real_transcripts import CHATS, CLAUDE_CODE, needs_transcripts
from tests.sessions_app.test_exports import context, history, path, same

pytestmark = [pytest.mark.django_db, pytest.mark.transcripts, needs_transcripts]

DOCUMENTS = ["anthropic", "openai"]


def load(file: Path) -> ImportReport:
    with file.open("rb") as stream:
        return import_transcript(team=make_team(), stream=stream, name=file.name, policy=Policy(), now=NOW)


def exported(session: Session, format_name: str) -> bytes:
    session.refresh_from_db()
    return b"".join(export_session(session=session, format_name=format_name, policy=Policy()).chunks)


def imported(data: bytes, name: str) -> Session:
    report = import_transcript(team=make_team(), stream=BytesIO(data), name=name, policy=Policy(), now=NOW)
    assert (report.problems, len(report.sessions)) == ([], 1)
    return report.session


def comes_back_as_a_session_file(session: Session) -> None:
    back = imported(exported(session, "claude-code"), "x.jsonl")
    assert history(back) == history(session)
    assert path(back) == path(session)
    assert (context(back), back.system, back.tools) == (context(session), session.system, session.tools)


def comes_back_as_a_document(session: Session, format_name: str) -> None:
    data = exported(session, format_name)
    same(imported(data, "x.json"), session)
    request = json.loads(data)
    if format_name == "anthropic":
        assert request["messages"] == context(session)
        assert validate_messages(messages=request["messages"]) == []
    else:
        assert validate_openai(request["messages"]) == []


def compact(session: Session) -> bool:
    run = actions.compact_now(
        session=session, wanted=actions.Wanted(), now=timezone.now(), listener=lambda stage, fraction: None
    )
    session.refresh_from_db()
    return run.status == RunStatus.SUCCEEDED


@pytest.mark.parametrize("file", CLAUDE_CODE, ids=lambda file: file.stem)
def test_a_session_file(file: Path) -> None:
    """In its own format it comes back before a compaction in tests/sessions_app/test_exports.py."""
    session = load(file).session
    comes_back_as_a_document(session, DOCUMENTS[len(file.stem) % 2])
    if compact(session):
        comes_back_as_a_session_file(session)
        comes_back_as_a_document(session, DOCUMENTS[1 - len(file.stem) % 2])


@pytest.mark.parametrize("file", CHATS, ids=lambda file: f"{file.parent.name}/{file.name}")
class TestChats:
    def test_each_session_comes_back(self, file: Path) -> None:
        report = load(file)
        assert report.problems == []
        for one in report.sessions:
            assert one.session.source == ("anthropic" if file.parent.name == "anthropic-messages" else "openai")
            for format_name in DOCUMENTS:
                comes_back_as_a_document(one.session, format_name)
            comes_back_as_a_session_file(one.session)

    def test_after_a_compaction(self, file: Path) -> None:
        largest = max(load(file).sessions, key=lambda one: one.messages).session
        if compact(largest):
            for format_name in DOCUMENTS:
                comes_back_as_a_document(largest, format_name)
            comes_back_as_a_session_file(largest)

    def test_again_it_adds_nothing(self, file: Path) -> None:
        team = make_team()
        first, second = (
            import_transcript(team=team, stream=BytesIO(file.read_bytes()), name=file.name, policy=Policy(), now=NOW)
            for _ in range(2)
        )
        assert second.messages == second.boundaries == second.entries == 0
        assert [one.session.pk for one in second.sessions] == [one.session.pk for one in first.sessions]
        assert [one.duplicates for one in second.sessions] == [one.messages for one in first.sessions]
