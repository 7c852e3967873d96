"""Every real transcript in, out in its own format and the others, and in again: equal histories, equal contexts; and
once more after a compaction."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from compaction_app import actions
from compaction_app.models import RunStatus
from sessions_app.models import Session
from sessions_app.policy import Policy
from sessions_app.services.exports import export_session
from sessions_app.services.transcripts import ImportReport, import_transcript
from sessions_app.transcript.validation import validate_messages
from tests.factories import NOW, append, make_team, user
from tests.openai_requests import validate_openai
from tests.real_transcripts import CHATS, CLAUDE_CODE, needs_transcripts
from tests.sessions_app.test_exports import context, plain, round_trip, same

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
    back = round_trip(session, documents=False)
    assert (back.system, back.tools) == (session.system, session.tools)


def is_as_it_came(session: Session, data: bytes) -> None:
    """A line of ours is the last word on the leaf; and lines that came without a uuid have one."""
    came = list(objects(data))
    seen = {json.dumps(one, sort_keys=True) for one in came}
    ours = [one for one in plain(exported(session, "claude-code")) if json.dumps(one, sort_keys=True) not in seen]
    assert all(one["type"] == "last-prompt" or "uuid" in one for one in ours)
    assert len(ours) <= 1 + sum("uuid" not in one for one in came)


def objects(data: bytes) -> Iterator[dict[str, Any]]:
    """Each object of a file; a line may hold two of them, or half of one."""
    for row in data.decode().split("\n"):
        rest = row.strip()
        while rest:
            try:
                entry, end = json.JSONDecoder().raw_decode(rest)
            except ValueError:
                break
            yield entry
            rest = rest[end:].strip()


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
@pytest.mark.thorough
def test_a_session_file(file: Path) -> None:
    session = load(file).session
    is_as_it_came(session, file.read_bytes())
    comes_back_as_a_session_file(session)
    comes_back_as_a_document(session, DOCUMENTS[len(file.stem) % 2])
    if compact(session):
        append(session, user("go on"))
        comes_back_as_a_session_file(session)
        comes_back_as_a_document(session, DOCUMENTS[1 - len(file.stem) % 2])


@pytest.mark.parametrize("file", CHATS, ids=lambda file: f"{file.parent.name}/{file.name}")
class TestChats:
    @pytest.mark.thorough
    def test_each_session_comes_back(self, file: Path) -> None:
        report = load(file)
        assert report.problems == []
        for one in report.sessions:
            assert one.session.source == ("anthropic" if file.parent.name == "anthropic-messages" else "openai")
            for format_name in DOCUMENTS:
                comes_back_as_a_document(one.session, format_name)
            comes_back_as_a_session_file(one.session)

    @pytest.mark.thorough
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
