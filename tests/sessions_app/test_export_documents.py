"""Chat documents: what programs read of them, and what an import makes of one that is whole, damaged or hostile."""

from __future__ import annotations

import json
import tracemalloc
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from sessions_app import selectors
from sessions_app.models import Session
from sessions_app.policy import Policy
from sessions_app.services.exports import export_session
from sessions_app.services.reverts import restore, revert
from sessions_app.services.transcripts import ImportRefused, ImportReport, import_transcript
from sessions_app.transcript.request import build_request
from sessions_app.transcript.validation import validate_messages
from tests.build import res, thinking, use
from tests.factories import NOW, append, assistant, make_session, make_team, turns, user
from tests.sessions_app.test_exports import clear, exported, full, imported, same

pytestmark = pytest.mark.django_db

FORMATS = ["anthropic", "openai"]
MARK = "compactionService"


@pytest.fixture
def talk() -> Session:
    session = make_session(
        external_id="agent-1",
        title="Login",
        system="Be careful.",
        tools=[{"name": "Read", "description": "reads", "input_schema": {"type": "object"}}],
        metadata={"cwd": "/srv", "odd": "\x00\ud800"},
        thread="subagent",
    )
    append(session, *turns(4))
    full(session, 8)
    append(session, *turns(1, start=4))
    return session


def lines_of(session: Session, format_name: str = "anthropic") -> list[bytes]:
    return exported(session, format_name=format_name).splitlines(keepends=True)


def with_item(session: Session, number: int, **changes: Any) -> bytes:
    """The export with fields of one line of the history changed; None leaves the field out."""
    lines = lines_of(session)
    item = json.loads(lines[number].rstrip(b",\n"))
    item = {name: value for name, value in {**item, **changes}.items() if changes.get(name, 0) is not None}
    lines[number] = json.dumps(item).encode() + (b",\n" if lines[number].endswith(b",\n") else b"\n")
    return b"".join(lines)


class TestDocument:
    @pytest.mark.parametrize("format_name", FORMATS)
    def test_it_works(self, talk: Session, format_name: str) -> None:
        export = export_session(session=talk, format_name=format_name, policy=Policy())
        assert (export.name, export.media_type) == (f"{talk.uuid}.json", "application/json")
        data = b"".join(export.chunks)
        whole = json.loads(data)
        assert whole["model"] == talk.model
        assert whole[MARK]["session"]["external_id"] == "agent-1"
        assert [item["type"] for item in whole[MARK]["history"]] == ["message"] * 16 + ["boundary"] + ["message"] * 4
        lines = data.splitlines()
        assert len(lines) == 2 + len(whole[MARK]["history"]) + 1
        report = imported(data)
        assert (report.messages, report.boundaries, report.problems) == (20, 1, [])
        assert (report.session.external_id, report.session.title) == ("agent-1", "Login")
        same(report.session, talk)

    def test_an_anthropic_one_is_the_request(self, talk: Session) -> None:
        whole = json.loads(exported(talk, format_name="anthropic"))
        request = build_request(view=selectors.context_view(session=talk), system=talk.system, tools=talk.tools)
        assert (whole["system"], whole["tools"], whole["messages"]) == (
            request.system,
            request.tools,
            request.messages,
        )
        assert validate_messages(messages=whole["messages"]) == []

    @pytest.mark.parametrize("format_name", FORMATS)
    def test_laid_out_anew_it_is_the_same(self, talk: Session, format_name: str) -> None:
        whole = json.loads(exported(talk, format_name=format_name))
        for indent in (None, 2):
            report = imported(json.dumps(whole, indent=indent).encode())
            assert (report.messages, report.boundaries, report.problems) == (20, 1, [])
            same(report.session, talk)

    @pytest.mark.parametrize("format_name", ["auto", *FORMATS])
    def test_it_is_known_whatever_format_is_named(self, talk: Session, format_name: str) -> None:
        report = import_transcript(
            team=make_team(),
            stream=BytesIO(exported(talk, format_name="openai")),
            name="x",
            format_name=format_name,
            policy=Policy(),
            now=NOW,
        )
        same(report.session, talk)

    def test_it_comes_in_the_batches_that_it_went_out_in(self, talk: Session) -> None:
        data = exported(talk, format_name="anthropic")
        for batch in (1, 3, 7):
            assert exported(talk, format_name="anthropic", import_batch_lines=batch) == data
            same(imported(data, import_batch_lines=batch).session, talk)

    @pytest.mark.parametrize("name", ["x.json", "7f3c5a10-0000-4000-8000-000000000009.json"])
    def test_where_it_came_from_it_adds_nothing(self, talk: Session, name: str) -> None:
        before = list(talk.messages.values()), list(talk.boundaries.values())
        for format_name in FORMATS:
            report = imported(exported(talk, format_name=format_name), team=talk.team, name=name)
            [one] = report.sessions
            assert (one.session.pk, one.created, one.messages, one.boundaries) == (talk.pk, False, 0, 0)
            assert one.duplicates == 20
        assert (list(talk.messages.values()), list(talk.boundaries.values())) == before

    def test_twice_it_adds_nothing(self, talk: Session) -> None:
        team, data = make_team(), exported(talk, format_name="anthropic")
        first, second = imported(data, team=team), imported(data, team=team)
        assert (second.session.pk, second.created) == (first.session.pk, False)
        assert (second.messages, second.entries, second.boundaries) == (0, 0, 0)
        same(second.session, talk)

    def test_what_was_added_since_comes_in_behind(self, talk: Session) -> None:
        team = make_team()
        imported(exported(talk, format_name="anthropic"), team=team)
        append(talk, *turns(2, start=5))
        full(talk, 24, "what was, and more")
        report = imported(exported(talk, format_name="anthropic"), team=team)
        assert (report.messages, report.boundaries) == (8, 1)
        same(report.session, talk)

    def test_a_session_without_a_name_is_found_by_its_id(self) -> None:
        session = make_session()
        append(session, *turns(1))
        data = exported(session, format_name="openai")
        assert imported(data, team=session.team).session.pk == session.pk
        assert imported(data).session.external_id == str(session.uuid)

    def test_what_is_appended_meanwhile_is_left_out(self, talk: Session) -> None:
        export = export_session(session=talk, format_name="anthropic", policy=Policy())
        append(talk, user("later", uuid="later"))
        assert b"later" not in b"".join(export.chunks)

    def test_thinking_of_what_was_taken_back_stays_out_of_the_context(self) -> None:
        """Reverted and brought back: what was made in between no longer verifies, and what was made through it does."""
        session = make_session()
        append(session, *turns(4))
        boundary = full(session, 8)
        append(session, assistant([thinking("one"), use("A")], uuid="x1", message_id="x"), user([res("A")], uuid="x2"))
        revert(boundary=boundary, now=NOW)
        append(session, assistant([thinking("two"), use("B")], uuid="y1", message_id="y"), user([res("B")], uuid="y2"))
        restore(boundary=boundary, now=NOW)
        append(session, user("go on", uuid="z"))
        session.refresh_from_db()
        told = json.dumps(build_request(view=selectors.context_view(session=session)).messages)
        assert ("one" in told, "two" in told) == (True, False)
        same(imported(exported(session, format_name="anthropic")).session, session)

    @pytest.mark.thorough
    def test_memory_holds_a_batch(self, talk: Session, tmp_path: Path, django_assert_max_num_queries: Any) -> None:
        imported(exported(talk, format_name="anthropic"))  # what is held for good is held before it is measured
        session = make_session()
        for number in range(8):
            append(session, *turns(20, start=20 * number, size=20_000))
            full(session, session.last_position)
        chunks = export_session(session=session, format_name="anthropic", policy=Policy(import_batch_lines=4)).chunks
        with django_assert_max_num_queries(8):
            next(chunks)
        path = tmp_path / "x.json"

        def peak(run: Any) -> int:
            tracemalloc.start()
            try:
                run()
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

        def go_out() -> None:
            figures = Policy(import_batch_lines=4)
            with path.open("wb") as stream:
                for chunk in export_session(session=session, format_name="anthropic", policy=figures).chunks:
                    stream.write(chunk)

        def come_in() -> None:
            with path.open("rb") as stream:
                figures = Policy(import_batch_lines=4)
                import_transcript(team=make_team(), stream=stream, name="x", policy=figures, now=NOW)

        assert peak(go_out) < path.stat().st_size / 2
        assert peak(come_in) < path.stat().st_size / 2


class TestDamaged:
    def test_one_that_is_cut_keeps_what_is_there(self, talk: Session) -> None:
        lines = lines_of(talk)
        for data, messages, line in (
            (b"".join(lines[:8]), 6, 8),
            (b"".join(lines[:8]) + lines[8][:50], 6, 9),
            (b"".join(lines[:-1]), 20, len(lines) - 1),
        ):
            report = imported(data)
            assert report.messages == messages
            assert [one.line_number for one in report.problems][-1] == line
            assert "ends before its last line" in report.problems[-1].reason

    def test_what_stands_behind_its_end_is_told(self, talk: Session) -> None:
        report = imported(exported(talk, format_name="anthropic") + b'{"role":"user","content":"x"}\n\n')
        assert report.messages == 20
        assert [one.reason for one in report.problems] == ["stands behind the end of the export"]

    @pytest.mark.parametrize(
        ("changes", "why"),
        [
            ({"type": "root"}, "an unknown type"),
            ({"type": ["message"]}, "an unknown type"),
            ({"uuid": None}, "uuid is"),
            ({"uuid": ""}, "uuid is empty"),
            ({"uuid": "x" * 129}, "uuid is"),
            ({"uuid": "a\x00"}, "uuid is"),
            ({"uuid": "\ud800"}, "uuid is"),
            ({"parent_uuid": 7}, "parent_uuid is"),
            ({"path_parent": 7}, "path_parent is"),
            ({"path_parent": ""}, "path_parent is empty"),
            ({"role": "root"}, "an unknown role"),
            ({"role": {}}, "an unknown role"),
            ({"kind": "odd"}, "an unknown kind"),
            ({"content": 7}, "content is"),
            ({"content": [{"text": "x"}]}, "content is"),
            ({"message_id": 7}, "message_id is"),
            ({"model": "m" * 201}, "model is"),
            ({"usage": [1]}, "usage is"),
            ({"is_meta": 1}, "is_meta is"),
            ({"is_sidechain": "no"}, "is_sidechain is"),
            ({"sent_at": "soon"}, "sent_at is"),
            ({"sent_at": "2026-01-01"}, "sent_at is"),
            ({"sent_at": "0001-01-01T00:00:00+23:00"}, "sent_at is"),
            ({"envelope": "x"}, "envelope is"),
        ],
    )
    def test_a_message_that_is_none_is_told_and_the_rest_is_read(
        self, talk: Session, changes: dict[str, Any], why: str
    ) -> None:
        report = imported(with_item(talk, 4, **changes))
        assert report.messages == 19
        assert [one.line_number for one in report.problems] == [5]
        assert why in report.problems[0].reason

    @pytest.mark.parametrize(
        "changes",
        [
            {"kind": "odd"},
            {"covers_to": "nobody"},
            {"covers_to": None},
            {"summary": ""},
            {"base": "nobody"},
            {"uuid": ""},
            {"restores": 7},
            {"facts": 7},
            {"tokens_before": -1},
        ],
    )
    def test_a_boundary_that_is_none_is_told_and_the_rest_is_read(self, talk: Session, changes: Any) -> None:
        report = imported(with_item(talk, 18, **changes))
        assert (report.messages, report.boundaries) == (20, 0)
        assert [one.line_number for one in report.problems] == [19]

    @pytest.mark.parametrize(
        "changes", [{"boundary": "nobody"}, {"boundary": ""}, {"reverted_at": None}, {"fell_with": []}]
    )
    def test_a_revert_that_is_none_takes_nothing_back(self, talk: Session, changes: Any) -> None:
        revert(boundary=talk.boundaries.get(), now=NOW)
        report = imported(with_item(talk, -2, **changes))
        assert report.messages == 20
        assert report.session.boundaries.get().reverted_at is None

    def test_a_revert_touches_no_boundary_that_was_here_before(self, talk: Session) -> None:
        team = make_team()
        imported(exported(talk, format_name="anthropic"), team=team)
        revert(boundary=talk.boundaries.get(), now=NOW)
        report = imported(exported(talk, format_name="anthropic"), team=team)
        assert report.session.boundaries.get().reverted_at is None

    @pytest.mark.parametrize("column", ["title", "model", "system", "tools", "metadata", "thread", "source", "id"])
    def test_a_session_that_is_none_is_refused(self, talk: Session, column: str) -> None:
        whole = json.loads(exported(talk, format_name="anthropic"))
        whole[MARK]["session"] |= {column: 7, "external_id": None}
        with pytest.raises(ImportRefused, match=f"session can't be read: .*{column}"):
            imported(json.dumps(whole).encode())

    @pytest.mark.parametrize("version", [None, 2, True, "1"])
    def test_another_version_is_refused(self, talk: Session, version: Any) -> None:
        whole = json.loads(exported(talk, format_name="anthropic"))
        whole[MARK]["version"] = version
        with pytest.raises(ImportRefused, match="version"):
            imported(json.dumps(whole).encode())
        told = exported(talk, format_name="anthropic").replace(
            b'"version":1', b'"version":' + json.dumps(version).encode()
        )
        with pytest.raises(ImportRefused, match="version"):
            imported(told)

    @pytest.mark.parametrize("history", [None, 7, {}, "x"])
    def test_a_history_that_is_no_list_is_refused(self, talk: Session, history: Any) -> None:
        whole = json.loads(exported(talk, format_name="anthropic"))
        whole[MARK]["history"] = history
        with pytest.raises(ImportRefused, match="no list"):
            imported(json.dumps(whole).encode())

    def test_a_head_that_is_cut_is_refused(self, talk: Session) -> None:
        lines = lines_of(talk)
        with pytest.raises(ImportRefused, match="second line"):
            imported(lines[0] + lines[1][:-8] + b"\n" + lines[2])

    def test_a_context_longer_than_a_line_may_be_is_passed_over(self) -> None:
        session = make_session()
        append(session, *turns(4, size=3_000))
        data = exported(session, format_name="anthropic")
        first = data.split(b"\n", 1)[0]
        report = imported(data, import_line_bytes=len(first) // 2)
        same(report.session, session)

    def test_one_laid_out_anew_that_is_too_long_is_refused(self, talk: Session) -> None:
        whole = json.dumps(json.loads(exported(talk, format_name="anthropic")), indent=2).encode()
        with pytest.raises(ImportRefused, match="longer than 5,000 bytes"):
            imported(whole, import_line_bytes=5_000)

    def test_nesting_goes_as_deep_as_a_session_file_does(self) -> None:
        deep: Any = "x"
        for _ in range(205):
            deep = [deep]
        session = make_session()
        append(session, user([{"type": "x", "deep": deep}]))
        data = exported(session, format_name="anthropic")
        same(imported(data).session, session)
        same(imported(json.dumps(json.loads(data), indent=1).encode()).session, session)
        report_of = imported(b"".join([*lines_of(session)[:2], b"[" * 100_000 + b",\n", *lines_of(session)[2:]]))
        assert [(one.line_number, one.reason) for one in report_of.problems] == [(3, "nested too deeply")]

    def test_cleared_results_are_cleared_again(self, talk: Session) -> None:
        clear(talk, 19, "c4")
        report: ImportReport = imported(exported(talk, format_name="openai"))
        assert (report.boundaries, report.problems) == (2, [])
        same(report.session, talk)
