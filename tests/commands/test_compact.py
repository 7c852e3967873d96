"""compact: what is typed is read like everywhere else, and a terminal sees what a model has written so far."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
from django.core.management.base import CommandError

from compaction_app.management.commands import compact
from compaction_app.models import CompactionRun
from sessions_app.management.terminal import Bar
from sessions_app.models import Session
from tests.commands.test_commands import run
from tests.factories import NOW, append, make_session, turns

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(db: None) -> Session:
    session = make_session()
    append(session, *turns(40))
    return session


@pytest.mark.parametrize(
    ("words", "instructions"),
    [
        ([], ""),
        (["/compact"], ""),
        (["/compact keep the SQL"], "keep the SQL"),
        (["/compact", "keep", "the SQL"], "keep the SQL"),
        (["keep", "the", "SQL"], "keep the SQL"),
        (["keep", "'up_to:here'"], "keep 'up_to:here'"),
        (["/srv/app/x.py", "is done"], "/srv/app/x.py is done"),
    ],
)
def test_words_are_one_command(session: Session, words: list[str], instructions: str) -> None:
    run("compact", str(session.uuid), *words)
    done = CompactionRun.objects.get(session=session)
    assert (done.status, done.instructions, done.source) == ("succeeded", instructions, "command")


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["/compact", "up_to:nobody"], "unknown_uuid: "),
        (["from:nobody", "keep"], "unknown_uuid: "),
        (["--up-to", "u0"], "nothing_on_that_side: "),
        (["keep", "--from", "nobody"], "unknown_uuid: "),
        (["--from", ""], "uuid is missing"),
        (["up_to:u2", "--from", "u1"], "two scopes"),
        (["--from", "u1", "--up-to", "u2"], "not allowed with"),
        (["keep", "up_to:u20"], "comes first"),
        (["/compactx", "foo"], "/compact is"),
        (["upto:u20", "keep"], "begins like a scope"),
        (["/compact --up-to u20"], "begins like a scope"),
        (["/compact", "keep", "from:u20", "--dry-run"], "comes first"),
        (["/compact up_to:"], "uuid is missing"),
        (["x" * 16_385], "longer than 16,384"),
        (["caf\udce9"], "can not be stored"),
    ],
)
def test_what_is_refused_is_one_line(session: Session, args: list[str], line: str) -> None:
    with pytest.raises(CommandError, match=line) as error:
        run("compact", str(session.uuid), *args)
    assert "\n" not in str(error.value)
    assert not CompactionRun.objects.exists()


@pytest.mark.parametrize(
    "args",
    [
        ["SESSION", "--up-to", "u20", "mind", "the SQL"],
        ["SESSION", "mind", "--up-to", "u20", "the SQL"],
        ["SESSION", "mind", "the SQL", "--up-to", "u20"],
        ["--up-to", "u20", "SESSION", "mind the SQL"],
        ["SESSION", "--up-to=u20", "--", "mind", "the SQL"],
        ["SESSION", "-v", "2", "/compact up_to:u20", "mind", "--no-color", "the SQL"],
    ],
)
def test_words_and_options_come_in_any_order(session: Session, args: list[str]) -> None:
    run("compact", *(str(session.uuid) if arg == "SESSION" else arg for arg in args))
    done = CompactionRun.objects.get(session=session)
    assert (done.scope, done.cut_uuid, done.instructions) == ("up_to", "u20", "mind the SQL")


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["SESSION", "--dry-run", "mind", "--sql"], "unrecognized arguments: --sql"),
        (["--dry-run"], "required: session$"),
    ],
)
def test_what_is_no_option_is_named(session: Session, args: list[str], line: str) -> None:
    with pytest.raises(CommandError, match=line):
        run("compact", *(str(session.uuid) if arg == "SESSION" else arg for arg in args))
    assert not CompactionRun.objects.exists()


@pytest.mark.parametrize(("args", "kind"), [(["--up-to", "u20"], "partial_up_to"), (["from:u20"], "partial_from")])
def test_a_part(session: Session, args: list[str], kind: str) -> None:
    run("compact", str(session.uuid), *args)
    done = CompactionRun.objects.get(session=session)
    assert done.boundary is not None
    assert (done.boundary.kind, done.cut_uuid) == (kind, "u20")


def test_a_cut_that_was_moved_is_told(session: Session) -> None:
    assert "cut: up_to a20, the nearest to t20\n" in run("compact", str(session.uuid), "--up-to", "t20")[0]
    assert "cut: from u30\n" in run("compact", str(session.uuid), "from:u30")[0]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TestProgress:
    def listener(self, session: Session, out: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setattr("sessions_app.management.terminal.REDRAW_SECONDS", 0)
        return compact._shown_by(Bar(total=1, label="compacting", out=out), session)

    def test_tells_stage_and_tokens(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        written = CompactionRun.objects.create(session=session, trigger="manual", queued_at=NOW)
        out = Terminal()
        listen = self.listener(session, out, monkeypatch)
        monkeypatch.setattr(compact, "LOOK_EVERY", 0)
        listen("reading", 0.02)
        assert "tokens" not in out.getvalue()
        CompactionRun.objects.filter(pk=written.pk).update(tokens_streamed=1_234)
        listen("summarizing", 0.4)
        assert "summarizing, about 1,234 tokens [" in out.getvalue()
        assert " 40%" in out.getvalue()

    def test_asks_for_nothing_where_nobody_looks(
        self, session: Session, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
    ) -> None:
        out = io.StringIO()
        listen = self.listener(session, out, monkeypatch)
        with django_assert_num_queries(0):
            listen("summarizing", 0.4)
        assert out.getvalue() == ""

    def test_a_whole_run_on_a_terminal(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        shown = Terminal()
        monkeypatch.setattr(sys, "stderr", shown)
        monkeypatch.setattr("sessions_app.management.terminal.REDRAW_SECONDS", 0)
        run("compact", str(session.uuid))
        assert "reading [" in shown.getvalue()


class TestDryRun:
    def test_it_tells_what_would_be_done(self, session: Session) -> None:
        out, _ = run("compact", str(session.uuid), "--dry-run", "--up-to", "t20")
        assert "dry run: " in out
        assert "cut: up_to a20, the nearest place" in out
        assert not CompactionRun.objects.exists()

    def test_words_may_stand_behind_it(self, session: Session) -> None:
        out, _ = run("compact", str(session.uuid), "--dry-run", "mind", "the sql")
        assert "session_memory: instructions" in out
        assert "dry run: " in out

    @pytest.mark.parametrize("wanted", [True, False])
    def test_it_tells_whether_somebody_would_have_to_consent(self, session: Session, wanted: bool) -> None:
        Session.objects.filter(pk=session.pk).update(policy_overrides={"approve_compactions": wanted})
        out, _ = run("compact", str(session.uuid), "--dry-run")
        assert ("would wait for somebody who accepts its summary" in out) is wanted
        assert not CompactionRun.objects.exists()

    def test_what_would_be_refused_is_one_line(self, session: Session) -> None:
        with pytest.raises(CommandError, match="nothing would be done: unknown_uuid: "):
            run("compact", str(session.uuid), "from:nobody", "--dry-run")


def test_one_that_waits_for_somebody(session: Session) -> None:
    Session.objects.filter(pk=session.pk).update(policy_overrides={"approve_compactions": True})
    assert "waits for somebody who accepts" in run("compact", str(session.uuid))[0]
