"""Import of Claude Code transcripts: every kind of line, and every way in which a file is not what one hopes."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import pytest

from sessions_app import selectors
from sessions_app.models import CompactBoundary, Message, Session, Team, TranscriptEntry
from sessions_app.policy import Policy
from sessions_app.services.sessions import create_session
from sessions_app.services.transcripts import ImportRefused, ImportReport, import_transcript
from sessions_app.transcript.messages import human_text
from sessions_app.transcript.request import build_request
from sessions_app.transcript.validation import validate_messages
from tests.build import res, use
from tests.factories import NOW, make_team
from tests.transcript_lines import SESSION, compact_boundary, compact_summary, file_of, human, line, reply

pytestmark = pytest.mark.django_db


def imported(stream: BytesIO, *, team: Team | None = None, name: str = "talk.jsonl", **figures: Any) -> ImportReport:
    team = team or Team.objects.get_or_create(slug="import", defaults={"name": "Import"})[0]
    return import_transcript(team=team, stream=stream, name=name, policy=Policy(**figures), now=NOW)


def shown(session: Session) -> list[str]:
    return [item.uuid for item in selectors.context_view(session=session).items]


def reasons(report: ImportReport) -> list[tuple[int, str]]:
    return [(problem.line_number, problem.reason) for problem in report.problems]


PLAIN = [human("u1", None, "fix the login test"), reply("a1", "u1", "Reading.", use("t1", file_path="/srv/app/t.py"))]


class TestImportTranscript:
    def test_it_works(self) -> None:
        report = imported(
            file_of(*PLAIN, human("u2", "a1", [res("t1", "def test(): ...")]), reply("a2", "u2", "Done."))
        )
        session = report.session
        assert (report.created, report.messages, report.duplicates, report.problems) == (True, 4, 0, [])
        assert (session.external_id, session.title, session.source) == (SESSION, "fix the login test", "claude-code")
        assert session.model == "claude-sonnet-4-5-20250929"
        assert shown(session) == ["u1", "a1", "u2", "a2"]
        message = Message.objects.get(session=session, uuid="a1")
        assert message.sent_at is not None
        assert message.sent_at.isoformat() == "2026-10-01T08:00:00+00:00"
        assert message.envelope["cwd"] == "/srv/app"
        assert "content" not in message.envelope["message"]

    def test_importing_twice_changes_nothing(self) -> None:
        lines = [*PLAIN, line("progress", "p1", "a1", data={}), {"type": "mode", "mode": "plan", "sessionId": SESSION}]
        first = imported(file_of(*lines))
        before = (list(Message.objects.values()), list(TranscriptEntry.objects.values()))
        again = imported(file_of(*lines))
        assert (again.created, again.messages, again.duplicates, again.entries) == (False, 0, 2, 0)
        assert (list(Message.objects.values()), list(TranscriptEntry.objects.values())) == before
        assert Session.objects.get().pk == first.session.pk

    @pytest.mark.parametrize("batch", [1, 2, 200])
    def test_a_file_that_grew_adds_only_what_is_new(self, batch: int) -> None:
        grown = [*PLAIN, line("progress", "p1", "a1"), human("u2", "p1", [res("t1")]), reply("a2", "u2", "ok")]
        imported(file_of(*PLAIN), import_batch_lines=batch)
        report = imported(file_of(*grown), import_batch_lines=batch)
        assert (report.messages, report.duplicates, report.entries) == (2, 2, 1)
        assert shown(report.session) == ["u1", "a1", "u2", "a2"]

    def test_lines_of_one_response_are_one_message_and_its_usage_counts_once(self) -> None:
        usage = {"input_tokens": 10, "cache_read_input_tokens": 20_000, "output_tokens": 400}
        report = imported(
            file_of(
                human("u1", None, "go"),
                reply("a1", "u1", "Two at once.", message_id="m", usage={**usage, "output_tokens": 1}),
                reply("a2", "a1", use("A"), message_id="m", usage={**usage, "output_tokens": 1}),
                human("r1", "a2", [res("A", "one")], sourceToolAssistantUUID="a2"),
                reply("a3", "a2", use("B"), message_id="m", usage=usage),
                human("r2", "a3", [res("B", "two")]),
                reply("b1", "r2", "Done.", message_id="n", usage={**usage, "cache_read_input_tokens": 21_000}),
            )
        )
        messages = build_request(view=selectors.context_view(session=report.session)).messages
        assert [len(m["content"]) for m in messages] == [1, 3, 2, 1]
        assert validate_messages(messages=messages) == []
        assert report.session.peak_prompt_tokens == 21_010
        report.session.refresh_from_db()
        assert 21_410 <= report.session.context_tokens < 21_500

    def test_a_usage_without_counts_is_kept_as_given(self) -> None:
        usage = {"input_tokens": 0, "output_tokens": None, "service_tier": "standard"}
        report = imported(file_of(human("u1", None, "go"), reply("a1", "u1", "ok", usage=usage)))
        assert Message.objects.get(session=report.session, uuid="a1").usage == usage
        assert report.session.context_source == "estimate"

    def test_a_fork_keeps_only_the_branch_that_went_on(self) -> None:
        report = imported(
            file_of(
                *PLAIN[:1],
                reply("a1", "u1", "x"),
                human("u2", "a1", "no"),
                reply("a2", "u2", "y"),
                human("u3", "a1", "yes"),
            )
        )
        assert shown(report.session) == ["u1", "a1", "u3"]
        assert report.messages == 5

    def test_a_parent_that_is_no_message_is_walked_through(self) -> None:
        report = imported(
            file_of(
                *PLAIN[:1],
                line("attachment", "x1", "u1", attachment={"type": "todo"}),
                line("system", "x2", "x1", subtype="turn_duration"),
                reply("a1", "x2", "hello"),
                line("progress", "x3", "a1"),
                human("u2", "x3", "and now"),
            ),
            import_batch_lines=1,
        )
        assert shown(report.session) == ["u1", "a1", "u2"]
        anchors = dict(TranscriptEntry.objects.values_list("key", "anchor_position"))
        assert anchors == {"x1": 1, "x2": 1, "x3": 2}

    def test_a_cycle_of_parents_and_a_missing_parent_end_nothing(self) -> None:
        report = imported(
            file_of(
                *PLAIN,
                line("progress", "p1", "p2"),
                line("progress", "p2", "p1"),
                human("u2", "p2", "x"),
                human("u3", "gone", "y"),
            )
        )
        assert shown(report.session) == ["u1", "a1", "u2", "u3"]

    def test_a_cleared_conversation_begins_anew(self) -> None:
        """/clear writes a new root into the same file; what was before is no part of the context."""
        report = imported(
            file_of(
                line("progress", "p0", None),
                human("u1", "p0", "old"),
                reply("a1", "u1", "x"),
                line("progress", "p1", None),
                human("u2", "p1", "new"),
                reply("a2", "u2", "y"),
            ),
            import_batch_lines=3,
        )
        assert shown(report.session) == ["u2", "a2"]

    def test_sidechains_are_stored_apart(self) -> None:
        report = imported(
            file_of(
                *PLAIN,
                human("s1", None, "sub", isSidechain=True),
                reply("s2", "s1", "x", isSidechain=True),
                human("u2", "a1", [res("t1")]),
            )
        )
        assert report.messages == 5
        assert shown(report.session) == ["u1", "a1", "u2"]

    def test_errors_and_meta_lines(self) -> None:
        report = imported(
            file_of(
                *PLAIN[:1],
                human("m1", "u1", "<local-command-caveat>x</local-command-caveat>", isMeta=True),
                human("c1", "m1", "<command-name>/clear</command-name>"),
                reply("e1", "c1", "API Error: 529", isApiErrorMessage=True),
                reply("a1", "e1", "hello"),
            )
        )
        assert shown(report.session) == ["u1", "m1", "c1", "a1"], (
            "injected text is sent, an error that no model wrote is not"
        )
        prompts = Message.objects.filter(is_prompt=True).values_list("uuid", flat=True)
        assert list(prompts) == ["u1"]

    @pytest.mark.parametrize(
        ("content", "typed"),
        [
            ("<command-name>/todo</command-name>\n<command-args>an app</command-args>", "/todo an app"),
            ("<command-name>/clear</command-name><command-args></command-args>", ""),
            ("<system-reminder>be nice</system-reminder>\n\nUse the branch.", "Use the branch."),
            ("<local-command-stdout>cut off", ""),
            ("<b>bold</b> words", "<b>bold</b> words"),
        ],
    )
    def test_what_a_person_typed(self, content: str, typed: str) -> None:
        imported(file_of(*PLAIN[:1], human("u2", "u1", content)))
        message = Message.objects.get(uuid="u2")
        assert human_text(message.as_value()) == typed
        assert message.is_prompt is bool(typed)

    def test_the_title_is_the_last_that_its_client_gave(self) -> None:
        def title(*extra: dict[str, Any]) -> str:
            return imported(file_of(*PLAIN, *extra), team=make_team()).session.title

        assert title({"type": "summary", "summary": "About login", "leafUuid": "a1"}) == "About login"
        assert title({"type": "ai-title", "aiTitle": "Second"}, {"type": "summary", "summary": "First"}) == "Second"
        assert (
            title({"type": "custom-title", "customTitle": "Mine\nown"}, {"type": "ai-title", "aiTitle": "x"})
            == "Mine own"
        )

    def test_the_session_is_named_by_its_file_else_by_the_last_id_in_it(self) -> None:
        older = [{**PLAIN[0], "sessionId": "older"}, {**PLAIN[1], "sessionId": "newer"}]
        assert imported(file_of(*older)).session.external_id == "newer"
        name = "0b1c2d3e-0000-4000-8000-00000000000a.jsonl"
        assert imported(file_of(*older), name=name).session.external_id == name.removesuffix(".jsonl")

    def test_two_teams_may_hold_the_same_transcript(self) -> None:
        imported(file_of(*PLAIN))
        assert imported(file_of(*PLAIN), team=make_team()).created
        assert Session.objects.filter(external_id=SESSION).count() == 2


class TestLinesNotUnderstood:
    def test_two_objects_on_one_line_are_both_read(self) -> None:
        glued = json.dumps(PLAIN[0]) + json.dumps(PLAIN[1])
        assert imported(file_of(glued.encode())).messages == 2

    @pytest.mark.parametrize(
        ("bad", "reason"),
        [
            (json.dumps(PLAIN[1]).encode()[:-40], "cut in the middle"),
            (b'{"type": "user"', "cut in the middle"),
            (b"not json", "not JSON"),
            (b'{"a": NaN}', "NaN is not JSON"),
            (b"[1, 2]", "a JSON object is expected, not list"),
            (b'{"x": "\xff"}', "not UTF-8"),
            (b"[" * 100_000, "nested too deeply"),
            (json.dumps({"type": "user", "uuid": "x", "parentUuid": None}).encode(), "without a message"),
            (json.dumps(human("x", None, None)).encode(), "neither text nor content blocks"),
            (json.dumps(human("x", None, [1])).encode(), "neither text nor content blocks"),
        ],
    )
    def test_each_is_reported_with_its_number_and_the_rest_is_read(self, bad: bytes, reason: str) -> None:
        report = imported(file_of(PLAIN[0], bad, PLAIN[1]))
        assert report.messages == 2
        [(number, why)] = reasons(report)
        assert number == 2
        assert reason in why

    @pytest.mark.parametrize(
        "hostile",
        [
            '{"type":"user","uuid":"x","parentUuid":"u1","n":1e400,"message":{"role":"user","content":"hi"}}',
            '{"type":"progress","uuid":"x","parentUuid":"u1","n":1e400}',
            '{"type":"user","uuid":"\\ud800","parentUuid":"\\ud800","message":{"role":"user","content":"hi"}}',
            '{"type":"user","uuid":"a\\u0000b","parentUuid":"u1","message":{"role":"user","content":"hi"}}',
            '{"type":"user","uuid":"%s","parentUuid":"u1","message":{"role":"user","content":"hi"}}' % ("x" * 300),
            '{"type":"progress","uuid":"%s","parentUuid":"u1"}' % ("p" * 300),
            '{"type":"assistant","uuid":"x","parentUuid":"u1","message":{"content":[],"usage":{"input_tokens":1%s}}}'
            % ("0" * 30),
            '{"type":"user","uuid":"x","timestamp":"9999-12-31T23:59:59-12:00","message":{"content":"hi"}}',
            '{"type":"user","uuid":"x","timestamp":"0001-01-01T00:00:00+12:00","message":{"content":"hi"}}',
            '{"type":"system","subtype":"microcompact_boundary","uuid":"x","parentUuid":"u1",'
            '"microcompactMetadata":{"preTokens":1%s,"compactedToolIds":["X","a\\u0000b","\\ud800"]}}' % ("0" * 30),
            '{"type":"system","subtype":"\\ud800","uuid":"\\ud800","parentUuid":"u1"}',
            '{"type":"progress","uuid":"x","parentUuid":"u1","d":%s}' % ("[" * 940 + "]" * 940),
        ],
    )
    def test_a_hostile_line_never_keeps_out_the_others(self, hostile: str) -> None:
        lines = [PLAIN[0], hostile.encode(), PLAIN[1]]
        report = imported(file_of(*lines))
        assert {"u1", "a1"} <= set(shown(report.session))
        again = imported(file_of(*lines))
        assert (again.messages, again.entries) == (0, 0)

    def test_a_torn_last_line_comes_in_when_the_file_is_whole(self) -> None:
        whole = json.dumps(PLAIN[1]).encode()
        torn = imported(file_of(PLAIN[0], whole[:-30], end=b""))
        assert (torn.messages, len(torn.problems)) == (1, 1)
        report = imported(file_of(PLAIN[0], whole))
        assert (report.messages, report.duplicates, report.problems) == (1, 1, [])

    def test_unknown_kinds_are_kept_raw(self) -> None:
        strange = {"type": "hologram", "z": [1, {"y": None}], "a": "\x00 \ud800"}
        report = imported(file_of(*PLAIN, strange, {"no": "type"}))
        assert report.entries == 2
        assert [(p.line_number, p.kept) for p in report.problems] == [(3, True), (4, True)]
        assert TranscriptEntry.objects.get(type="hologram").raw == strange

    def test_a_uuid_with_other_content_is_reported_and_the_first_stays(self) -> None:
        report = imported(file_of(*PLAIN, human("u1", "a1", "something else")))
        assert Message.objects.get(uuid="u1").content == "fix the login test"
        [(number, why)] = reasons(report)
        assert number == 3
        assert "other content" in why

    def test_a_snapshot_with_a_messages_uuid_is_no_message(self) -> None:
        snapshot = {"type": "file-history-snapshot", "messageId": "u1", "uuid": "u1", "snapshot": {}}
        report = imported(file_of(PLAIN[0], snapshot, reply("a1", "u1", "x")))
        assert (report.messages, report.entries, report.problems) == (2, 1, [])

    def test_blank_lines_and_a_byte_order_mark_are_nothing(self) -> None:
        report = imported(file_of(b"\xef\xbb\xbf" + json.dumps(PLAIN[0]).encode(), b"", b"  ", PLAIN[1]))
        assert (report.messages, report.problems) == (2, [])

    def test_a_line_without_uuid_is_found_again(self) -> None:
        nameless = {k: v for k, v in human("x", None, "no uuid").items() if k != "uuid"}
        assert imported(file_of(PLAIN[0], nameless)).messages == 2
        assert imported(file_of(PLAIN[0], nameless)).messages == 0

    def test_a_line_beyond_the_limit_is_passed_over(self) -> None:
        long = human("long", "u1", "x" * 5_000)
        report = imported(file_of(PLAIN[0], long, PLAIN[1]), import_line_bytes=2_000)
        assert report.messages == 2
        assert [number for number, _ in reasons(report)] == [2]

    def test_a_file_full_of_them_lists_the_first_and_counts_all(self) -> None:
        report = imported(file_of(PLAIN[0], *[b"junk"] * 50), import_kept_problems=10)
        assert (len(report.problems), report.problem_count) == (10, 50)


class TestRefusals:
    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (b"", "empty"),
            (b" \n\n ", "empty"),
            (b"\x89PNG\r\n\x1a\n\x00\x00", "binary"),
            (b"hello\nworld\n", "no line of it is a JSON object"),
            (b'{"a": 1}\n', "none of the known transcript formats"),
            (b'"text"', "no line of it is a JSON object"),
            (b"[1, 2]", "none of the known transcript formats"),
            (b'{"type":"session_meta","payload":{}}\n{"type":"response_item","payload":{}}', "none of the known"),
        ],
    )
    def test_nothing_is_stored_of_a_file_that_is_none(self, data: bytes, reason: str) -> None:
        with pytest.raises(ImportRefused, match=reason):
            imported(BytesIO(data))
        assert not Session.objects.exists()

    def test_an_unknown_format(self) -> None:
        with pytest.raises(ImportRefused, match="'yaml' is not known"):
            import_transcript(
                team=make_team(), stream=file_of(*PLAIN), name="x", format_name="yaml", policy=Policy(), now=NOW
            )

    def test_a_forced_format_without_any_message(self) -> None:
        with pytest.raises(ImportRefused, match="no message"):
            import_transcript(
                team=make_team(),
                stream=BytesIO(b'{"a":1}'),
                name="x",
                format_name="claude-code",
                policy=Policy(),
                now=NOW,
            )
        assert not Session.objects.exists()
        assert not TranscriptEntry.objects.exists()

    def test_a_crash_in_the_middle_stores_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Torn(BytesIO):
            def readline(self, *args: Any) -> bytes:
                found = super().readline(*args)
                if self.tell() > 600:
                    raise OSError("disk gone")
                return found

        with pytest.raises(OSError, match="disk gone"):
            imported(Torn(file_of(*PLAIN, *PLAIN, *PLAIN).getvalue()), import_batch_lines=1)
        assert not Session.objects.exists()


BEFORE = [human("u1", None, "one"), reply("a1", "u1", "two"), human("u2", "a1", "three"), reply("a2", "u2", "four")]


class TestBoundariesInTheFile:
    @pytest.mark.parametrize("batch", [1, 200])
    def test_a_compaction_of_the_client_becomes_a_boundary(self, batch: int) -> None:
        report = imported(
            file_of(
                *BEFORE,
                compact_boundary("b1", "a2", postTokens=9_100),
                compact_summary("s1", "b1"),
                human("u3", "s1", "five"),
            ),
            import_batch_lines=batch,
        )
        boundary = CompactBoundary.objects.get()
        assert (boundary.kind, boundary.trigger, boundary.covers_to) == ("full", "auto", 4)
        assert (boundary.tokens_before, boundary.tokens_after) == (171_200, 9_100)
        view = selectors.context_view(session=report.session)
        assert [item.position for item in view.items] == [0, 6]
        assert "Summary: X." in str(view.items[0].content)
        assert report.boundaries == 1

    @pytest.mark.parametrize(
        "kept",
        [
            {"preservedSegment": {"headUuid": "u2", "anchorUuid": "s1", "tailUuid": "a2"}},
            {"preservedMessages": {"anchorUuid": "s1", "uuids": ["u2", "a2"]}},
        ],
    )
    def test_kept_messages_stand_after_the_summary(self, kept: dict[str, Any]) -> None:
        report = imported(
            file_of(
                *BEFORE, compact_boundary("b1", "a2", **kept), compact_summary("s1", "b1"), human("u3", "a2", "five")
            )
        )
        view = selectors.context_view(session=report.session)
        assert [item.position for item in view.items] == [0, 3, 4, 6]
        boundary = CompactBoundary.objects.get()
        assert (boundary.head_uuid, boundary.tail_uuid) == ("u2", "a2")

    def test_an_early_prefix_stands_before_the_summary(self) -> None:
        kept = {"preservedMessages": {"anchorUuid": "b1", "uuids": ["u1", "a1"]}}
        report = imported(file_of(*BEFORE, compact_boundary("b1", "a2", **kept), compact_summary("s1", "b1")))
        assert [item.position for item in selectors.context_view(session=report.session).items] == [1, 2, 0]
        assert CompactBoundary.objects.get().kind == "partial_from"

    def test_two_compactions_and_only_the_last_counts(self) -> None:
        report = imported(
            file_of(
                *BEFORE,
                compact_boundary("b1", "a2"),
                compact_summary("s1", "b1", "first"),
                human("u3", "s1", "five"),
                compact_boundary("b2", "u3"),
                compact_summary("s2", "b2", "second"),
            )
        )
        [only] = selectors.context_view(session=report.session).items
        assert "second" in str(only.content)
        assert CompactBoundary.objects.count() == 2

    @pytest.mark.parametrize("metadata", [{}, None])
    def test_metadata_may_be_missing(self, metadata: Any) -> None:
        told = {**compact_boundary("b1", "a2"), "compactMetadata": metadata}
        report = imported(file_of(*BEFORE, told, compact_summary("s1", "b1")))
        assert report.boundaries == 1

    def test_a_boundary_as_last_line_waits_for_its_summary(self) -> None:
        lines = [*BEFORE, compact_boundary("b1", "a2")]
        first = imported(file_of(*lines))
        assert shown(first.session) == ["u1", "a1", "u2", "a2"]
        grown = imported(file_of(*lines, compact_summary("s1", "b1")))
        assert (grown.boundaries, grown.messages) == (1, 1)
        assert len(selectors.context_view(session=grown.session).items) == 1
        assert imported(file_of(*lines, compact_summary("s1", "b1"))).boundaries == 0

    def test_a_summary_without_its_boundary_is_sent_as_it_is(self) -> None:
        report = imported(file_of(compact_summary("s1", "gone"), reply("a1", "s1", "going on")))
        assert shown(report.session) == ["s1", "a1"]
        assert "without its compact_boundary" in report.problems[0].reason

    def test_a_file_of_a_session_that_was_made_by_the_api(self) -> None:
        team = make_team()
        create_session(team=team, values={"external_id": SESSION})
        report = imported(file_of(*BEFORE, compact_boundary("b1", "a2"), compact_summary("s1", "b1")), team=team)
        assert (report.created, report.boundaries) == (False, 1)

    def test_a_sub_agents_own_compaction_is_not_the_main_threads(self) -> None:
        told = {"compactedToolIds": ["Z"]}
        side = line("system", "k", "a2", subtype="microcompact_boundary", microcompactMetadata=told, isSidechain=True)
        assert imported(file_of(*BEFORE, {**side, "isSidechain": True})).boundaries == 0

    def test_t11_usage_from_before_a_boundary_is_void(self) -> None:
        usage = {"input_tokens": 190_000, "output_tokens": 10}
        lines = [
            *BEFORE[:3],
            reply("a2", "u2", "four", usage=usage),
            compact_boundary("b1", "a2"),
            compact_summary("s1", "b1"),
        ]
        session = imported(file_of(*lines)).session
        session.refresh_from_db()
        assert session.context_source == "estimate"
        assert session.context_tokens < 20_000

    def test_a_microcompaction_clears_the_results_it_names(self) -> None:
        told = {"trigger": "auto", "preTokens": 90_000, "tokensSaved": 22_000, "compactedToolIds": ["t1"]}
        micro = line("system", "k1", "r1", subtype="microcompact_boundary", microcompactMetadata=told)
        lines = [*PLAIN, human("r1", "a1", [res("t1", "long " * 500)]), micro, reply("a2", "k1", "ok")]
        report = imported(file_of(*lines))
        built = build_request(view=selectors.context_view(session=report.session))
        assert built.cleared_tool_results == 1
        boundary = CompactBoundary.objects.get()
        assert (boundary.kind, boundary.tokens_after, boundary.summary) == ("microcompact", 68_000, None)
        assert Message.objects.get(uuid="r1").content[0]["content"] == "long " * 500
        assert imported(file_of(*lines)).boundaries == 0
