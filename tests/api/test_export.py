"""sessions/{id}/export/: streamed, by the right name, and importable."""

from __future__ import annotations

import asyncio
import json
from io import BytesIO
from typing import Any

import pytest
from django.test import AsyncClient
from django.utils import timezone

from compaction_app import actions
from compaction_app.api.exports import PART_BYTES
from sessions_app.models import Session
from tests.cast import BASE, Api, errors
from tests.factories import append, make_session, make_team, turns
from tests.resume import chain_of, messages_of, read

pytestmark = pytest.mark.django_db


@pytest.fixture
def talk(session: Session) -> Session:
    append(session, *turns(40))
    run = actions.compact_now(session=session, wanted=actions.Wanted(), now=timezone.now(), listener=lambda *_: None)
    assert run.boundary
    append(session, *turns(2, start=40))
    return session


class TestExport:
    def test_it_works(self, api: Api, talk: Session) -> None:
        answer = api.read(f"sessions/{talk.uuid}/export/", format="claude-code")
        assert answer.status_code == 200
        assert answer.streaming
        assert answer.headers["Content-Type"] == "application/x-ndjson"
        assert answer.headers["Content-Disposition"] == f'attachment; filename="{talk.uuid}.jsonl"'
        data = answer.getvalue()
        context = api.read(f"sessions/{talk.uuid}/context/").json()["messages"]
        assert messages_of(chain_of(read(data))) == [(one["role"], one["content"]) for one in context]
        report = actions.import_file(
            team=make_team(), stream=BytesIO(data), name="x", format_name="auto", now=timezone.now()
        )
        assert (report.messages, report.boundaries, report.problems) == (168, 1, [])

    @pytest.mark.parametrize("format_name", ["anthropic", "openai"])
    def test_a_chat_document(self, api: Api, talk: Session, format_name: str) -> None:
        answer = api.read(f"sessions/{talk.uuid}/export/", format=format_name)
        assert (answer.status_code, answer.streaming) == (200, True)
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.headers["Content-Disposition"] == f'attachment; filename="{talk.uuid}.json"'
        data = answer.getvalue()
        if format_name == "anthropic":
            assert json.loads(data)["messages"] == api.read(f"sessions/{talk.uuid}/context/").json()["messages"]
        report = actions.import_file(
            team=make_team(), stream=BytesIO(data), name="x", format_name="auto", now=timezone.now()
        )
        assert (report.messages, report.boundaries, report.problems) == (168, 1, [])

    def test_claude_code_is_the_default(self, api: Api, talk: Session) -> None:
        answer = api.read(f"sessions/{talk.uuid}/export/")
        assert answer.getvalue() == api.read(f"sessions/{talk.uuid}/export/", format="claude-code").getvalue()

    def test_it_comes_in_parts(self, api: Api, talk: Session) -> None:
        parts = list(api.read(f"sessions/{talk.uuid}/export/").streaming_content)
        assert len(parts) > 1
        assert all(part.endswith(b"\n") for part in parts)
        assert max(map(len, parts)) < 2 * PART_BYTES

    def test_it_changes_nothing(self, api: Api, talk: Session) -> None:
        before = list(Session.objects.values()), list(talk.boundaries.values())
        api.read(f"sessions/{talk.uuid}/export/").getvalue()
        assert (list(Session.objects.values()), list(talk.boundaries.values())) == before

    def test_an_unknown_format(self, api: Api, talk: Session) -> None:
        answer = api.read(f"sessions/{talk.uuid}/export/", format="yaml")
        assert (answer.status_code, errors(answer)) == (400, [("unknown_format", "format")])
        assert "known: claude-code" in answer.json()["errors"][0]["detail"]

    def test_nothing_to_export(self, api: Api, session: Session) -> None:
        answer = api.read(f"sessions/{session.uuid}/export/")
        assert (answer.status_code, errors(answer)) == (400, [("nothing_to_export", None)])

    def test_a_hostile_external_id_names_no_file(self, api: Api, cast: Any) -> None:
        session = make_session(cast.alices_team, external_id='x"; filename="/etc/passwd\u2028')
        append(session, *turns(1))
        disposition = api.read(f"sessions/{session.uuid}/export/").headers["Content-Disposition"]
        assert disposition == f'attachment; filename="{session.uuid}.jsonl"'


@pytest.mark.django_db(transaction=True)
def test_under_asgi_it_is_streamed_too(api: Api, session: Session, recwarn: pytest.WarningsRecorder) -> None:
    append(session, *turns(60))
    headers = {"Authorization": api.defaults["HTTP_AUTHORIZATION"]}

    async def read_parts() -> list[bytes]:
        answer = await AsyncClient().get(f"{BASE}sessions/{session.uuid}/export/", headers=headers)
        assert answer.is_async
        return [part async for part in answer.streaming_content]

    parts = asyncio.run(read_parts())
    assert len(parts) > 1
    assert b"".join(parts) == api.read(f"sessions/{session.uuid}/export/").getvalue()
    assert [str(one.message) for one in recwarn if "StreamingHttpResponse" in str(one.message)] == []
