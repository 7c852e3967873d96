"""The commands: what they print, and one clear line and no half-stored thing for bad input."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command, get_commands, load_command_class
from django.core.management.base import CommandError
from django.utils import timezone

from compaction_app.models import CompactionRun
from compaction_app.services.runs import claim, queue_run
from sessions_app.models import ApiKey, Message, Session, Team
from sessions_app.services.teams import create_api_key, key_owner
from tests.build import res
from tests.factories import NOW, append, make_session, make_team, turns
from tests.transcript_lines import file_of, human, reply

pytestmark = pytest.mark.django_db
OURS = ("compaction_app", "sessions_app")


def run(*args: str, **options: Any) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command(*args, stdout=out, stderr=err, **options)
    return out.getvalue(), err.getvalue()


@pytest.mark.parametrize("name", sorted(name for name, app in get_commands().items() if app in OURS))
def test_each_takes_words_and_options_in_any_order(name: str) -> None:
    command = load_command_class(get_commands()[name], name)
    parser = command.create_parser("manage.py", name)
    words = [action for action in parser._get_positional_actions() if action.nargs != 0]
    given = [word for action in words for word in (["x", "y"] if action.nargs in ("+", "*") else ["x"])]
    mixed = [arg for word in given for arg in (word, "--no-color")]
    found = parser.parse_args(mixed)
    assert [word for action in words for word in _listed(getattr(found, action.dest))] == given


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    path = tmp_path / "talk.jsonl"
    path.write_bytes(file_of(human("u1", None, "go"), reply("a1", "u1", "ok"), b"torn {").getvalue())
    return path


class TestCreateApiKey:
    def test_it_works(self) -> None:
        out, _ = run("create_api_key", "harbor", "--name", "ci", "--scope", "read")
        key = out.strip().splitlines()[-1]
        owner = key_owner(key=key, now=NOW)
        assert owner is not None
        assert (owner.team.slug, owner.name, owner.scope) == ("harbor", "ci", "read")
        assert not ApiKey.objects.filter(digest__contains=key).exists()
        assert key not in str(list(ApiKey.objects.values()))

    def test_an_existing_team_is_used(self) -> None:
        make_team("harbor")
        run("create_api_key", "harbor")
        assert Team.objects.count() == 1

    @pytest.mark.parametrize(
        ("args", "line"),
        [
            (["Not A Slug"], "not a team's slug"),
            ([""], "not a team's slug"),
            (["x", "--scope", "admin"], "read or write"),
            (["x", "--expires", "0"], "number of days"),
            (["x", "--expires", "99999999999"], "number of days"),
            (["x", "--expires", ""], "number of days"),
            (["x", "--expires", "-3"], "number of days"),
            (["x", "--expires", "2020-01-01"], "a day to come"),
            (["x", "--expires", "tomorrow"], "a day to come"),
        ],
    )
    def test_bad_input(self, args: list[str], line: str) -> None:
        with pytest.raises(CommandError, match=line):
            run("create_api_key", *args)
        assert not Team.objects.exists()

    @pytest.mark.parametrize(
        ("text", "ends"),
        [("30", NOW + timedelta(days=30)), ("2027-03-01", datetime(2027, 3, 1, tzinfo=UTC))],
    )
    def test_it_may_end_by_itself(self, now: datetime, text: str, ends: datetime) -> None:
        key = run("create_api_key", "harbor", "--expires", text)[0].strip().splitlines()[-1]
        assert ApiKey.objects.get().expires_at == ends
        assert key_owner(key=key, now=ends - timedelta(seconds=1)) is not None
        assert key_owner(key=key, now=ends) is None


class TestListApiKeys:
    def test_it_works(self) -> None:
        harbor, pier = make_team("harbor"), make_team("pier")
        old, key = create_api_key(team=harbor, name="ci", scope="read")
        new, _ = create_api_key(team=pier, name="cron\x1b[2J", expires_at=NOW - timedelta(days=1))
        head, first, second = run("list_api_keys")[0].splitlines()
        assert head.startswith("KEY")
        assert first.split()[:4] == [f"{new.hint}…", "pier", "write", "expired"]
        assert second.split() == [f"{old.hint}…", "harbor", "read", "active", "never", "never", str(old.uuid), "ci"]
        assert key not in second
        assert "\x1b" not in first

    def test_of_one_team(self) -> None:
        create_api_key(team=make_team("harbor"), name="mine")
        create_api_key(team=make_team("pier"), name="theirs")
        out, _ = run("list_api_keys", "harbor")
        assert "mine" in out
        assert "theirs" not in out

    def test_of_a_team_that_is_not_there(self) -> None:
        with pytest.raises(CommandError, match="no team"):
            run("list_api_keys", "nowhere")


class TestRevokeApiKey:
    def test_it_works(self) -> None:
        row, key = create_api_key(team=make_team("harbor"))
        out, _ = run("revoke_api_key", row.hint)
        assert "revoked" in out
        assert key_owner(key=key, now=NOW) is None
        assert "before" in run("revoke_api_key", row.hint)[0]

    @pytest.mark.parametrize("named", ["uuid", "hint…", "key", "part"])
    def test_a_key_may_be_named_in_several_ways(self, named: str) -> None:
        row, key = create_api_key(team=make_team("harbor"))
        other, other_key = create_api_key(team=row.team)
        ApiKey.objects.filter(pk=other.pk).update(
            hint="cmp_" + row.hint[4:].swapcase() + "~"
        )  # as SQLite's LIKE sees it
        words = {"uuid": str(row.uuid), "hint…": f"{row.hint}…", "key": key, "part": row.hint[:9]}
        run("revoke_api_key", words[named])
        assert key_owner(key=key, now=NOW) is None
        assert key_owner(key=other_key, now=NOW) is not None

    def test_none_is_revoked_where_several_may_be_meant(self) -> None:
        for slug in ("harbor", "pier"):
            create_api_key(team=make_team(slug))
        with pytest.raises(CommandError, match="2 API keys may be meant"):
            run("revoke_api_key", "cmp_")
        assert not ApiKey.objects.filter(revoked_at__isnull=False).exists()
        run("revoke_api_key", "cmp_", "--team", "pier")
        assert ApiKey.objects.get(revoked_at__isnull=False).team.slug == "pier"

    @pytest.mark.parametrize("named", ["", "nothing", "%", "_", "cmp_\x00", "6dcb4a8b-0000-4000-8000-000000000000"])
    def test_of_one_that_is_not_there(self, named: str) -> None:
        create_api_key(team=make_team("harbor"))
        with pytest.raises(CommandError, match="no such API key"):
            run("revoke_api_key", named)


class TestImportTranscript:
    def test_it_works(self, transcript: Path) -> None:
        out, _ = run("import_transcript", str(transcript))
        session = Session.objects.get()
        assert f"session {session.uuid}: 2 messages, 0 duplicates" in out
        assert "line 3: not JSON" in out
        assert session.team.slug == "default"

    def test_each_session_of_a_file_is_told(self, tmp_path: Path) -> None:
        path = tmp_path / "talks.jsonl"
        path.write_text('{"messages":[{"role":"user","content":"one"}]}\n[]\n[{"role":"user","content":"two"}]\n')
        out, _ = run("import_transcript", str(path))
        *told, last, problem = out.splitlines()
        ids = Session.objects.order_by("external_id").values_list("uuid", "external_id")
        assert told == [
            f"talks.jsonl: session {uuid}: 1 messages, 0 duplicates, 0 other entries, 0 boundaries" for uuid, _ in ids
        ]
        assert [name for _, name in ids] == ["talks#1", "talks#3"]
        assert last == "talks.jsonl: 2 sessions, 1 lines with problems"
        assert problem.startswith("  line 2: ")

    def test_the_only_team_is_taken_and_several_must_be_chosen_from(self, transcript: Path) -> None:
        team = make_team("alpha")
        run("import_transcript", str(transcript))
        assert Session.objects.get().team == team
        make_team("beta")
        with pytest.raises(CommandError, match="alpha, beta"):
            run("import_transcript", str(transcript))

    @pytest.mark.parametrize(
        ("name", "content", "line"),
        [
            ("missing.jsonl", None, "No such file"),
            ("", None, "Is a directory"),
            ("empty.jsonl", b"", "the file is empty"),
            ("photo.png", b"\x89PNG\x00\x01", "a binary file"),
            ("notes.txt", b"dear diary", "no line of it is a JSON object"),
            ("other.json", b'{"hello": 1}', "none of the known transcript formats"),
        ],
    )
    def test_bad_files(self, tmp_path: Path, name: str, content: bytes | None, line: str) -> None:
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        out, err = StringIO(), StringIO()
        with pytest.raises(CommandError, match="1 of 1 files were not imported"):
            call_command("import_transcript", str(path), stdout=out, stderr=err)
        assert line in err.getvalue()
        assert len(err.getvalue().strip().splitlines()) == 1
        assert not Session.objects.exists()

    def test_a_bad_file_does_not_keep_out_the_good_one(self, transcript: Path, tmp_path: Path) -> None:
        with pytest.raises(CommandError, match="1 of 2"):
            run("import_transcript", str(tmp_path / "missing"), str(transcript))
        assert Session.objects.count() == 1

    @pytest.mark.parametrize(
        ("option", "line"), [(["--team", "nobody"], "no team 'nobody'"), (["--format", "yaml"], "1 of 1")]
    )
    def test_bad_options(self, transcript: Path, option: list[str], line: str) -> None:
        with pytest.raises(CommandError, match=line):
            run("import_transcript", str(transcript), *option)
        assert not Message.objects.exists()


class TestCompact:
    def test_it_works_by_id_and_by_external_id(self) -> None:
        for name in ("", "my-session"):
            session = make_session(external_id=name or None)
            append(session, *turns(40))
            out, _ = run("compact", name or str(session.uuid), "mind", "the", "files")
            done = CompactionRun.objects.get(session=session)
            assert done.instructions == "mind the files"
            assert f"run {done.uuid}" in out
            assert f"{done.tokens_before:,} -> {done.tokens_after:,} tokens" in out

    def test_nothing_to_compact(self) -> None:
        with pytest.raises(CommandError, match="nothing_to_compact"):
            run("compact", str(make_session().uuid))

    def test_an_active_run(self) -> None:
        session = make_session()
        active = queue_run(session=session, trigger="manual", instructions="", now=timezone.now())
        assert claim(run_id=active.pk, now=timezone.now())
        with pytest.raises(CommandError, match=str(active.uuid)):
            run("compact", str(session.uuid))

    @pytest.mark.parametrize("name", ["nobody", "7f3c5a10-0000-4000-8000-00000000ffff", "\x1b[2J"])
    def test_an_unknown_session(self, name: str) -> None:
        with pytest.raises(CommandError, match="no session") as error:
            run("compact", name)
        assert "\x1b" not in str(error.value)


class TestServe:
    @pytest.mark.parametrize("port", ["0", "70000", "x", "-1"])
    def test_a_bad_port(self, port: str) -> None:
        with pytest.raises(CommandError, match="1 to 65535"):
            run("serve", f"--port={port}")

    def test_a_port_that_is_taken(self) -> None:
        import socket

        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            with pytest.raises(CommandError, match="can't listen on"):
                run("serve", f"--port={taken.getsockname()[1]}")


def test_a_database_that_is_not_set_up_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import OperationalError

    def broken(**_: Any) -> None:
        raise OperationalError("no such table: sessions_app_team\nand more")

    monkeypatch.setattr("sessions_app.services.teams.get_or_create_team", broken)
    with pytest.raises(CommandError, match=r"no such table: sessions_app_team; set it up with"):
        run("create_api_key", "harbor")


def test_results_are_only_text(transcript: Path) -> None:
    """Transcript text reaches the terminal only with its control characters made harmless."""
    transcript.write_bytes(
        file_of(human("u1", None, "go"), human("u1", None, [res("x", "y")]), b'{"type":"\x1b[31m').getvalue()
    )
    out, _ = run("import_transcript", str(transcript))
    assert "\x1b" not in out
