"""POST runs/{id}/retry/ and runs/{id}/cancel/."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from compaction_app import actions
from compaction_app.engine.command import Scope
from compaction_app.engine.values import Reported
from compaction_app.models import CompactionRun, HookDelivery
from compaction_app.services import runs
from sessions_app.models import CompactBoundary, Session
from tests.cast import Api, Cast, errors
from tests.factories import append, make_session, turns, user
from tests.pressure import execute

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def idle_worker(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Nobody works; what was handed to the worker."""
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(actions.handing_out, "hand_out_on_commit", lambda **kwargs: sent.append(kwargs))
    return sent


@pytest.fixture
def session(session: Session) -> Session:
    append(session, *turns(40))
    return session


def queue(session: Session, **more: Any) -> CompactionRun:
    values = {"trigger": "manual", "instructions": "", **more}
    return runs.queue_run(session=session, now=timezone.now(), **values)


def failed(session: Session, **more: Any) -> CompactionRun:
    """A run that has failed because compaction was switched off when its worker came to it."""
    before = session.policy_overrides
    Session.objects.filter(pk=session.pk).update(policy_overrides={**before, "compaction_enabled": False})
    run = execute(queue(session, **more))
    Session.objects.filter(pk=session.pk).update(policy_overrides=before)
    assert run.status == "failed"
    return run


def retry(api: Api, run: CompactionRun, body: dict[str, Any] | None = None) -> Any:
    return api.send(f"runs/{run.uuid}/retry/", body or {})


def cancel(api: Api, run: CompactionRun) -> Any:
    return api.send(f"runs/{run.uuid}/cancel/", {})


class TestRetry:
    def test_it_works(self, api: Api, session: Session, idle_worker: list[dict[str, Any]]) -> None:
        run = failed(session, instructions="keep the SQL", source="append")
        answer = retry(api, run)
        assert answer.status_code == 202
        told = answer.json()
        assert (told["retry_of"], told["session"]) == (str(run.uuid), str(session.uuid))
        assert told["id"] != str(run.uuid)
        assert (told["status"], told["trigger"], told["source"]) == ("queued", "manual", "api")
        assert (told["instructions"], told["cut"]) == ("keep the SQL", None)
        [sent] = idle_worker
        assert execute(CompactionRun.objects.get(pk=sent["run_id"])).status == "succeeded"
        assert api.read(f"runs/{run.uuid}/").json()["retry_of"] is None

    def test_one_that_was_cancelled(self, api: Api, session: Session) -> None:
        run = queue(session)
        cancel(api, run)
        assert retry(api, run).json()["retry_of"] == str(run.uuid)

    def test_one_that_started_by_itself_is_tried_again_by_hand(self, api: Api, session: Session) -> None:
        assert retry(api, failed(session, trigger="auto")).json()["trigger"] == "manual"

    def test_who_writes_stays_only_where_somebody_has_named_them(
        self, api: Api, session: Session, settings: Any
    ) -> None:
        named, unnamed = failed(session, summarizer="extractive"), failed(session)
        settings.ANTHROPIC_KEY_SET = True  # since then; unnamed, it is the service's own choice as of now
        assert retry(api, named).json()["summarizer"] == "extractive"
        CompactionRun.objects.active().delete()
        assert retry(api, unnamed).json()["summarizer"] == "anthropic"

    def test_the_body_overrides(self, api: Api, session: Session) -> None:
        run = failed(session, instructions="keep the SQL", summarizer="anthropic")
        told = retry(api, run, {"instructions": "keep the tests", "summarizer": "extractive"}).json()
        assert (told["instructions"], told["summarizer"]) == ("keep the tests", "extractive")
        CompactionRun.objects.active().delete()
        assert retry(api, run, {"instructions": ""}).json()["instructions"] == ""
        CompactionRun.objects.active().delete()
        told = retry(api, run, {"instructions": None, "summarizer": None}).json()
        assert (told["instructions"], told["summarizer"]) == ("keep the SQL", "anthropic")

    @pytest.mark.parametrize("body", [{"up_to": "u20"}, {"wait": 61}, {"wait": "1"}, {"summarizer": "oracle"}])
    def test_what_it_does_not_take(self, api: Api, session: Session, body: dict[str, Any]) -> None:
        answer = retry(api, failed(session), body)
        assert (answer.status_code, [attr for _, attr in errors(answer)]) == (400, list(body))

    def test_a_part_is_cut_anew(self, api: Api, session: Session) -> None:
        """The message that was asked for is the same; where the cut stands is found again."""
        run = failed(session, scope=Scope.UP_TO, scope_uuid="a20", cut_uuid="gone")
        cut = retry(api, run).json()["cut"]
        assert (cut["scope"], cut["asked"]) == ("up_to", "a20")
        assert cut["uuid"] != "gone"

    def test_a_part_that_is_not_there_any_more(self, api: Api, session: Session) -> None:
        run = failed(session, scope=Scope.UP_TO, scope_uuid="b20", cut_uuid="b20")
        append(session, user("another way", uuid="rewind", parent_uuid="b10"))
        answer = retry(api, run)
        assert (answer.status_code, errors(answer)) == (400, [("not_on_live_path", None)])

    @pytest.mark.parametrize(("is_on", "trigger", "tokens"), [(True, "reactive", 204_123), (False, "manual", None)])
    def test_a_reactive_one_keeps_what_was_told_while_such_are_wanted(
        self, api: Api, session: Session, is_on: bool, trigger: str, tokens: int | None
    ) -> None:
        session.policy_overrides = {"reactive_compact": is_on}
        session.save()
        run = failed(session, trigger="reactive", reported=Reported(tokens=204_123, limit=200_000))
        answer = retry(api, run)
        assert (answer.status_code, answer.json()["trigger"]) == (202, trigger)
        assert CompactionRun.objects.get(uuid=answer.json()["id"]).reported_tokens == tokens

    def test_one_that_is_not_finished(self, api: Api, session: Session) -> None:
        run = queue(session)
        answer = retry(api, run)
        assert (answer.status_code, errors(answer)) == (409, [("not_finished", None)])
        assert answer.json()["run"] == str(run.uuid)

    def test_one_that_has_succeeded(self, api: Api, session: Session) -> None:
        run = execute(queue(session))
        answer = retry(api, run)
        assert (answer.status_code, errors(answer)) == (409, [("run_succeeded", None)])
        assert answer.json()["run"] == str(run.uuid)

    def test_while_another_one_works(self, api: Api, session: Session) -> None:
        run, other = failed(session), queue(session)
        answer = retry(api, run)
        assert (answer.status_code, errors(answer)) == (409, [("active_run", None)])
        assert answer.json()["run"] == str(other.uuid)

    def test_where_another_one_has_done_it_meanwhile(self, api: Api, session: Session) -> None:
        run = failed(session)
        execute(queue(session))
        answer = retry(api, run)
        assert (answer.status_code, errors(answer)) == (400, [("nothing_to_compact", None)])


@pytest.mark.django_db(transaction=True)
class TestRetryWithAWorker:
    @pytest.fixture(autouse=True)
    def idle_worker(self, eager_worker: None) -> None:
        """Somebody works here."""

    def test_waiting_gives_the_run_that_has_ended(self, api: Api, session: Session) -> None:
        answer = retry(api, failed(session), {"wait": 5})
        assert (answer.status_code, answer.json()["status"]) == (200, "succeeded")

    def test_nothing_to_compact_found_within_wait(self, api: Api, cast: Cast) -> None:
        small = make_session(cast.alices_team)
        append(small, user("only this"))
        answer = retry(api, failed(small), {"wait": 5})
        assert (answer.status_code, errors(answer)) == (400, [("nothing_to_compact", None)])


class TestCancel:
    def test_it_works(self, api: Api, cast: Cast, session: Session) -> None:
        run = queue(session)
        answer = cancel(api, run)
        assert answer.status_code == 200
        told = answer.json()
        assert (told["id"], told["status"], told["stage"]) == (str(run.uuid), "cancelled", "cancelled")
        assert told["detail"] == f"cancelled by API key {cast.alices_key}"
        assert told["finished_at"]
        assert told == api.read(f"runs/{run.uuid}/").json() | {"calls": []}
        assert runs.execute(run_id=run.pk) is None, "nobody takes it any more"
        assert not HookDelivery.objects.exists()

    def test_it_is_safe_to_repeat(self, api: Api, cast: Cast, session: Session) -> None:
        run = queue(session)
        first = cancel(api, run).json()
        again = cancel(api, run)
        assert (again.status_code, again.json()) == (200, first)

    @pytest.mark.parametrize("status", ["succeeded", "failed"])
    def test_one_that_has_ended(self, api: Api, session: Session, status: str) -> None:
        run = execute(queue(session)) if status == "succeeded" else failed(session)
        before = CompactionRun.objects.filter(pk=run.pk).values().get()
        answer = cancel(api, run)
        assert (answer.status_code, errors(answer)) == (409, [("run_ended", None)])
        assert answer.json()["run"] == str(run.uuid)
        assert CompactionRun.objects.filter(pk=run.pk).values().get() == before

    def test_the_session_may_be_compacted_again(self, api: Api, session: Session) -> None:
        cancel(api, queue(session))
        assert api.send(f"sessions/{session.uuid}/compact/", {}).status_code == 202

    def test_one_that_waits_for_approval(self, api: Api, cast: Cast, session: Session) -> None:
        session.policy_overrides = {"approve_compactions": True}
        session.save()
        run = execute(queue(session))
        told = cancel(api, run).json()
        assert (told["status"], told["detail"]) == ("cancelled", f"cancelled by API key {cast.alices_key}")
        candidate = api.read(f"runs/{run.uuid}/candidate/").json()
        assert (candidate["decision"], candidate["reason"]) == ("rejected", "the run was cancelled")
        assert not CompactBoundary.objects.exists()
        assert errors(api.send(f"runs/{run.uuid}/accept/", {})) == [("not_awaiting", None)]

    def test_a_body_that_says_something(self, api: Api, session: Session) -> None:
        run = queue(session)
        answer = api.send(f"runs/{run.uuid}/cancel/", {"reason": "x"})
        assert (answer.status_code, errors(answer)) == (400, [("unknown_field", "reason")])
        assert CompactionRun.objects.get(pk=run.pk).status == "queued"
