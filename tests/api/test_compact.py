"""POST sessions/{id}/compact/."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from compaction_app import actions, tasks
from compaction_app.api import compact
from compaction_app.models import CompactionRun, RunStatus
from sessions_app.models import Session
from tests.cast import Api, errors
from tests.factories import append, turns, user


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
    monkeypatch.setattr(actions, "hand_out_on_commit", lambda **kwargs: sent.append(kwargs))
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
        actions.compact_now(session=full, instructions="", now=timezone.now(), listener=lambda *_: None)
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
            ({"instruction": "x"}, [("unknown_field", "instruction")]),
            *(
                ({name: value}, [("not_supported_yet", name)])
                for name, value in [
                    ("up_to", "u1"),
                    ("from", "u1"),
                    ("mode", "reactive"),
                    ("summarizer", "extractive"),
                    ("dry_run", True),
                ]
            ),
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
            ("", ""),
            ("/compact keep the SQL", "keep the SQL"),
            (" /Compact\nkeep\n the SQL ", "keep\n the SQL"),
            ("keep the SQL up_to:here", "keep the SQL up_to:here"),
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
            ({"command": "/compact up_to:u1 keep the SQL"}, ("not_supported_yet", "command")),
            ({"command": "from:u1"}, ("not_supported_yet", "command")),
            ({"command": "/compact up_to:"}, ("invalid", "command")),
            ({"command": "/compact up_to:u1 from:u2"}, ("invalid", "command")),
            ({"command": "x" * 16_385}, ("invalid", "command")),
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

    def test_a_part_is_refused_whatever_the_session_is_like(
        self, api: Api, session: Session, idle_worker: list[Any]
    ) -> None:
        assert errors(api.send(path(session), {"command": "from:u1"})) == [("not_supported_yet", "command")]
