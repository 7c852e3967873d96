"""GET sessions/{id}/boundaries/ and boundaries/{id}/."""

from __future__ import annotations

import pytest
from django.utils import timezone

from compaction_app import actions
from compaction_app.models import CompactionRun
from compaction_app.services.cleanup import run_cleanup
from sessions_app.models import CompactBoundary, Message, Session
from sessions_app.services.boundaries import record_imported_boundary
from sessions_app.transcript.boundary import BoundaryDraft, BoundaryKind
from tests.api.queries import assert_same_count, queries_of
from tests.cast import Api, Cast, errors
from tests.factories import NOW, append, make_session, turns

FIELDS = {
    "id",
    "session",
    "kind",
    "trigger",
    "covers_to",
    "tokens_before",
    "tokens_after",
    "tokens_after_exact",
    "summary",
    "summarizer",
    "model",
    "prompt_version",
    "response_id",
    "usage",
    "instructions",
    "preserved",
    "attachments",
    "cleared_tool_use_ids",
    "cleared_results",
    "clearing",
    "why",
    "cleanup",
    "created_at",
    "reverted_at",
    "generation",
    "restores",
    "run",
}


def compact(session: Session) -> CompactionRun:
    run = actions.compact_now(
        session=session, wanted=actions.Wanted(instructions="mind x"), now=timezone.now(), listener=lambda *_: None
    )
    assert run.boundary, run.detail
    return run


@pytest.fixture
def run(session: Session) -> CompactionRun:
    append(session, *turns(40))
    return compact(session)


class TestBoundary:
    def test_it_works(self, api: Api, session: Session, run: CompactionRun) -> None:
        row = CompactBoundary.objects.get(run=run)
        answer = api.read(f"boundaries/{row.uuid}/")
        assert answer.status_code == 200
        body = answer.json()
        assert set(body) == FIELDS
        assert (body["id"], body["session"], body["run"]) == (str(row.uuid), str(session.uuid), str(run.uuid))
        assert (body["kind"], body["trigger"], body["summarizer"]) == ("full", "manual", "extractive")
        assert (body["instructions"], body["summary"]) == ("mind x", row.summary)
        assert body["tokens_before"] == run.tokens_before
        assert body["tokens_after"] == run.tokens_after
        assert body["tokens_after_exact"] is None
        assert (body["reverted_at"], body["cleared_tool_use_ids"]) == (None, [])
        kept = set(Message.objects.filter(session=session).values_list("uuid", flat=True))
        assert {body["preserved"]["head"], body["preserved"]["tail"]} <= kept
        assert set(body["preserved"]) == {"head", "anchor", "tail"}
        for attachment in body["attachments"]:
            assert set(attachment) == {"kind", "payload", "tokens", "text"}

    def test_the_exact_count_is_shown_once_it_is_there(self, api: Api, run: CompactionRun) -> None:
        row = CompactBoundary.objects.get(run=run)
        CompactBoundary.objects.update(tokens_after_exact=4_321)
        assert api.read(f"boundaries/{row.uuid}/").json()["tokens_after_exact"] == 4_321

    def test_the_call_that_wrote_the_summary_is_shown(self, api: Api, run: CompactionRun) -> None:
        usage = {"input_tokens": 7, "cache_read_input_tokens": 9_000, "output_tokens": 800}
        call = {"model": "claude-sonnet-4-5", "prompt_version": "3", "response_id": "msg_1", "usage": usage}
        CompactBoundary.objects.filter(run=run).update(**call)
        body = api.read(f"boundaries/{run.boundary.uuid}/").json()  # type: ignore[union-attr]
        assert {name: body[name] for name in call} == call

    def test_without_a_call_that_is_empty(self, api: Api, run: CompactionRun) -> None:
        body = api.read(f"boundaries/{run.boundary.uuid}/").json()  # type: ignore[union-attr]
        assert (body["model"], body["prompt_version"], body["response_id"], body["usage"]) == ("", "", "", None)

    def test_what_was_cleaned_up_is_shown(self, api: Api, run: CompactionRun) -> None:
        assert run.boundary
        run_cleanup(boundary=run.boundary)
        cleanup = api.read(f"boundaries/{run.boundary.uuid}/").json()["cleanup"]
        assert {"cache", "scope", "why", "held_by"} == set(cleanup["cleared"][0])
        assert [cache["cache"] for cache in cleanup["kept"]] == ["sent_skill_names"]

    def test_an_imported_one_has_no_run(self, api: Api, session: Session) -> None:
        append(session, *turns(2))
        draft = BoundaryDraft(kind=BoundaryKind.MICROCOMPACT, covers_to=4, cleared_tool_use_ids=("c0",))
        row = record_imported_boundary(
            session=session, draft=draft, trigger="auto", tokens_before=9, tokens_after=5, now=NOW
        )
        body = api.read(f"boundaries/{row.uuid}/").json()
        assert (body["run"], body["summary"], body["preserved"]) == (None, None, None)
        assert (body["kind"], body["cleared_tool_use_ids"]) == ("microcompact", ["c0"])

    @pytest.mark.parametrize("name", ["6dcb4a8b-0000-4000-8000-000000000000", "7", "x"])
    def test_an_unknown_boundary(self, api: Api, name: str) -> None:
        answer = api.read(f"boundaries/{name}/")
        assert (answer.status_code, errors(answer)) == (404, [("not_found", None)])


class TestBoundaries:
    def test_it_works(self, api: Api, cast: Cast, session: Session, run: CompactionRun) -> None:
        append(session, *turns(40, start=100))
        newer = compact(session)
        other = make_session(cast.alices_team)
        append(other, *turns(40))
        compact(other)
        body = api.read(f"sessions/{session.uuid}/boundaries/").json()
        assert [row["run"] for row in body["results"]] == [str(newer.uuid), str(run.uuid)]
        assert body["results"][1] == api.read(f"boundaries/{body['results'][1]['id']}/").json()

    def test_queries(self, api: Api, session: Session, run: CompactionRun) -> None:
        """key, last use, session, page, attachments."""
        path = f"sessions/{session.uuid}/boundaries/"
        few = queries_of(lambda: api.read(path))
        for number in range(1, 5):
            append(session, *turns(30, start=100 * number))
            compact(session)
        assert_same_count(few, queries_of(lambda: api.read(path)), most=5)
