"""GET and PUT sessions/{id}/memory/, the compaction that rests on it, and its extraction."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest

from compaction_app import actions
from compaction_app.models import CompactionState, SessionMemory, TelemetryEvent
from compaction_app.services import memory
from sessions_app.models import Session
from tests.cast import Api, Cast, errors
from tests.factories import NOW, append, make_session, turns, user

pytestmark = pytest.mark.django_db
MEMORY = "# Task\nMend the parser.\n\n# Done\n- lexer"


def path(session: Session) -> str:
    return f"sessions/{session.uuid}/memory/"


def put(api: Api, session: Session, **body: Any) -> Any:
    return api.call("PUT", path(session), body)


@pytest.fixture
def full(session: Session) -> Session:
    append(session, *turns(60, size=1_500))
    return Session.objects.select_related("team").get(pk=session.pk)


class TestMemory:
    def test_it_works(self, api: Api, full: Session, now: Any) -> None:
        answer = put(api, full, content=MEMORY, covers="b40")
        assert answer.status_code == 200
        body = answer.json()
        assert (body["content"], body["covers"], body["covers_position"]) == (MEMORY, "b40", 164)
        assert (body["source"], body["updated_at"]) == ("client", "2026-11-03T09:00:00Z")
        assert api.read(path(full)).json() == body

    def test_before_there_is_one(self, api: Api, session: Session) -> None:
        body = api.read(path(session)).json()
        assert body.pop("content") == ""
        assert set(body.values()) == {None}

    def test_it_covers_the_newest_message_by_default(self, api: Api, full: Session) -> None:
        assert put(api, full, content=MEMORY).json()["covers"] == "b59"

    @pytest.mark.parametrize(("covers", "code"), [("nobody", "unknown_uuid"), ("b50", "not_on_live_path")])
    def test_what_can_not_be_covered(self, api: Api, full: Session, covers: str, code: str) -> None:
        append(full, user("another way", parent_uuid="b45"))
        answer = put(api, full, content=MEMORY, covers=covers)
        assert (answer.status_code, errors(answer)) == (400, [(code, "covers")])
        assert not SessionMemory.objects.exists()

    def test_an_empty_session(self, api: Api, session: Session) -> None:
        assert errors(put(api, session, content=MEMORY)) == [("no_messages", "covers")]

    def test_another_takes_its_place(self, api: Api, full: Session) -> None:
        put(api, full, content=MEMORY, covers="b40")
        put(api, full, content="")
        assert api.read(path(full)).json()["content"] == ""
        assert SessionMemory.objects.count() == 1


class TestCompaction:
    def compact(self, session: Session, **wanted: Any) -> Any:
        return actions.compact_now(session=session, wanted=actions.Wanted(**wanted), now=NOW, listener=lambda *_: None)

    def test_the_memory_stands_for_what_it_covers(self, api: Api, full: Session) -> None:
        put(api, full, content=MEMORY, covers="b40")
        run = self.compact(full)
        assert run.boundary
        assert (run.boundary.kind, run.boundary.summary) == ("session_memory", MEMORY)
        messages = api.read(f"sessions/{full.uuid}/context/").json()["messages"]
        assert MEMORY in str(messages[0]["content"][0]["text"])
        assert "please do step 41" in str(messages)

    def test_instructions_skip_it(self, api: Api, full: Session) -> None:
        put(api, full, content=MEMORY, covers="b40")
        run = self.compact(full, instructions="mind file_3")
        assert run.boundary
        assert run.boundary.kind == "full"
        assert "instructions were given" in run.steps.get(link="session_memory").why

    def test_a_named_summariser_writes(self, api: Api, full: Session) -> None:
        put(api, full, content=MEMORY, covers="b40")
        run = self.compact(full, summarizer="extractive")
        assert run.boundary
        assert (run.boundary.kind, run.summarizer) == ("full", "extractive")
        assert "a summariser was named" in run.steps.get(link="session_memory").why

    def test_who_wrote_is_told(self, api: Api, full: Session) -> None:
        put(api, full, content=MEMORY, covers="b40")
        run = self.compact(full)
        told = api.read(f"runs/{run.uuid}/").json()
        assert (told["summarizer"], told["written_by"]) == ("extractive", "session_memory")

    def test_what_it_keeps_can_be_compacted_at_once(self, api: Api, full: Session) -> None:
        """Much stays behind a memory: somebody who wants less need not say anything first."""
        put(api, full, content=MEMORY, covers="b40")
        before = self.compact(full).tokens_after
        full = Session.objects.select_related("team").get(pk=full.pk)
        run = self.compact(full)
        assert run.boundary, run.detail
        assert run.boundary.kind == "full"
        assert run.tokens_after < 0.8 * before
        full = Session.objects.select_related("team").get(pk=full.pk)
        assert self.compact(full).failure_reason == "nothing_to_compact"

    def test_a_memory_of_a_branch_that_was_left_is_not_used(self, api: Api, full: Session) -> None:
        put(api, full, content=MEMORY, covers="b55")
        append(full, user("another way", parent_uuid="b50"), *turns(2, start=200))
        run = self.compact(Session.objects.select_related("team").get(pk=full.pk))
        assert run.boundary
        assert run.boundary.kind == "full"
        assert "not on the live path" in run.steps.get(link="session_memory").why


@pytest.mark.django_db(transaction=True)
class TestExtraction:
    def say(self, api: Api, session: Session, count: int, start: int) -> None:
        entries = [
            {
                "uuid": entry.uuid,
                "role": entry.role.value,
                "content": entry.content,
                **({"message_id": entry.message_id} if entry.message_id else {}),
            }
            for entry in turns(count, start=start, size=1_500)
        ]
        assert api.send(f"sessions/{session.uuid}/messages/", entries).status_code == 201

    def test_once_there_is_enough_and_again_after_each_step(self, cast: Cast, api: Api, eager_worker: None) -> None:
        session = make_session(cast.alices_team)
        covered = []
        for number in range(12):
            self.say(api, session, 3, number * 3)
            session.refresh_from_db()
            body = api.read(path(session)).json()
            covered.append((session.appended_tokens, body["covers_position"]))
        first = next(tokens for tokens, position in covered if position)
        assert 10_000 <= first < 15_000
        positions = [position for _, position in covered if position]
        assert positions == sorted(positions)
        steps = [later for earlier, later in itertools.pairwise(covered) if later[1] != earlier[1]]
        assert all(later[0] - earlier[0] >= 5_000 for earlier, later in itertools.pairwise(steps))
        assert body["source"] == "extracted"
        assert "## 1. Primary Request and Intent" in body["content"]
        assert TelemetryEvent.objects.filter(name="session_memory_extracted").count() == len(set(positions))

    def test_a_clients_own_is_left_alone(self, cast: Cast, api: Api, eager_worker: None) -> None:
        session = make_session(cast.alices_team)
        self.say(api, session, 2, 0)
        put(api, session, content=MEMORY)
        self.say(api, session, 30, 100)
        assert api.read(path(session)).json()["content"] == MEMORY

    @pytest.mark.parametrize("figure", ["memory_extraction", "memory_enabled", "compaction_enabled"])
    def test_switched_off(self, cast: Cast, api: Api, eager_worker: None, figure: str) -> None:
        session = make_session(cast.alices_team, policy_overrides={figure: False})
        self.say(api, session, 40, 0)
        assert not SessionMemory.objects.exists()

    def test_it_is_not_asked_for_twice(self, cast: Cast) -> None:
        session = make_session(cast.alices_team)
        append(session, *turns(60, size=1_500))
        session = Session.objects.select_related("team").get(pk=session.pk)
        assert memory.ask(session=session, now=NOW)
        assert not memory.ask(session=session, now=NOW)
        assert memory.ask(session=session, now=NOW + timedelta(seconds=1_200))

    def test_what_goes_wrong_takes_nothing_from_the_append(
        self, cast: Cast, api: Api, eager_worker: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def boom(**_: Any) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(memory, "is_due", boom)
        session = make_session(cast.alices_team)
        self.say(api, session, 40, 0)
        session.refresh_from_db()
        assert session.last_position == 160

    def test_after_a_failure_the_next_step_is_waited_for(self, cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
        from compaction_app.engine.outcome import CompactionRefused, FailureReason

        def refuse(**_: Any) -> Any:
            raise CompactionRefused(reason=FailureReason.NO_SUMMARY, detail="none")

        monkeypatch.setattr(memory, "_written", refuse)
        session = make_session(cast.alices_team)
        append(session, *turns(60, size=1_500))
        assert memory.extract(session_id=session.pk, now=NOW) is None
        session = Session.objects.select_related("team").get(pk=session.pk)
        assert CompactionState.objects.get(session=session).memory_at_tokens == session.appended_tokens
        assert not memory.is_due(session=session, now=NOW)
        assert TelemetryEvent.objects.get(name="session_memory_failed").payload["reason"] == "no_summary"
