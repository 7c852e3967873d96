"""POST sessions/{id}/compact/."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from compaction_app import actions, tasks
from compaction_app.api import compact
from compaction_app.engine.command import Scope
from compaction_app.models import CompactionRun, RunStatus
from sessions_app.models import Session
from tests.cast import Api, Cast, errors
from tests.factories import append, make_session, turns, user


def path(session: Session) -> str:
    return f"sessions/{session.uuid}/compact/"


@pytest.fixture
def full(session: Session) -> Session:
    append(session, *turns(40))
    return session


@pytest.fixture
def idle_worker(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Nobody works; what was handed to the worker."""
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(actions.handing_out, "hand_out_on_commit", lambda **kwargs: sent.append(kwargs))
    return sent


@pytest.mark.django_db(transaction=True)
class TestWithAWorker:
    def test_it_works(self, api: Api, full: Session, eager_worker: None) -> None:
        answer = api.send(path(full), {"instructions": "mind file_3", "wait": 5})
        assert answer.status_code == 200
        run = answer.json()
        assert (run["status"], run["session"], run["trigger"]) == ("succeeded", str(full.uuid), "manual")
        assert run["instructions"] == "mind file_3"
        assert run["tokens_after"] < 0.5 * run["tokens_before"]
        assert run["steps"][-1]["link"] == "full"
        assert run["steps"][-1]["ran"] is True
        assert run == api.read(f"runs/{run['id']}/").json()
        assert api.read(f"sessions/{full.uuid}/context/").json()["boundary"] == run["boundary"]
        assert api.read(f"sessions/{full.uuid}/").json()["boundary_count"] == 1

    def test_without_wait_the_answer_is_202(self, api: Api, full: Session, eager_worker: None) -> None:
        assert api.send(path(full)).status_code == 202

    def test_a_failure_within_wait_is_told(self, api: Api, full: Session, eager_worker: None, settings: Any) -> None:
        settings.COMPACTION_POLICY = {"compaction_enabled": False}
        answer = api.send(path(full), {"wait": 5})
        assert answer.status_code == 200
        assert (answer.json()["status"], answer.json()["failure_reason"]) == ("failed", "compaction_disabled")

    def test_nothing_to_compact_found_within_wait(self, api: Api, session: Session, eager_worker: None) -> None:
        append(session, user("only this"))
        answer = api.send(path(session), {"wait": 5})
        assert (answer.status_code, errors(answer)) == (400, [("nothing_to_compact", None)])
        run = api.read(f"runs/{answer.json()['run']}/").json()
        assert run["failure_reason"] == "nothing_to_compact"
        assert answer.json()["errors"][0]["detail"] == run["detail"]

    def test_a_run_that_ends_meanwhile_is_seen(
        self, api: Api, full: Session, idle_worker: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        naps = []

        def nap(seconds: float) -> None:
            assert not connection.in_atomic_block, "a transaction here would keep the worker out"
            if connection.vendor == "postgresql":  # SQLite's in memory is never closed
                assert connection.connection is None, "ten that wait would keep everybody else out"
            naps.append(seconds)
            if len(naps) == 3:
                tasks.compact_session(**idle_worker[0])

        monkeypatch.setattr(compact.time, "sleep", nap)
        answer = api.send(path(full), {"wait": 20})
        assert (answer.status_code, answer.json()["status"]) == (200, "succeeded")
        assert naps == [compact.LOOK_EVERY] * 3


class TestRequest:
    def test_the_run_is_queued_and_handed_over(self, api: Api, full: Session, idle_worker: list[Any]) -> None:
        answer = api.send(path(full), {"instructions": None, "wait": None})
        assert answer.status_code == 202
        run = CompactionRun.objects.get(session=full)
        assert (answer.json()["id"], answer.json()["status"]) == (str(run.uuid), "queued")
        assert idle_worker == [{"run_id": run.pk}]

    def test_a_wait_that_does_not_suffice(self, api: Api, full: Session, idle_worker: list[Any]) -> None:
        started = time.monotonic()
        answer = api.send(path(full), {"wait": 0.25})
        assert answer.status_code == 202
        assert time.monotonic() - started >= 0.25

    @pytest.mark.parametrize("status", [RunStatus.QUEUED, RunStatus.RUNNING])
    def test_one_run_at_a_time(self, api: Api, full: Session, idle_worker: list[Any], status: str) -> None:
        first = api.send(path(full)).json()["id"]
        if status == RunStatus.RUNNING:
            held = {"claim_token": first, "lease_expires_at": timezone.now()}
            CompactionRun.objects.update(status=status, **held)
        answer = api.send(path(full))
        assert (answer.status_code, errors(answer)) == (409, [("active_run", None)])
        assert answer.json()["run"] == first
        assert first in answer.json()["errors"][0]["detail"]
        assert CompactionRun.objects.count() == 1

    def test_after_the_end_there_may_be_another(self, api: Api, full: Session, idle_worker: list[Any]) -> None:
        actions.compact_now(session=full, wanted=actions.Wanted(), now=timezone.now(), listener=lambda *_: None)
        append(full, *turns(20, start=100))
        assert api.send(path(full)).status_code == 202

    def test_a_session_without_messages(self, api: Api, session: Session, idle_worker: list[Any]) -> None:
        answer = api.send(path(session))
        assert (answer.status_code, errors(answer)) == (400, [("nothing_to_compact", None)])
        assert not CompactionRun.objects.exists()

    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            ({"instructions": "x" * 16_385}, [("max_length", "instructions")]),
            ({"instructions": "\x00"}, [("null_characters_not_allowed", "instructions")]),
            ({"instructions": ["x"]}, [("invalid", "instructions")]),
            ({"wait": -1}, [("min_value", "wait")]),
            ({"wait": 60.5}, [("max_value", "wait")]),
            ({"wait": "soon"}, [("invalid", "wait")]),
            ({"wait": "nan"}, [("invalid", "wait")]),
            ({"wait": True}, [("invalid", "wait")]),
            ({"wait": "5"}, [("invalid", "wait")]),
            ({"wait": 10**400}, [("max_value", "wait")]),
            ({"dry_run": None}, [("null", "dry_run")]),
            ({"instruction": "x"}, [("unknown_field", "instruction")]),
            ({"dry_run": "perhaps"}, [("invalid", "dry_run")]),
            ({"up_to": "nobody"}, [("unknown_uuid", "up_to")]),
            ({"from": "nobody"}, [("unknown_uuid", "from")]),
            ({"up_to": "u1", "from": "u2"}, [("invalid", "from")]),
            ({"up_to": "u1", "mode": "reactive"}, [("invalid", "mode")]),
            ({"mode": "proactive"}, [("invalid_choice", "mode")]),
            ({"mode": "reactive"}, [("reactive_compact_disabled", "mode")]),
            ({"error": "prompt is too long"}, [("invalid", "error")]),
            ({"summarizer": "somebody"}, [("invalid_choice", "summarizer")]),
        ],
    )
    def test_what_is_wrong_is_named(
        self, api: Api, full: Session, idle_worker: list[Any], body: Any, expected: Any
    ) -> None:
        answer = api.send(path(full), body)
        assert (answer.status_code, errors(answer)) == (400, expected)
        assert not CompactionRun.objects.exists()

    def test_instructions_may_be_long(self, api: Api, full: Session, idle_worker: list[Any]) -> None:
        assert api.send(path(full), {"instructions": "重" * 16_384, "wait": 0}).status_code == 202


class TestCommand:
    @pytest.mark.parametrize(
        ("command", "instructions"),
        [
            ("/compact", ""),
            ("/compact keep the SQL", "keep the SQL"),
            (" /Compact\nkeep\n the SQL ", "keep\n the SQL"),
            ("/compact keep the SQL 'up_to:here'", "keep the SQL 'up_to:here'"),
        ],
    )
    def test_it_works(self, api: Api, full: Session, idle_worker: list[Any], command: str, instructions: str) -> None:
        answer = api.send(path(full), {"command": command})
        assert answer.status_code == 202
        assert (answer.json()["instructions"], answer.json()["source"]) == (instructions, "api")

    def test_without_one_instructions_are_as_given(self, api: Api, full: Session, idle_worker: list[Any]) -> None:
        answer = api.send(path(full), {"command": None, "instructions": "/compact from:x"})
        assert answer.json()["instructions"] == "/compact from:x"

    @pytest.mark.parametrize("empty", [None, ""])
    def test_empty_instructions_are_none(
        self, api: Api, full: Session, idle_worker: list[Any], empty: str | None
    ) -> None:
        assert api.send(path(full), {"command": "/compact x", "instructions": empty}).json()["instructions"] == "x"

    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            ({"command": "/compact", "instructions": "x"}, ("invalid", "instructions")),
            ({"command": "/compact up_to:nobody keep the SQL"}, ("unknown_uuid", "command")),
            ({"command": "/compact from:nobody"}, ("unknown_uuid", "command")),
            ({"command": ""}, ("blank", "command")),
            ({"command": "hello"}, ("invalid", "command")),
            ({"command": "/foo bar"}, ("invalid", "command")),
            ({"command": "/compactx"}, ("invalid", "command")),
            ({"command": "up_to:u20"}, ("invalid", "command")),
            ({"command": "/compact keep up_to:u20"}, ("invalid", "command")),
            ({"command": "/compact keep up_to:u20", "dry_run": True}, ("invalid", "command")),
            ({"command": "/compact up-to:u20"}, ("invalid", "command")),
            ({"command": "/compact --up-to u20 keep the SQL"}, ("invalid", "command")),
            ({"command": "hello", "dry_run": True}, ("invalid", "command")),
            ({"command": "/compact", "up_to": "u1"}, ("invalid", "up_to")),
            ({"command": "/compact up_to:"}, ("invalid", "command")),
            ({"command": "/compact up_to:u1 from:u2"}, ("invalid", "command")),
            ({"command": "/compact " + "x" * 16_385}, ("invalid", "command")),
            ({"command": "\x00"}, ("null_characters_not_allowed", "command")),
            ({"command": ["/compact"]}, ("invalid", "command")),
        ],
    )
    def test_what_is_wrong_is_named(
        self, api: Api, full: Session, idle_worker: list[Any], body: Any, expected: Any
    ) -> None:
        answer = api.send(path(full), body)
        assert (answer.status_code, errors(answer)) == (400, [expected])
        assert not CompactionRun.objects.exists()

    def test_a_part_of_an_empty_session(self, api: Api, session: Session, idle_worker: list[Any]) -> None:
        assert errors(api.send(path(session), {"command": "/compact from:u1"})) == [("nothing_to_compact", None)]


class TestPart:
    """`up_to` and `from`: a part of the session, by a message (S7)."""

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize(
        ("body", "scope"),
        [({"up_to": "u20"}, "up_to"), ({"from": "u20"}, "from"), ({"command": "/compact from:u20"}, "from")],
    )
    def test_it_works(self, api: Api, full: Session, eager_worker: None, body: Any, scope: str) -> None:
        answer = api.send(path(full), {**body, "wait": 5})
        assert (answer.status_code, answer.json()["status"]) == (200, "succeeded")
        run = answer.json()
        assert run["cut"] == {"scope": scope, "asked": "u20", "uuid": "u20", "moved": False}
        boundary = api.read(f"boundaries/{run['boundary']}/").json()
        assert boundary["kind"] == f"partial_{scope}"
        early = {"head": "u0", "anchor": boundary["id"], "tail": "b19"}
        late = {"head": "u20", "anchor": boundary["preserved"]["anchor"], "tail": "b39"}
        assert boundary["preserved"] == (early if scope == "from" else late)

    @pytest.mark.django_db(transaction=True)
    def test_from_puts_the_summary_behind_what_is_kept(self, api: Api, full: Session, eager_worker: None) -> None:
        before = api.read(f"sessions/{full.uuid}/context/").json()["messages"]
        run = api.send(path(full), {"from": "u20", "wait": 5}).json()
        context = api.read(f"sessions/{full.uuid}/context/").json()
        assert context["boundary"] == run["boundary"]
        assert context["messages"][:80] == before[:80]
        assert "continued from an earlier conversation" in str(context["messages"][80])
        assert len(context["messages"]) == 81
        assert context["tokens"] == run["tokens_after"] < run["tokens_before"]

    def test_a_cut_that_was_moved_is_told(self, api: Api, full: Session, idle_worker: list[Any]) -> None:
        answer = api.send(path(full), {"up_to": "t20"})
        assert answer.status_code == 202
        assert answer.json()["cut"] == {"scope": "up_to", "asked": "t20", "uuid": "a20", "moved": True}

    def test_the_whole_has_no_cut(self, api: Api, full: Session, idle_worker: list[Any]) -> None:
        assert api.send(path(full)).json()["cut"] is None

    @pytest.mark.parametrize("field", ["up_to", "from"])
    @pytest.mark.parametrize(
        ("uuid", "code"),
        [
            ("nobody", "unknown_uuid"),
            ("of-charlie", "unknown_uuid"),
            ("elsewhere", "foreign_session"),
            ("u3", "already_compacted"),
            ("u35", "not_on_live_path"),
            ("side", "not_on_live_path"),
        ],
    )
    def test_what_can_not_be(
        self, api: Api, cast: Cast, full: Session, idle_worker: list[Any], field: str, uuid: str, code: str
    ) -> None:
        append(make_session(cast.charlies_team), user("theirs", uuid="of-charlie"))
        append(make_session(cast.alices_team), user("ours", uuid="elsewhere"))
        append(full, user("aside", uuid="side", is_sidechain=True))
        wanted = actions.Wanted(scope=Scope.UP_TO, scope_uuid="u10")
        actions.compact_now(session=full, wanted=wanted, now=timezone.now(), listener=lambda *_: None)
        append(full, user("another way", uuid="other", parent_uuid="b30"))
        answer = api.send(path(full), {field: uuid})
        assert (answer.status_code, errors(answer)) == (400, [(code, field)])
        assert not CompactionRun.objects.filter(status=RunStatus.QUEUED).exists()

    @pytest.mark.parametrize("body", [{"up_to": "u0"}, {"up_to": "a0"}, {"from": "b39"}])
    def test_nothing_on_that_side(self, api: Api, full: Session, idle_worker: list[Any], body: Any) -> None:
        assert errors(api.send(path(full), body)) == [("nothing_on_that_side", next(iter(body)))]

    def test_while_a_run_is_active(self, api: Api, full: Session, idle_worker: list[Any]) -> None:
        api.send(path(full))
        assert api.send(path(full), {"from": "nobody"}).status_code == 409
