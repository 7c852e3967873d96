"""The header Idempotency-Key on calls that start work: the first answer again, and the work once."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.utils import timezone

from compaction_app import actions
from compaction_app.api import compact
from compaction_app.api.idempotency import digest_of_file
from compaction_app.models import CompactionRun, IdempotentCall, RunStatus
from compaction_app.services.runs import cancel_queued, execute
from sessions_app.models import Session
from sessions_app.policy import Policy
from tests.cast import Api, Cast, errors
from tests.factories import append, make_session, turns

LOST = timedelta(seconds=Policy().idempotency_lost_seconds)


@pytest.fixture
def path(session: Session) -> str:
    append(session, *turns(40))
    return f"sessions/{session.uuid}/compact/"


def keyed(api: Api, path: str, body: Any = None, *, key: str = "k1") -> Any:
    return api.send(path, {} if body is None else body, headers={"Idempotency-Key": key})


def lose_the_server(**values: Any) -> None:
    """As if the server had gone away before it answered, long ago."""
    IdempotentCall.objects.update(status=None, answer=None, held_at=timezone.now() - LOST, **values)


class TestCompact:
    def test_it_works(self, api: Api, path: str) -> None:
        first = keyed(api, path, {"instructions": "keep \ud800"[:5]})
        again = keyed(api, path, {"instructions": "keep \ud800"[:5]})
        assert (first.status_code, again.status_code) == (202, 202)
        assert again.content == first.content
        assert ("Idempotency-Replayed" in first.headers, again.headers["Idempotency-Replayed"]) == (False, "true")
        assert CompactionRun.objects.count() == 1

    def test_the_first_answer_stays_though_the_run_goes_on(self, api: Api, path: str) -> None:
        first = keyed(api, path)
        execute(run_id=CompactionRun.objects.get().pk)
        assert keyed(api, path).content == first.content
        assert api.read(f"runs/{first.json()['id']}/").json()["status"] == "succeeded"

    def test_without_a_key_nothing_is_kept(self, api: Api, path: str) -> None:
        api.send(path, {})
        assert not IdempotentCall.objects.exists()

    def test_how_a_body_is_spaced_does_not_matter(self, api: Api, path: str) -> None:
        first = keyed(api, path, b'{"wait": 0, "instructions": "x"}')
        assert keyed(api, path, b'{"instructions":"x","wait":0}').content == first.content

    @pytest.mark.parametrize("body", [{"instructions": "other"}, {"dry_run": True}, {"wait": 0}])
    def test_another_body_is_409(self, api: Api, path: str, body: Any) -> None:
        keyed(api, path)
        answer = keyed(api, path, body)
        assert (answer.status_code, errors(answer)) == (409, [("idempotency_conflict", "Idempotency-Key")])

    def test_another_address_is_409(self, api: Api, cast: Cast, path: str) -> None:
        keyed(api, path)
        other = make_session(cast.alices_team)
        append(other, *turns(40))
        assert keyed(api, f"sessions/{other.uuid}/compact/").status_code == 409
        run = CompactionRun.objects.get()
        cancel_queued(run=run, now=timezone.now())
        assert errors(keyed(api, f"runs/{run.uuid}/retry/")) == [("idempotency_conflict", "Idempotency-Key")]

    def test_a_key_is_of_one_team(self, cast: Cast, path: str) -> None:
        keyed(cast.alice, path)
        theirs = make_session(cast.charlies_team)
        append(theirs, *turns(40))
        answer = keyed(cast.charlie, f"sessions/{theirs.uuid}/compact/")
        assert (answer.status_code, answer.json()["session"]) == (202, str(theirs.uuid))

    def test_while_the_first_is_under_way_it_is_409_and_says_when(self, api: Api, path: str) -> None:
        keyed(api, path)
        IdempotentCall.objects.update(status=None, answer=None)
        answer = keyed(api, path)
        assert (answer.status_code, errors(answer)) == (409, [("idempotency_in_progress", "Idempotency-Key")])
        assert int(answer.headers["Retry-After"]) >= 1

    @pytest.mark.parametrize("key", ["", " ", "x" * 256, "a\x00b", "a\nb", "a\x7fb", "a\x85b"])
    def test_what_is_no_key_is_400(self, api: Api, path: str, key: str) -> None:
        answer = keyed(api, path, key=key)
        assert (answer.status_code, errors(answer)) == (400, [("invalid", "Idempotency-Key")])
        assert not CompactionRun.objects.exists()

    def test_the_longest_key(self, api: Api, path: str) -> None:
        assert keyed(api, path, key="ü" * 255).content == keyed(api, path, key="ü" * 255).content

    def test_after_an_error_the_key_is_free(self, api: Api, session: Session) -> None:
        empty = f"sessions/{session.uuid}/compact/"
        assert errors(keyed(api, empty)) == [("nothing_to_compact", None)]
        append(session, *turns(40))
        assert keyed(api, empty, {"instructions": "another body"}).status_code == 202

    def test_a_body_that_is_wrong_takes_no_key(self, api: Api, path: str) -> None:
        assert keyed(api, path, {"nonsense": 1}).status_code == 400
        assert not IdempotentCall.objects.exists()

    def test_a_run_that_found_nothing_is_an_error_too(
        self, api: Api, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def end(**_: Any) -> None:
            reason = {"failure_reason": "nothing_to_compact", "finished_at": timezone.now()}
            CompactionRun.objects.update(status=RunStatus.FAILED, **reason)

        monkeypatch.setattr(compact, "wait_for", end)
        assert keyed(api, path, {"wait": 1}).status_code == 400
        assert not IdempotentCall.objects.exists()

    def test_a_dry_run_is_kept(self, api: Api, session: Session, path: str) -> None:
        first = keyed(api, path, {"dry_run": True})
        append(session, *turns(3, start=500))
        assert keyed(api, path, {"dry_run": True}).content == first.content
        assert keyed(api, path, {"dry_run": True}, key="k2").content != first.content

    def test_it_waits_without_a_transaction(self, api: Api, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        depth = len(connection.savepoint_ids)  # the test's own

        def look(**_: Any) -> None:
            assert len(connection.savepoint_ids) == depth

        monkeypatch.setattr(compact, "wait_for", look)
        assert keyed(api, path, {"wait": 1}).status_code == 202


class TestAfterACrash:
    def test_what_was_made_is_answered_as_it_is_now(self, api: Api, path: str) -> None:
        first = keyed(api, path)
        lose_the_server()
        execute(run_id=CompactionRun.objects.get().pk)
        again = keyed(api, path)
        assert (again.json()["id"], again.json()["status"]) == (first.json()["id"], "succeeded")
        assert again.headers["Idempotency-Replayed"] == "true"
        assert CompactionRun.objects.count() == 1
        assert keyed(api, path).content == again.content

    def test_what_was_not_made_is_made(self, api: Api, path: str) -> None:
        keyed(api, path)
        CompactionRun.objects.all().delete()
        lose_the_server(subject=None)
        assert keyed(api, path).status_code == 202
        assert CompactionRun.objects.count() == 1

    def test_an_answer_that_breaks_off_does_not_make_it_twice(
        self, api: Api, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def breaks(**_: Any) -> None:
            raise RuntimeError("the disk is gone")

        with monkeypatch.context() as patch:
            patch.setattr(compact, "wait_for", breaks)
            assert keyed(api, path).status_code == 500
        run = CompactionRun.objects.get()
        again = keyed(api, path)
        assert (again.status_code, again.json()["id"]) == (202, str(run.uuid))

    def test_a_run_and_its_note_are_written_together_or_not_at_all(
        self, api: Api, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def breaks(**_: Any) -> None:
            raise RuntimeError("the connection is gone")

        with monkeypatch.context() as patch:
            patch.setattr("compaction_app.services.idempotency.note", breaks)
            assert keyed(api, path).status_code == 500
        assert not CompactionRun.objects.exists()
        assert keyed(api, path).status_code == 202


class TestRetry:
    def test_it_works(self, api: Api, path: str) -> None:
        failed = actions.request_compaction(session=Session.objects.get(), wanted=actions.Wanted(), now=timezone.now())
        cancel_queued(run=failed, now=timezone.now())
        first = keyed(api, f"runs/{failed.uuid}/retry/")
        again = keyed(api, f"runs/{failed.uuid}/retry/")
        assert (first.status_code, again.content) == (202, first.content)
        assert CompactionRun.objects.count() == 2
        lose_the_server()
        assert keyed(api, f"runs/{failed.uuid}/retry/").json()["id"] == first.json()["id"]
        assert CompactionRun.objects.count() == 2


class TestFile:
    def test_its_bytes_count_and_it_is_read_from_its_beginning_after(self) -> None:
        file = SimpleUploadedFile("a.jsonl", b"one\ntwo")
        file.read(3)
        first = digest_of_file(file)
        assert file.read() == b"one\ntwo"
        assert digest_of_file(SimpleUploadedFile("b.jsonl", b"one\ntwo")) == first
        assert digest_of_file(SimpleUploadedFile("a.jsonl", b"one\ntwo ")) != first


@pytest.mark.django_db(transaction=True)
class TestAtOnce:
    def test_twenty_identical_calls_make_one_run(self) -> None:
        if connection.vendor != "postgresql":
            pytest.skip(
                "SQLite in memory knows no waiting: tests/functional/test_concurrent.py does the same on a file"
            )
        from tests.cast import make_cast

        cast = make_cast()
        session = make_session(cast.alices_team)
        append(session, *turns(40))
        key, start, answers = cast.alice.defaults["HTTP_AUTHORIZATION"].split()[1], threading.Barrier(20), []

        def send() -> None:
            api = Api(key)
            start.wait()
            try:
                answers.append(keyed(api, f"sessions/{session.uuid}/compact/"))
            finally:
                connection.close()

        threads = [threading.Thread(target=send) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        assert len(answers) == 20
        assert CompactionRun.objects.count() == 1
        done = [answer for answer in answers if answer.status_code == 202]
        late = [answer for answer in answers if answer.status_code == 409]
        assert len({answer.content for answer in done}) == 1
        assert len(done) + len(late) == 20
        assert all(errors(answer) == [("idempotency_in_progress", "Idempotency-Key")] for answer in late)
        assert keyed(cast.alice, f"sessions/{session.uuid}/compact/").content == done[0].content
