"""The way back out: what its client resumes is our context, and importing an export gives everything back."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import pytest

from sessions_app import selectors
from sessions_app.models import CompactBoundary, Message, Session, TranscriptEntry
from sessions_app.policy import Policy
from sessions_app.services import boundaries as boundary_service
from sessions_app.services.exports import ExportRefused, export_session
from sessions_app.services.reverts import restore, revert
from sessions_app.services.transcripts import ImportReport, import_transcript
from sessions_app.transcript.boundary import (
    AttachmentValue,
    BoundaryDraft,
    BoundaryKind,
    ClearedResult,
    Clearing,
    Placement,
    PreservedSegment,
    summary_uuid,
)
from sessions_app.transcript.exported import MARK
from sessions_app.transcript.request import build_request
from sessions_app.transcript.validation import validate_messages
from sessions_app.transcript.view import summary_content
from tests.build import res, text, thinking, use
from tests.factories import NOW, append, assistant, make_session, make_team, turns, user
from tests.resume import chain_of, messages_of, read
from tests.transcript_lines import SESSION, compact_boundary, compact_summary, file_of, human, line, reply

pytestmark = pytest.mark.django_db


def exported(session: Session, *, format_name: str = "claude-code", **figures: Any) -> bytes:
    session.refresh_from_db()
    return b"".join(export_session(session=session, format_name=format_name, policy=Policy(**figures)).chunks)


def imported(data: bytes, *, team: Any = None, name: str = "x.jsonl", **figures: Any) -> ImportReport:
    return import_transcript(
        team=team or make_team(), stream=BytesIO(data), name=name, policy=Policy(**figures), now=NOW
    )


def history(session: Session) -> list[Any]:
    fields = ("position", "uuid", "role", "content", "kind", "message_id", "usage", "is_meta", "is_sidechain")
    rows = Message.objects.filter(session=session).order_by("position")
    return [tuple(repr(row[name]) for name in fields) for row in rows.values(*fields)]


def path(session: Session) -> list[Any]:
    return list(session.messages.order_by("position").values_list("uuid", "path_parent", "left_path_at"))


def context(session: Session) -> list[dict[str, Any]]:
    return build_request(view=selectors.context_view(session=session)).messages


def round_trip(session: Session, *, resumes: bool = True, documents: bool = True, **figures: Any) -> Session:
    """The session as it comes back, after all that must hold of it was looked at. `resumes`: whether what its client
    resumes can be told, because no line is damaged; `documents`: whether chat documents are looked at too."""
    data = exported(session, **figures)
    report = imported(data, **figures)
    back = report.session
    assert report.problems == []
    assert history(back) == history(session)
    assert path(back) == path(session)
    assert context(back) == context(session)
    assert not context(back) or validate_messages(messages=context(back)) == []
    again = imported(exported(back, **figures), **figures).session
    assert history(again) == history(session)
    assert context(again) == context(session)
    if documents:
        document = through_a_document(session, **figures)
        assert not resumes or resumed(document) == resumed(session)
    return back


def through_a_document(session: Session, **figures: Any) -> Session:
    """The session as it comes back by way of a chat document, which holds more of it than its client's transcript."""
    data = exported(session, format_name="anthropic", **figures)
    report = imported(data, **figures)
    assert (report.problems, [one.created for one in report.sessions]) == ([], [True])
    same(report.session, session)
    # But for the second line, which tells the session's own id.
    again, first = (one.splitlines() for one in (exported(report.session, format_name="anthropic"), data))
    assert (again[:1], again[2:]) == (first[:1], first[2:])
    return report.session


def same(back: Session, session: Session) -> None:
    """All that a history is, but for the moments at which its rows were written here."""
    of_message = ("position", "uuid", "parent_uuid", "digest", "content", "envelope", "kind", "message_id", "model")
    of_message += ("usage", "is_meta", "is_sidechain", "is_prompt", "sent_at", "path_parent", "left_path_at", "role")
    of_entry = ("key", "line_number", "after_position", "anchor_position", "type", "raw")
    of_absence = ("left_at", "back_at", "positions")
    for rows, names, order in (
        ("messages", of_message, "position"),
        ("entries", of_entry, "id"),
        ("path_absences", of_absence, "id"),
    ):
        mine, theirs = (list(getattr(one, rows).order_by(order).values_list(*names)) for one in (back, session))
        assert repr(mine) == repr(theirs), rows
    assert (back.system, back.tools, back.metadata) == (session.system, session.tools, session.metadata)
    assert (back.title, back.model, back.thread, back.source) == (
        session.title,
        session.model,
        session.thread,
        session.source,
    )
    assert context(back) == context(session)
    of_boundary = ("kind", "trigger", "covers_to", "committed_at_position", "summary", "summary_blocks", "generation")
    of_boundary += ("facts", "instructions", "model", "usage", "preserved_first", "preserved_last", "clearing", "why")
    of_boundary += ("cleared_results", "tokens_before", "tokens_after", "reverted_at", "reverted_position")
    mine, theirs = (list(one.boundaries.order_by("id")) for one in (back, session))
    assert [[getattr(one, name) for name in of_boundary] for one in mine] == [
        [getattr(one, name) for name in of_boundary] for one in theirs
    ]
    for rows in (mine, theirs):
        places = {row.pk: number for number, row in enumerate(rows)}
        for name in ("base_id", "restores_id", "reverted_with_id", "reverted_after"):
            for row in rows:
                setattr(row, name, places.get(getattr(row, name)))
    for one, other in zip(mine, theirs, strict=True):
        assert (one.base_id, one.restores_id, one.reverted_with_id, one.reverted_after) == (
            other.base_id,
            other.restores_id,
            other.reverted_with_id,
            other.reverted_after,
        )
        then = (selectors.context_view_at(session=row.session, boundary_uuid=str(row.uuid)) for row in (one, other))
        assert len({json.dumps(build_request(view=view).messages) for view in then}) == 1


def commit(session: Session, kind: BoundaryKind, covers_to: int, **more: Any) -> CompactBoundary:
    head = selectors.head_boundary(session=session)
    draft = BoundaryDraft(kind=kind, covers_to=covers_to, **more)
    boundary = boundary_service.commit_boundary(
        session_id=session.pk,
        draft=draft,
        trigger="manual",
        expected_head_id=head.pk if head else None,
        expected_newest_id=selectors.newest_boundary_id(session=session),
        as_of=session.last_position,
        tokens_before=12_345,
        now=NOW,
    )
    session.refresh_from_db()
    return boundary


def full(session: Session, covers_to: int, summary: str = "what was", **more: Any) -> CompactBoundary:
    more.setdefault("summarizer", "extractive")
    return commit(session, BoundaryKind.FULL, covers_to, summary=summary, summary_tokens=9, **more)


def partial_from(
    session: Session, first: int, covers_to: int, summary: str = "the rest", **more: Any
) -> CompactBoundary:
    kept = PreservedSegment(first=1, last=first - 1, placement=Placement.BEFORE_SUMMARY)
    head = selectors.head_boundary(session=session)
    return commit(
        session,
        BoundaryKind.PARTIAL_FROM,
        covers_to,
        summary=summary,
        summary_tokens=9,
        preserved=kept,
        base=head.as_value() if head else None,
        **more,
    )


def partial_up_to(session: Session, cut: int, summary: str = "the first", **more: Any) -> CompactBoundary:
    """In front of a cut that lies before an earlier summary, which stays."""
    head = selectors.head_boundary(session=session)
    assert head is not None
    last = max(i.position for i in selectors.context_view(session=session).items if i.position <= head.covers_to)
    return commit(
        session,
        BoundaryKind.PARTIAL_UP_TO,
        head.covers_to,
        summary=summary,
        summary_tokens=9,
        preserved=PreservedSegment(first=cut, last=last, placement=Placement.AFTER_SUMMARY),
        base=head.as_value(),
        **more,
    )


def clear(session: Session, position: int, *ids: str, **more: Any) -> CompactBoundary:
    results = tuple(
        ClearedResult(tool_use_id=one, tool="Read", position=position, tokens_freed=5, reason="old") for one in ids
    )
    return commit(
        session, BoundaryKind.MICROCOMPACT, 0, cleared_tool_use_ids=ids, cleared_results=results, why="old", **more
    )


def resumed(session: Session, *, relinked: bool = True) -> list[tuple[str, Any]]:
    return messages_of(chain_of(read(exported(session)), relinked=relinked))


def sent(session: Session) -> list[tuple[str, Any]]:
    return [(message["role"], message["content"]) for message in context(session)]


def by_uuid(session: Session) -> dict[str, Any]:
    return {one["uuid"]: one for one in read(exported(session)) if "uuid" in one}


class TestExport:
    def test_it_works(self) -> None:
        session = make_session(external_id=SESSION, metadata={"cwd": "/srv/app"})
        append(
            session,
            user("fix it", uuid="u1"),
            assistant([text("Reading."), use("A")], uuid="a1", message_id="msg_1", usage={"output_tokens": 9}),
            user([res("A", "x")], uuid="r1"),
        )
        export = export_session(session=session, format_name="claude-code", policy=Policy())
        assert (export.name, export.media_type) == (f"{SESSION}.jsonl", "application/x-ndjson")
        first, second, third = read(b"".join(export.chunks))
        assert first == {
            "parentUuid": None,
            "isSidechain": False,
            "userType": "external",
            "cwd": "/srv/app",
            "sessionId": SESSION,
            "version": "",
            "gitBranch": "",
            "timestamp": "2026-11-03T09:00:00.000Z",
            "type": "user",
            "message": {"role": "user", "content": "fix it"},
            "uuid": "u1",
        }
        assert (second["parentUuid"], third["parentUuid"]) == ("u1", "a1")
        assert second["message"] == {
            "role": "assistant",
            "id": "msg_1",
            "type": "message",
            "stop_reason": None,
            "stop_sequence": None,
            "model": "claude-sonnet-4-5",
            "usage": {"output_tokens": 9},
            "content": [{"type": "text", "text": "Reading."}, use("A")],
        }
        assert resumed(session) == sent(session)
        back = round_trip(session)
        assert back.external_id == SESSION

    def test_an_unknown_format_and_an_empty_session_are_refused(self) -> None:
        session = make_session()
        with pytest.raises(ExportRefused, match="'yaml' can not be written; known: claude-code"):
            export_session(session=session, format_name="yaml", policy=Policy())
        with pytest.raises(ExportRefused, match="no messages"):
            export_session(session=session, format_name="claude-code", policy=Policy())

    def test_contents_come_back_to_the_letter(self) -> None:
        session = make_session()
        odd = "a\x00b \ud800 \u2028 \u2029 \x85 \x0b 修复 🎉 \\u0000"
        number = 123456789012345678901234567890
        deep: Any = "x"
        for _ in range(195):
            deep = [deep]
        append(
            session,
            user(odd, uuid="u1"),
            assistant("plain text", uuid="a1"),
            assistant("", uuid="a2"),
            assistant([], uuid="a3", message_id=None),
            user([res("Z", [{"type": "text", "text": odd}]), {"type": "x", "n": number, "f": 1e300, "z": -0.0}]),
            assistant([use("A", deep=deep), thinking(odd, "sig==")], usage={"input_tokens": number, "odd": odd}),
            user([], is_meta=True),
            user("last"),
        )
        back = round_trip(session)
        assert Message.objects.get(session=back, uuid="u1").content == odd
        assert Message.objects.get(session=back, uuid="a1").content == "plain text"

    def test_system_prompt_and_tools_come_back(self) -> None:
        tools = [{"name": "Read", "description": "\x00\ud800", "input_schema": {"type": "object"}}]
        session = make_session(system=[{"type": "text", "text": "You are careful."}], tools=tools)
        append(session, user("1"), assistant("2"))
        back = round_trip(session)
        assert (back.system, back.tools) == (session.system, tools)
        assert back.given_overhead_tokens == session.given_overhead_tokens > 0
        assert back.entries.count() == 0

    def test_a_session_that_is_there_keeps_its_own(self) -> None:
        session = make_session(system="old", external_id=SESSION)
        append(session, user("1", uuid="1"))
        data = exported(session), exported(session, format_name="anthropic")
        Session.objects.update(system="new")
        for one in data:
            report = imported(one, team=session.team)
            assert (report.session.pk, report.created, report.session.system) == (session.pk, False, "new")

    @pytest.mark.parametrize("system", [7, [1], {"type": "text"}])
    def test_a_system_prompt_that_is_none(self, system: Any) -> None:
        session = make_session(system="x")
        append(session, user("1"))
        first, rest = exported(session).split(b"\n", 1)
        bad = json.loads(first)
        bad[MARK]["session"]["system"] = system
        report = imported(json.dumps(bad).encode() + b"\n" + rest)
        assert [one.line_number for one in report.problems] == [1]
        assert report.session.system is None
        assert report.messages == 1

    def test_a_system_message_is_one_again(self) -> None:
        from dataclasses import replace

        from sessions_app.transcript.messages import Role

        session = make_session()
        append(session, user("1"), replace(user("be careful"), role=Role.SYSTEM), assistant("2"))
        line = read(exported(session))[1]
        assert (line["type"], line["isMeta"]) == ("user", True)
        assert [row[2] for row in history(round_trip(session))] == ["'user'", "'system'", "'assistant'"]

    def test_memory_holds_a_batch(self, django_assert_max_num_queries: Any) -> None:
        session = make_session()
        append(session, *turns(30))
        with django_assert_max_num_queries(40):
            data = exported(session, import_batch_lines=10)
        assert data == exported(session)
        chunks = export_session(session=session, format_name="claude-code", policy=Policy(import_batch_lines=10)).chunks
        with django_assert_max_num_queries(6):
            next(chunks)

    def test_what_is_appended_meanwhile_is_left_out(self) -> None:
        session = make_session()
        append(session, *turns(2))
        export = export_session(session=session, format_name="claude-code", policy=Policy())
        append(session, user("later", uuid="later"))
        assert b"later" not in b"".join(export.chunks)

    def test_a_rewind_is_a_branch(self) -> None:
        session = make_session()
        append(session, user("1", uuid="1"), assistant("2", uuid="2", parent_uuid="1", message_id="a"))
        append(session, user("no", uuid="3", parent_uuid="2"), assistant("4", uuid="4", message_id="b"))
        append(session, user("yes", uuid="5", parent_uuid="2"), assistant("6", uuid="6", message_id="c"))
        assert {uuid: one["parentUuid"] for uuid, one in by_uuid(session).items()} == {
            "1": None,
            "2": "1",
            "3": "2",
            "4": "3",
            "5": "2",
            "6": "5",
        }
        assert resumed(session) == sent(session)
        round_trip(session)
        append(session, user("on with three", uuid="7", parent_uuid="4"))
        assert resumed(session) == sent(session)
        round_trip(session)

    def test_an_export_of_its_own_changes_nothing_where_it_came_from(self) -> None:
        session = make_session()
        append(session, *turns(4))
        full(session, 8)
        append(session, *turns(2, start=4))
        clear(session, 19, "c4")
        before = (history(session), path(session), context(session), session.boundaries.count())
        report = imported(exported(session), team=session.team, name=f"{session.uuid}.jsonl")
        assert (report.session.pk, report.messages, report.entries, report.boundaries) == (session.pk, 0, 0, 0)
        assert (history(session), path(session), context(session), session.boundaries.count()) == before

    def test_what_its_client_wrote_on_comes_in_behind(self) -> None:
        session = make_session()
        append(session, *turns(4))
        boundary = full(session, 12)
        data = exported(session)
        summary = read(data)[-1]["uuid"]
        more = file_of(human("n1", summary, "go on"), reply("n2", "n1", "done")).getvalue()
        report = imported(data + more, team=session.team, name=f"{session.uuid}.jsonl")
        assert (report.session.pk, report.messages, report.boundaries) == (session.pk, 2, 0)
        session.refresh_from_db()
        assert [item.uuid for item in selectors.context_view(session=session).items][-2:] == ["n1", "n2"]
        assert resumed(session) == sent(session)
        assert by_uuid(session)["n1"]["parentUuid"] == summary
        assert boundary.reverted_at is None
        round_trip(session)


class TestOurBoundaries:
    @pytest.mark.parametrize("more", [0, 2])
    @pytest.mark.parametrize("covers_to", [8, 16])
    def test_whole(self, covers_to: int, more: int) -> None:
        """With a kept tail and without one; as the last thing, and with messages behind it."""
        session = make_session()
        append(session, *turns(4))
        boundary = full(session, covers_to, instructions="keep the SQL", facts={"a": [1]}, usage={"output_tokens": 3})
        append(session, *turns(more, start=4))
        lines = by_uuid(session)
        told = lines[str(boundary.uuid)]
        assert (told["type"], told["subtype"], told["parentUuid"]) == ("system", "compact_boundary", None)
        assert told["logicalParentUuid"] == "b3"
        metadata = told["compactMetadata"]
        assert (metadata["trigger"], metadata["preTokens"], metadata["userContext"]) == (
            "manual",
            12_345,
            "keep the SQL",
        )
        assert metadata["postTokens"] == boundary.tokens_after
        assert metadata["messagesSummarized"] == covers_to
        summary = next(one for one in lines.values() if one.get("isCompactSummary"))
        assert summary["parentUuid"] == str(boundary.uuid)
        assert summary["isVisibleInTranscriptOnly"] is True
        assert summary["message"]["content"] == summary_content(summary="what was")
        if covers_to == 8:
            assert metadata["preservedSegment"] == {
                "headUuid": boundary.head_uuid,
                "anchorUuid": boundary.anchor_uuid,
                "tailUuid": boundary.tail_uuid,
            }
            assert metadata["preservedSegment"]["anchorUuid"] == summary["uuid"]
            assert metadata["preservedMessages"]["uuids"] == ["u2", "a2", "t2", "b2", "u3", "a3", "t3", "b3"]
        else:
            assert "preservedSegment" not in metadata
        assert resumed(session) == sent(session)
        # A loader that only walks never falls back into what was compacted.
        assert chain_of(lines.values(), relinked=False)[0]["uuid"] == str(boundary.uuid)
        [copy] = round_trip(session).boundaries.all()
        assert (copy.instructions, copy.facts, copy.usage) == ("keep the SQL", {"a": [1]}, {"output_tokens": 3})
        assert (copy.tokens_before, copy.tokens_after, copy.trigger) == (12_345, boundary.tokens_after, "manual")
        assert (copy.covers_to, copy.head_uuid, copy.tail_uuid) == (
            boundary.covers_to,
            boundary.head_uuid,
            boundary.tail_uuid,
        )

    def test_attachments_stand_behind_the_summary(self) -> None:
        session = make_session()
        append(session, *turns(4))
        files = tuple(
            AttachmentValue(kind="file", text=f"file {n}\n\u2028", payload={"path": f"/{n}"}, tokens=n) for n in (1, 2)
        )
        full(session, 8, attachments=files)
        append(session, *turns(1, start=4))
        assert resumed(session) == sent(session)
        back = round_trip(session)
        assert [(a.kind, a.payload, a.tokens) for a in back.boundaries.get().attachments.all()] == [
            ("file", {"path": "/1"}, 1),
            ("file", {"path": "/2"}, 2),
        ]

    def test_compacted_again_and_again(self) -> None:
        session = make_session()
        for number in range(4):
            append(session, *turns(3, start=3 * number))
            full(session, session.last_position - 4, f"summary {number}")
        append(session, *turns(1, start=40))
        assert resumed(session) == sent(session)
        back = round_trip(session)
        mine, theirs = session.boundaries.order_by("pk"), back.boundaries.order_by("pk")
        for one, other in zip(mine, theirs, strict=True):
            views = [
                selectors.context_view_at(session=s, boundary_uuid=str(b.uuid))
                for s, b in ((session, one), (back, other))
            ]
            assert build_request(view=views[0]).messages == build_request(view=views[1]).messages

    @pytest.mark.parametrize("more", [0, 2])
    @pytest.mark.parametrize("tail", [0, 1, 4])
    def test_from_a_message_on(self, tail: int, more: int) -> None:
        session = make_session()
        append(session, *turns(4))
        boundary = partial_from(session, 5, 16 - tail)
        append(session, *turns(more, start=4))
        lines = by_uuid(session)
        told = lines[str(boundary.uuid)]["compactMetadata"]
        assert told["preservedMessages"] == {"anchorUuid": str(boundary.uuid), "uuids": ["u0", "a0", "t0", "b0"]}
        assert resumed(session) == sent(session)
        assert chain_of(lines.values(), relinked=False)[0]["uuid"] == str(boundary.uuid)
        round_trip(session)

    def test_from_a_message_on_in_a_session_that_was_compacted(self) -> None:
        session = make_session()
        append(session, *turns(4))
        full(session, 8, attachments=(AttachmentValue(kind="plan", text="the plan", tokens=3),))
        append(session, *turns(4, start=4))
        second = partial_from(session, 21, 32)
        append(session, *turns(1, start=8))
        told = by_uuid(session)[str(second.uuid)]["compactMetadata"]
        assert len(told["preservedMessages"]["uuids"]) == 13
        assert told["messagesSummarized"] == 12
        assert resumed(session) == sent(session)
        back = round_trip(session)
        assert back.boundaries.get(kind="partial_from").base == back.boundaries.get(kind="full")
        full(session, 32, "all of it")
        assert resumed(session) == sent(session)
        round_trip(session)

    @pytest.mark.parametrize("more", [0, 2])
    @pytest.mark.parametrize("tail", [0, 4])
    def test_up_to_a_message_in_front_of_an_earlier_summary(self, tail: int, more: int) -> None:
        session = make_session()
        append(session, *turns(4))
        earlier = partial_from(session, 9, 16 - tail)
        boundary = partial_up_to(session, 5)
        append(session, *turns(more, start=4))
        told = by_uuid(session)[str(boundary.uuid)]["compactMetadata"]
        behind = ["u3", "a3", "t3", "b3"][:tail]
        summary = summary_uuid(boundary_id=str(earlier.uuid))
        assert told["preservedMessages"]["uuids"] == ["u1", "a1", "t1", "b1", summary, *behind]
        assert resumed(session) == sent(session)
        back = round_trip(session)
        assert resumed(back) == sent(back)
        append(back, *turns(1, start=6))
        assert resumed(back) == sent(back)

    def test_up_to_again_and_again_at_one_place(self) -> None:
        """Summaries that were replaced at once are older in the chain than they are in the file."""
        session = make_session()
        append(session, *turns(4))
        partial_from(session, 13, 16)
        for cut in (5, 9):
            partial_up_to(session, cut, f"up to {cut}")
            assert resumed(session) == sent(session)
        back = round_trip(session)
        assert resumed(back) == sent(back)
        append(session, *turns(1, start=4))
        assert resumed(session) == sent(session)
        round_trip(session)

    def test_a_preserved_round_stands_behind_the_summary(self) -> None:
        session = make_session()
        append(session, *turns(3), user("and now?", uuid="q"))
        full(session, 13, preserved=PreservedSegment(first=5, last=8, placement=Placement.AFTER_SUMMARY))
        append(session, assistant("so", uuid="z", message_id="zz"))
        assert resumed(session) == sent(session)
        round_trip(session)

    @pytest.mark.parametrize("more", [0, 1])
    def test_a_preserved_round_with_nothing_kept_behind_it(self, more: int) -> None:
        """Its client goes on from the newest line: what was kept must not look older than what was compacted."""
        session = make_session()
        append(session, *turns(4))
        full(session, 16, preserved=PreservedSegment(first=5, last=8, placement=Placement.AFTER_SUMMARY))
        append(session, *turns(more, start=4))
        assert resumed(session) == sent(session)
        back = round_trip(session)
        assert resumed(back) == sent(back)
        append(back, *turns(1, start=6))
        assert resumed(back) == sent(back)

    def test_two_at_one_place(self) -> None:
        session = make_session()
        append(session, *turns(4))
        full(session, 4, "first")
        full(session, 8, "second")
        assert resumed(session) == sent(session)
        back = round_trip(session)
        assert resumed(back) == sent(back)
        partial_from(session, 13, 16)
        assert resumed(session) == sent(session)
        back = round_trip(session)
        assert resumed(back) == sent(back)
        full(back, 16, "third")
        assert resumed(back) == sent(back)

    def test_the_providers_block_comes_back_to_the_letter(self) -> None:
        block = {"type": "compaction", "content": "what was \x00 \ud800", "signature": "c2ln==", "z": [1, {"a": None}]}
        session = make_session()
        append(session, *turns(4))
        full(session, 12, "what was", summarizer="anthropic_native", summary_blocks=(block,))
        append(session, *turns(1, start=4))
        summary = next(one for one in read(exported(session)) if one.get("isCompactSummary"))
        assert summary["message"]["content"] == summary_content(summary="what was")
        back = round_trip(session)
        assert back.boundaries.get().summary_blocks == [block]
        assert context(back)[0] == {"role": "assistant", "content": [block]}

    @pytest.mark.parametrize("clearing", list(Clearing))
    def test_cleared_results(self, clearing: Clearing) -> None:
        session = make_session()
        append(session, *turns(3))
        boundary = clear(session, 3, "c0", clearing=clearing)
        append(session, *turns(1, start=3))
        told = by_uuid(session)[str(boundary.uuid)]
        assert (told["subtype"], told["parentUuid"]) == ("microcompact_boundary", "b2")
        assert told["microcompactMetadata"]["compactedToolIds"] == ["c0"]
        assert by_uuid(session)["u3"]["parentUuid"] == str(boundary.uuid), "no break in the chain"
        back = round_trip(session)
        row = back.boundaries.get()
        assert (row.cleared_results, row.clearing, row.why) == (boundary.cleared_results, clearing, "old")
        clear(session, 7, "c1")
        full(session, 8)
        clear(session, 11, "c2", clearing=clearing)
        clear(session, 15, "c3")
        assert str(boundary.uuid) not in [one["uuid"] for one in chain_of(read(exported(session)))]
        round_trip(session)

    def test_a_rewind_into_what_was_kept(self) -> None:
        session = make_session()
        append(session, *turns(4))
        full(session, 8)
        append(session, *turns(1, start=4))
        append(session, user("other", uuid="x1", parent_uuid="b2"), assistant("y", uuid="x2", message_id="x"))
        assert [item.uuid for item in selectors.context_view(session=session).items][1:] == [
            *("u2", "a2", "t2", "b2"),
            *("x1", "x2"),
        ]
        assert resumed(session) == sent(session)
        round_trip(session)

    def test_a_rewind_to_right_before_what_was_kept(self) -> None:
        session = make_session()
        append(session, *turns(4))
        full(session, 8)
        append(session, user("other", uuid="x1", parent_uuid="b1"))
        assert [item.position for item in selectors.context_view(session=session).items] == [0, 17]
        assert resumed(session) == sent(session)
        round_trip(session)

    def test_a_rewind_past_a_boundary(self) -> None:
        session = make_session()
        append(session, *turns(4))
        full(session, 8)
        append(session, *turns(1, start=4))
        append(session, user("other", uuid="x1", parent_uuid="b0"), assistant("y", uuid="x2", message_id="x"))
        assert session.boundaries.get().reverted_at
        assert "compact_boundary" not in exported(session).decode()
        assert resumed(session) == sent(session)
        round_trip(session)

    def test_one_that_was_taken_back_is_not_there_and_its_copy_is(self) -> None:
        session = make_session()
        append(session, *turns(4))
        first = full(session, 8)
        append(session, *turns(1, start=4))
        revert(boundary=first, now=NOW)
        assert "compact_boundary" not in exported(session).decode()
        assert resumed(session) == sent(session)
        round_trip(session)
        restore(boundary=first, now=NOW)
        append(session, *turns(1, start=5))
        assert resumed(session) == sent(session)
        round_trip(session)

    def test_results_of_parallel_calls_that_come_after_the_boundary(self) -> None:
        session = make_session()
        append(
            session,
            *turns(2),
            user("go", uuid="g"),
            assistant([use("A")], uuid="p1", parent_uuid="g", message_id="p"),
            assistant([use("B")], uuid="p2", parent_uuid="p1", message_id="p"),
            user([res("B", "b")], uuid="q2", parent_uuid="p2"),
        )
        full(session, 8)
        append(session, user([res("A", "a")], uuid="q1", parent_uuid="p1"))
        append(session, assistant("done", uuid="d", parent_uuid="q2", message_id="d"))
        assert by_uuid(session)["q1"]["parentUuid"] == "p1"
        round_trip(session)


class TestBadMarks:
    def data(self) -> tuple[Session, list[dict[str, Any]]]:
        session = make_session()
        append(session, *turns(4))
        full(session, 8, attachments=(AttachmentValue(kind="file", text="t"),))
        return session, read(exported(session))

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("kind", "huge"),
            ("kind", "microcompact"),
            ("summary", ""),
            ("summary", {"a": 1}),
            ("summary_tokens", -1),
            ("summary_tokens", 10**30),
            ("generation", True),
            ("generation", 10**6),
            ("summarizer", "x" * 41),
            ("model", "a\x00"),
            ("covers_to", None),
            ("covers_to", "never seen"),
            ("preserved", {"first": "b3", "last": "u0", "placement": "after_summary"}),
            ("preserved", {"first": "u0"}),
            ("attachments", [{"kind": "file"}]),
            ("attachments", {}),
            ("cleared_results", [[]]),
            ("summary_blocks", [{"type": "compaction", "content": "x"}]),
            ("base", "never seen"),
            ("facts", []),
            ("usage", None),
            ("clearing", 3),
        ],
    )
    def test_a_boundary_that_says_to_be_ours_is_checked(self, field: str, value: Any) -> None:
        _, lines = self.data()
        told = next(one for one in lines if one.get("subtype") == "compact_boundary")
        told[MARK]["boundary"][field] = value
        report = imported(b"".join(json.dumps(one).encode() + b"\n" for one in lines))
        assert report.boundaries == 0
        [problem] = report.problems
        assert (problem.reason.startswith("a boundary of an export: "), problem.kept) == (True, True)
        assert len(selectors.context_view(session=report.session).items) == 16

    @pytest.mark.parametrize(
        ("where", "value"),
        [
            ("of", {}),
            ("of", [1]),
            ("part", {"a": 1}),
            ("parentUuid", {"a": 1}),
            ("parentUuid", 5),
            ("compactMetadata", 7),
            ("uuid", "no uuid at all"),
        ],
    )
    def test_what_is_imported_can_be_exported(self, where: str, value: Any) -> None:
        _, lines = self.data()
        for one in lines[-2:]:
            target = one[MARK] if where in ("of", "part") else one
            target[where] = value
        session = imported(b"".join(json.dumps(one).encode() + b"\n" for one in lines)).session
        append(session, *turns(1, start=7))
        round_trip(session, resumes=False)
        for boundary in session.boundaries.all():
            revert(boundary=boundary, now=NOW)
        round_trip(session, resumes=False)

    def test_marks_that_are_none(self) -> None:
        for mark in (5, [], {"given": 3}, {"given": {"role": "root", "content": "text", "parentUuid": 4}}, {"of": {}}):
            entry = {**human("u1", None, [text("a"), text("b")]), MARK: mark}
            report = imported(file_of(entry, reply("a1", "u1", "x")).getvalue())
            [first, _] = Message.objects.filter(session=report.session).order_by("position")
            assert (first.role, first.content) == ("user", [text("a"), text("b")])


BEFORE = [human("u1", None, "one"), reply("a1", "u1", "two"), human("u2", "a1", "three"), reply("a2", "u2", "four")]


def plain(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(row) for row in data.decode().split("\n") if row]


class TestWhatWasImported:
    def test_comes_out_as_it_came(self) -> None:
        lines = [
            {"type": "mode", "mode": "plan", "sessionId": SESSION},
            *BEFORE,
            line("progress", "p1", "a2", data={"x": 1}),
            human("s1", None, "sub", isSidechain=True, agentId="q"),
            compact_boundary(
                "b1",
                "a2",
                preservedSegment={"headUuid": "u2", "anchorUuid": "s", "tailUuid": "a2"},
                preservedMessages={"anchorUuid": "s", "uuids": ["u2", "a2"]},
            ),
            compact_summary("s", "b1"),
            line("attachment", "x1", "s", attachment={"type": "todo"}),
            human("u3", "x1", "five", todos=[], thinkingMetadata={"level": "high"}),
            {"type": "last-prompt", "lastPrompt": "five", "sessionId": SESSION},
            {"strange": True},
        ]
        report = imported(file_of(*lines).getvalue())
        assert plain(exported(report.session)) == lines
        assert [one["uuid"] for one in chain_of(read(exported(report.session)))] == ["b1", "s", "u2", "a2", "x1", "u3"]

    def test_a_line_without_uuid_keeps_the_one_that_it_was_given(self) -> None:
        nameless = {k: v for k, v in human("x", None, "no uuid").items() if k != "uuid"}
        round_trip(imported(file_of(nameless, reply("a1", None, "x")).getvalue()).session)

    def test_our_boundary_in_it(self) -> None:
        session = imported(file_of(*BEFORE, line("progress", "p1", "a2")).getvalue()).session
        full(session, 2)
        data = exported(session)
        grown = file_of(*BEFORE, line("progress", "p1", "a2"), human("u3", "p1", "five")).getvalue()
        assert imported(grown, team=session.team).messages == 1
        append(session, assistant("six", uuid="n1", message_id="n"))
        assert exported(session).startswith(data)
        lines = by_uuid(session)
        assert lines["u3"]["parentUuid"] == next(u for u, one in lines.items() if one.get("isCompactSummary"))
        assert lines["u3"][MARK] == {"given": {"parentUuid": "p1"}}
        assert resumed(session) == sent(session)
        back = round_trip(session)
        assert Message.objects.get(session=back, uuid="u3").parent_uuid == "p1"

    @pytest.mark.parametrize("more", [True, False])
    @pytest.mark.parametrize(
        "kept",
        [
            {},
            {
                "preservedSegment": {"headUuid": "u2", "anchorUuid": "s1", "tailUuid": "a2"},
                "preservedMessages": {"anchorUuid": "s1", "uuids": ["u2", "a2"]},
            },
        ],
    )
    def test_its_clients_boundary_that_was_taken_back_stops_nobody(self, kept: dict[str, Any], more: bool) -> None:
        lines = [*BEFORE, compact_boundary("b1", "a2", **kept), compact_summary("s1", "b1")]
        if more:
            lines += [line("attachment", "x1", "s1", attachment={}), human("u3", "x1", "five"), reply("a3", "u3", "6")]
        session = imported(file_of(*lines).getvalue()).session
        revert(boundary=session.boundaries.get(), now=NOW)
        if more:
            append(session, user("seven", uuid="n1"))
        assert [len(item.content) for item in selectors.context_view(session=session).items][:4] == [3, 1, 5, 1]
        assert resumed(session) == sent(session)
        data = exported(session)
        assert b'"compact_boundary"' not in data
        back = round_trip(session)
        assert TranscriptEntry.objects.get(session=back, key="b1").subtype == "compact_boundary_reverted"
        restore(boundary=session.boundaries.get(), now=NOW)
        append(session, user("eight", uuid="n2"))
        assert resumed(session) == sent(session)
        round_trip(session)

    def test_an_export_that_was_imported_and_went_on(self) -> None:
        first = make_session()
        append(first, *turns(4))
        full(first, 8)
        append(first, *turns(1, start=4))
        clear(first, 19, "c4")
        session = imported(exported(first)).session
        append(session, *turns(2, start=5))
        assert resumed(session) == sent(session)
        round_trip(session)
        partial_from(session, 21, 28)
        append(session, *turns(1, start=8))
        assert resumed(session) == sent(session)
        round_trip(session)
        revert(boundary=session.boundaries.order_by("-pk")[0], now=NOW)
        revert(boundary=session.boundaries.order_by("pk")[0], now=NOW)
        append(session, *turns(1, start=9))
        assert resumed(session) == sent(session)
        round_trip(session)

    def test_copies_behind_a_summary_that_were_imported(self) -> None:
        first = make_session()
        append(first, *turns(4))
        partial_from(first, 5, 12)
        session = imported(exported(first)).session
        append(session, *turns(1, start=4))
        assert resumed(session) == sent(session)
        append(session, user("back", uuid="x", parent_uuid="t3"))
        round_trip(session)

    def test_an_older_word_on_the_leaf_is_followed_by_the_newest(self) -> None:
        lines = [*BEFORE, {"type": "last-prompt", "lastPrompt": "three", "leafUuid": "a2", "sessionId": SESSION}]
        session = imported(file_of(*lines).getvalue()).session
        append(session, user("on", uuid="n1"))
        assert read(exported(session))[-1] == {
            "type": "last-prompt",
            "lastPrompt": "on",
            "leafUuid": "n1",
            "sessionId": SESSION,
        }
        full(session, 3)
        assert read(exported(session))[-1]["leafUuid"] == "n1", "the newest that is kept"
        round_trip(session)

    def test_rows_from_before_their_lines_were_noted(self) -> None:
        lines = [*BEFORE, compact_boundary("b1", "a2"), compact_summary("s1", "b1"), human("u3", "s1", "five")]
        session = imported(file_of(*lines).getvalue()).session
        assert session.boundaries.update(source_key="") == 1
        assert plain(exported(session)) == lines
