"""analyze_context: a report that a person reads, and the same as data."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone

from compaction_app import actions, selectors
from compaction_app.management.analysis_report import WIDTH, columns, fitted
from sessions_app.models import Session
from tests.build import res, use
from tests.factories import NOW, append, assistant, make_session, turns, user

pytestmark = pytest.mark.django_db


def report(session: Session, *args: str) -> str:
    out = StringIO()
    call_command("analyze_context", str(session.uuid), *args, stdout=out)
    return out.getvalue()


def section(text: str, heading: str) -> list[str]:
    blocks = text.split("\n\n")
    return next(block for block in blocks if block.startswith(heading)).splitlines()


class TestReport:
    def test_it_works(self, now: Any) -> None:
        session = make_session(title="harbor", system="You are careful. " * 100)
        append(session, *turns(20))
        out = report(session)
        assert out.startswith("harbor  (claude-sonnet-4-5)\n")
        assert f"context {session.context_tokens:,} of 200,000 tokens [#" in out
        [row] = [line for line in section(out, "WHAT FILLS IT") if "tool results" in line]
        read = next(line for line in section(out, "BY TOOL") if "Read" in line).split()
        assert read[1] == "20"
        assert row.split()[2] == read[3], "all results are Read's"
        assert "#" in row
        assert "system prompt" in out
        assert "cache warm: idle 0 s of 300 s" in out

    def test_every_line_fits_and_is_aligned(self) -> None:
        session = make_session(title="標題 " * 60)
        wide = "工具" * 40
        path = "/srv/" + "長い" * 200 + ".py"
        for number in range(3):
            append(
                session,
                assistant(
                    [use(f"c{number}", "Read", file_path=path), use(f"d{number}", wide)], uuid="x" * 90 + str(number)
                ),
                user([res(f"c{number}", "line\n" * 400), res(f"d{number}", "line\n" * 90)]),
            )
        out = report(session)
        assert max(map(columns, out.splitlines())) <= WIDTH
        calls = {columns(line[: line.index("  3 ") + 3]) for line in section(out, "BY TOOL")[1:]}
        assert len(calls) == 1, "the column of calls is straight"

    def test_hostile_names_are_harmless(self) -> None:
        session = make_session(title="\x1b[2Jgone", model="m\x1b[31m")
        name, path = "Re\x1b]0;x\x07ad", "/srv/\u202egnp.py\r\n"
        for number in range(2):
            append(
                session,
                assistant([use(f"c{number}", name), use(f"r{number}", "Read", file_path=path)], uuid=f"\x1b[{number}"),
                user([res(f"c{number}", "x" * 4000), res(f"r{number}", "y" * 4000)]),
            )
        out = report(session)
        assert "gnp.py" in out
        assert not set("\x1b\x07\r\u202e") & set(out)

    def test_after_a_compaction_it_shows_summary_and_attachments(self) -> None:
        session = make_session()
        append(session, *turns(40))
        actions.compact_now(session=session, wanted=actions.Wanted(), now=timezone.now(), listener=lambda *_: None)
        out = report(session)
        assert any("summary" in line for line in section(out, "WHAT FILLS IT"))
        assert any("x file" in line for line in section(out, "RESTORED AFTER THE SUMMARY"))

    def test_what_stands_out(self) -> None:
        session = make_session(system="be careful " * 30_000)
        for number in range(4):
            append(
                session,
                assistant([use(f"c{number}", file_path="/srv/app.py")]),
                user([res(f"c{number}", "def f(): ...\n" * 4_000)]),
            )
        found = " ".join(line.strip() for line in section(report(session), "WHAT STANDS OUT")[1:])
        assert "System prompt and tools take" in found
        assert "Repeated reads waste" in found
        assert "/srv/app.py, read 4 times" in found
        assert "Read takes" in found

    def test_what_a_link_would_do_is_not_told_as_done(self, now: Any) -> None:
        session = make_session()
        append(session, *turns(40, size=4_000))
        told = section(report(session), "WHAT CLEARING COULD FREE")[1:]
        words = {line.split()[0]: told[number + 1] for number, line in enumerate(told) if line[2:3].strip()}
        assert words["time_based"].startswith("    cache warm: ")
        assert words["cache_edits"].startswith("    would: ")

    def test_an_empty_session(self) -> None:
        assert report(make_session(title="new")) == "new  (claude-sonnet-4-5)\nno message in it yet\n"

    def test_nothing_stands_out_of_a_short_talk(self, now: Any) -> None:
        session = make_session()
        append(session, user("go"), assistant("ok", message_id="m"))
        assert "READ MORE THAN ONCE" not in report(session)
        assert "BY TOOL" not in report(session)


class TestData:
    def test_it_is_what_the_selector_gives(self, now: Any) -> None:
        session = make_session()
        append(session, *turns(20))
        expected = selectors.analysis(session=session, now=NOW).as_json()
        assert json.loads(report(session, "--json")) == json.loads(json.dumps(expected))

    def test_an_unknown_session(self) -> None:
        with pytest.raises(CommandError, match="no session"):
            call_command("analyze_context", "nobody")


class TestFitted:
    @pytest.mark.parametrize(
        ("text", "end", "expected"),
        [
            ("abc", False, "abc   "),
            ("abcdefg", False, "abcde…"),
            ("abcdefg", True, "…cdefg"),
            ("長い名前", False, "長い… "),
            ("長い名前", True, "…名前 "),
            ("a\nb", False, "a\ufffdb   "),
        ],
    )
    def test_columns(self, text: str, end: bool, expected: str) -> None:
        assert fitted(text, 6, end=end) == expected
