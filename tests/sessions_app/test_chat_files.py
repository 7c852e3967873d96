"""Chats in files: one document, a conversation a line, a message a line; and files that are none of it."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from sessions_app import selectors
from sessions_app.models import Session, Team
from sessions_app.policy import Policy
from sessions_app.services.transcripts import ImportRefused, ImportReport, import_transcript
from sessions_app.transcript.request import build_request
from sessions_app.transcript.validation import validate_messages
from tests.build import res, text, use
from tests.factories import NOW, make_team
from tests.real_transcripts import FOLDER, needs_transcripts

pytestmark = pytest.mark.django_db

TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "fix the login test"},
    {"role": "assistant", "content": [text("Reading."), use("t1", file_path="/srv/app/t.py")]},
    {"role": "user", "content": [res("t1", "def test(): ...")]},
    {"role": "assistant", "content": "Done."},
]
TOOLS = [{"name": "Read", "description": "reads", "input_schema": {"type": "object"}}]
BODY = {"model": "claude-sonnet-4-5", "system": "Be careful.", "tools": TOOLS, "messages": TALK}
CALLS: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "what is in it?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "Read", "arguments": '{"path":"/a"}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "nothing"},
    {"role": "assistant", "content": "Nothing."},
]


def imported(data: Any, *, team: Team | None = None, name: str = "talks.json", **more: Any) -> ImportReport:
    """`data`: bytes as they are, else a value that is written as JSON."""
    stream = BytesIO(data if isinstance(data, bytes) else json.dumps(data).encode())
    format_name = more.pop("format_name", "auto")
    return import_transcript(
        team=team or make_team(), stream=stream, name=name, format_name=format_name, policy=Policy(**more), now=NOW
    )


def lines(*values: Any) -> bytes:
    """JSON Lines; bytes stay as they are."""
    return b"".join((one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in values)


def contents(session: Session) -> list[tuple[str, Any]]:
    return [(row.role, row.content) for row in session.messages.order_by("position")]


def problems(report: ImportReport) -> list[tuple[int, str]]:
    return [(one.line_number, one.reason) for one in report.problems]


class TestDocuments:
    @pytest.mark.parametrize("indent", [None, 1, 4])
    def test_an_array_of_messages(self, indent: int | None) -> None:
        report = imported(json.dumps(TALK, indent=indent).encode())
        session = report.session
        assert (report.created, report.messages, report.duplicates, report.problems) == (True, 4, 0, [])
        assert (session.external_id, session.title, session.source) == ("talks", "fix the login test", "anthropic")
        assert contents(session) == [(one["role"], one["content"]) for one in TALK]
        assert [row.path_parent for row in session.messages.order_by("position")] == [0, 1, 2, 3]
        assert validate_messages(messages=build_request(view=selectors.context_view(session=session)).messages) == []

    @pytest.mark.parametrize("indent", [None, 2])
    def test_a_request_body_tells_its_session(self, indent: int | None) -> None:
        session = imported(json.dumps(BODY, indent=indent).encode()).session
        assert (session.model, session.system, session.tools) == ("claude-sonnet-4-5", "Be careful.", TOOLS)
        assert session.given_overhead_tokens > 0

    def test_an_openai_chat(self) -> None:
        session = imported({"model": "gpt-5", "messages": CALLS}).session
        assert (session.source, session.system, session.model) == ("openai", "Be kind.", "gpt-5")
        assert contents(session)[1:3] == [
            ("assistant", [use("c1", path="/a")]),
            ("user", [res("c1", "nothing")]),
        ]

    def test_again_it_adds_nothing_and_what_it_grew_by_comes_in(self) -> None:
        team = make_team()
        first = imported(BODY | {"messages": TALK[:2]}, team=team).session
        grown = imported(BODY | {"system": "other", "model": "other"}, team=team)
        assert (grown.created, grown.messages, grown.duplicates) == (False, 2, 2)
        again = imported(BODY, team=team)
        assert (again.session.pk, again.messages, again.duplicates) == (first.pk, 0, 4)
        assert (again.session.system, again.session.model) == ("Be careful.", "claude-sonnet-4-5")

    def test_the_name_may_be_a_uuid_and_may_be_missing(self) -> None:
        name = "7f3c5a10-0000-4000-8000-000000000009"
        assert imported(TALK, name=f"{name}.json").session.external_id == name
        assert imported(TALK, name="").session.external_id is None
        assert imported(TALK, name="x" * 400).session.external_id == "x" * 255
        assert imported(TALK, name="a\x00\ud800.json").session.external_id == "a\ufffd\ufffd"

    def test_a_hostile_model_name_is_kept_short(self) -> None:
        session = imported(BODY | {"model": "m\x00" + "x" * 300}).session
        assert session.model == ("m\ufffd" + "x" * 300)[:200]

    def test_odd_characters_come_in_to_the_letter(self) -> None:
        odd = "a\x00b \ud800 \u2028 修复 🎉"
        assert contents(imported([{"role": "user", "content": odd}]).session) == [("user", odd)]

    def test_several_documents_in_one_array(self) -> None:
        report = imported([BODY, {"messages": CALLS}])
        assert [one.session.external_id for one in report.sessions] == ["talks#1", "talks#2"]
        assert [one.session.source for one in report.sessions] == ["anthropic", "openai"]

    def test_a_document_that_is_too_long_is_refused(self) -> None:
        data = json.dumps([{"role": "user", "content": "x" * 4_000}], indent=1).encode()
        with pytest.raises(ImportRefused, match="one JSON document longer than 2,000 bytes"):
            imported(data, import_line_bytes=2_000)
        assert not Session.objects.exists()


class TestLines:
    def test_a_conversation_each(self) -> None:
        report = imported(lines(BODY, b"", {"messages": CALLS}), name="talks.jsonl")
        first, second = report.sessions
        assert (first.session.external_id, first.messages, first.created) == ("talks#1", 4, True)
        assert (second.session.external_id, second.messages, second.created) == ("talks#2", 4, True)
        assert (report.session, report.messages, report.problems) == (first.session, 8, [])
        assert {one.session.source for one in report.sessions} == {"anthropic", "openai"}

    def test_one_alone_has_the_files_name(self) -> None:
        assert imported(lines(BODY, b"")).session.external_id == "talks"

    def test_again_each_adds_nothing(self) -> None:
        team, data = make_team(), lines(BODY, {"messages": CALLS})
        first, again = imported(data, team=team), imported(data, team=team)
        assert [one.session.pk for one in again.sessions] == [one.session.pk for one in first.sessions]
        assert [(one.created, one.messages, one.duplicates) for one in again.sessions] == [(False, 0, 4)] * 2

    def test_a_message_each(self) -> None:
        report = imported(lines(*TALK, b""))
        assert (report.messages, len(report.sessions)) == (4, 1)
        document = imported(TALK).session
        assert contents(report.session) == contents(document)
        assert list(report.session.messages.values_list("uuid", "path_parent")) == list(
            document.messages.values_list("uuid", "path_parent")
        )

    def test_a_message_each_with_a_system_prompt_in_front(self) -> None:
        report = imported(lines(*CALLS))
        document = imported(CALLS).session
        assert (report.session.system, report.session.source) == ("Be kind.", "openai")
        assert contents(report.session) == contents(document)
        assert list(report.session.messages.values_list("uuid")) == list(document.messages.values_list("uuid"))

    @pytest.mark.parametrize("batch", [1, 3])
    def test_batches_change_nothing(self, batch: int) -> None:
        for data in (lines(*TALK), TALK):
            session = imported(data, import_batch_lines=batch).session
            assert [row.path_parent for row in session.messages.order_by("position")] == [0, 1, 2, 3]

    @pytest.mark.parametrize(
        ("bad", "reason"),
        [
            (json.dumps(BODY).encode()[:-20], "cut in the middle"),
            (b"not json", "not JSON"),
            (b'{"messages": [{"role": "user", "content": NaN}]}', "NaN is not JSON"),
            (b'{"messages": [{"role": "user", "content": "\xff"}]}', "not UTF-8"),
            (b"[" * 100_000, "nested too deeply"),
            (b"7", "no conversation"),
            (b'{"hello": 1}', "no conversation"),
            (b'{"messages": []}', "conversation"),
            (json.dumps(BODY).encode() * 2, "more than one value"),
        ],
    )
    def test_a_line_that_is_none_is_told_and_the_rest_is_read(self, bad: bytes, reason: str) -> None:
        for data, line in ((lines(BODY, bad, BODY), 2), (lines(bad, BODY, BODY), 1), (lines(BODY, BODY, bad), 3)):
            report = imported(data)
            assert len(report.sessions) == 2
            [(number, why)] = problems(report)
            assert number == line
            assert reason in why

    def test_a_message_line_that_is_none_is_told_and_the_rest_is_read(self) -> None:
        report = imported(lines(TALK[0], b"{", {"role": "root", "content": "x"}, *TALK[1:]))
        assert report.messages == 4
        assert [number for number, _ in problems(report)] == [2, 3]
        assert [row.path_parent for row in report.session.messages.order_by("position")] == [0, 1, 2, 3]

    def test_a_line_that_is_too_long_is_told(self) -> None:
        long = {"messages": [{"role": "user", "content": "x" * 5_000}]}
        report = imported(lines(BODY, long, BODY), import_line_bytes=2_000)
        assert len(report.sessions) == 2
        assert problems(report)[0][0] == 2

    def test_bom_and_windows_line_ends(self) -> None:
        assert imported(b"\xef\xbb\xbf" + lines(BODY, BODY).replace(b"\n", b"\r\n")).messages == 8
        assert imported(b"\xef\xbb\xbf" + json.dumps(TALK, indent=1).replace("\n", "\r\n").encode()).messages == 4
        assert imported(b"\xef\xbb\xbf" + lines(*TALK)).messages == 4

    def test_too_many_conversations_are_refused(self) -> None:
        with pytest.raises(ImportRefused, match="more than 2 conversations"):
            imported(lines(BODY, BODY, BODY), import_sessions=2)
        assert not Session.objects.exists()


class TestRefusals:
    @pytest.mark.parametrize(
        "data",
        [
            b'{"messages": []}',
            b"[]",
            b"[1, 2]",
            b'{"messages": 7}',
            b'{"role": "user"}',
            b'[{"conversations": [{"from": "human", "value": "hi"}]}]',
            b'{"type": "session", "version": 3, "id": "x"}\n{"type": "message", "message": {"role": "user"}}',
            b'{"history": [], "trajectory": [{"action": "ls"}]}',
            b'{\n"a": 1\n}',
            b'{\n"messages": [\n',
        ],
    )
    @pytest.mark.parametrize("format_name", ["auto", "anthropic", "openai"])
    def test_nothing_is_stored_of_a_file_that_is_none(self, data: bytes, format_name: str) -> None:
        with pytest.raises(ImportRefused):
            imported(data, format_name=format_name)
        assert not Session.objects.exists()

    def test_what_is_wrong_is_told_in_one_line(self) -> None:
        for data in (b'{\n"messages": [\n', b'{"messages": []}', b"[1]"):
            with pytest.raises(ImportRefused) as refused:
                imported(data)
            assert "\n" not in str(refused.value)

    def test_a_format_that_is_named_is_taken(self) -> None:
        plain = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
        assert imported(plain).session.source == "anthropic"
        assert imported(plain, format_name="openai").session.source == "openai"

    @pytest.mark.transcripts
    @needs_transcripts
    @pytest.mark.parametrize("kind", ["codex", "pi", "sharegpt", "swe-agent", "openhands", "langfuse"])
    def test_real_files_of_other_kinds(self, kind: str) -> None:
        files = [file for file in sorted((FOLDER / kind).glob("**/*")) if file.is_file()]
        assert files or not (FOLDER / kind).exists()
        for file in files:
            _refused(file)
        assert not Session.objects.exists()


def _refused(file: Path) -> None:
    with file.open("rb") as stream, pytest.raises(ImportRefused):
        import_transcript(team=make_team(), stream=stream, name=file.name, policy=Policy(), now=NOW)
