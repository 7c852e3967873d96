"""Erasing a session: nothing of it is left, whatever table it was in, and nobody who works on it is upset."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.apps import apps
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import IntegrityError, connection, models
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from compaction_app import actions
from compaction_app.models import (
    ClientState,
    CompactionRun,
    Decision,
    HookDelivery,
    IdempotentCall,
    ModelCall,
    TelemetryEvent,
)
from compaction_app.services import client_state, erasures, runs
from compaction_app.services.erasures import erase_session
from sessions_app.models import Erasure, PathAbsence, Session, TranscriptEntry
from tests.cast import BASE, Cast, errors
from tests.factories import append, assistant, bulk_history, make_call, make_session, turns, user
from tests.transcript_lines import file_of, human

SECRET = "xylophone"
NOW = timezone.now()


def ours() -> Iterator[type[models.Model]]:
    for label in ("sessions_app", "compaction_app"):
        yield from apps.get_app_config(label).get_models()


def all_rows() -> dict[str, list[dict[str, Any]]]:
    return {model.__name__: list(model._default_manager.order_by("pk").values()) for model in ours()}


def tables_that_refer(to: type[models.Model], *, through: set[str]) -> set[str]:
    """Models whose rows hang on a session's, at whatever distance."""
    found = set(through)
    for model in ours():
        referred = {f.related_model for f in model._meta.concrete_fields if f.is_relation}
        if model.__name__ not in found and any(
            other is to or getattr(other, "__name__", "") in found for other in referred
        ):
            found.add(model.__name__)
    return found if found == through else tables_that_refer(to, through=found)


def rich_session(cast: Cast) -> Session:
    """With a row in every table that can have one."""
    team = cast.alices_team
    session = make_session(
        team, title=SECRET, external_id=f"id-{SECRET}", system=SECRET, policy_overrides={"approve_compactions": True}
    )
    actions.create_hook(team=team, event="post_compact", values={"url": "https://example.com/"})
    call = {"type": "tool_use", "id": f"toolu-{SECRET}", "name": "Read", "input": {"file_path": f"/{SECRET}.py"}}
    result = {"type": "tool_result", "tool_use_id": f"toolu-{SECRET}", "content": SECRET}
    append(session, user(SECRET, uuid="first"), assistant([call], uuid="second"), user([result], uuid="third"))
    append(session, *turns(30))
    api, path = cast.alice, f"sessions/{session.uuid}/"
    assert api.call("PUT", path + "state/", {"plan": SECRET}).status_code == 200
    assert api.call("PUT", path + "memory/", {"content": f"# Task\n{SECRET}", "covers": "third"}).status_code == 200
    asked = {"instructions": SECRET, "summarizer": "extractive"}
    answer = api.send(path + "compact/", asked, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 202, answer.content
    run = runs.execute(run_id=CompactionRun.objects.get().pk)
    assert run
    assert api.send(f"runs/{run.uuid}/accept/", {}).status_code == 200
    make_call(run, said=SECRET, outcome="no_summary")
    append(session, *turns(2, start=500))
    TranscriptEntry.objects.create(
        session=session, key="k", line_number=1, after_position=0, type="system", raw={"text": SECRET}
    )
    PathAbsence.objects.create(session=session, left_at=1, back_at=2, positions=[1])
    figures = {"warning_threshold": 1, "error_threshold": 1, "auto_compact_threshold": 1, "context_tokens": 1}
    Decision.objects.create(
        session=session, moment="prepare", at=NOW, position=1, source="estimate", level="ok", outcome="applied",
        why=SECRET, applied=[], **figures,
    )  # fmt: skip
    make_session(team, parent=session, title="child")
    name = f"{SECRET}.jsonl"
    file = SimpleUploadedFile(name, file_of(human("u1", None, f"Tell me of the {SECRET}")).getvalue())
    told = api.post(BASE + "imports/", {"file": file}).json()
    imported = Session.objects.get(uuid=told["session"])
    erase_session(session=imported, by="test", now=NOW)
    return Session.objects.get(pk=session.pk)


@pytest.mark.django_db
class TestNothingIsLeft:
    def test_no_table_has_a_row_of_it_and_no_text_tells_of_it(self, cast: Cast) -> None:
        session = rich_session(cast)
        hanging = tables_that_refer(Session, through=set())
        # A child is a session, and the only one that is to stay; what hangs on it is of its own.
        filled = {name for name, rows in all_rows().items() if rows}
        assert hanging - filled == set(), "give the session a row of each kind, so that this can tell"
        answer = cast.alice.call("DELETE", f"sessions/{session.uuid}/")
        assert (answer.status_code, answer.content) == (204, b"")
        left = all_rows()
        assert {name for name in hanging if left[name]} == {"Session"}
        [child] = left.pop("Session")
        assert (child["title"], child["parent_id"]) == ("child", None)
        assert not IdempotentCall.objects.exists()
        assert SECRET not in str(left).lower()

    def test_who_when_and_how_much_stays(self, cast: Cast) -> None:
        session = make_session(cast.alices_team, external_id="x")
        append(session, *turns(3))
        cast.alice.call("DELETE", f"sessions/{session.uuid}/")
        [row] = Erasure.objects.filter(team=cast.alices_team)
        assert (row.session_uuid, row.messages, row.boundaries) == (session.uuid, 12, 0)
        assert "agent" in row.erased_by

    def test_again_it_is_not_found_and_its_external_id_is_free(self, cast: Cast) -> None:
        session = make_session(cast.alices_team, external_id="x")
        assert cast.alice.call("DELETE", f"sessions/{session.uuid}/").status_code == 204
        again = cast.alice.call("DELETE", f"sessions/{session.uuid}/")
        assert (again.status_code, errors(again)) == (404, [("not_found", None)])
        assert Erasure.objects.count() == 1
        made = cast.alice.send("sessions/", {"external_id": "x"})
        assert made.status_code == 201
        assert made.json()["id"] != str(session.uuid)

    def test_others_keep_theirs(self, cast: Cast) -> None:
        mine, other = (make_session(cast.alices_team) for _ in range(2))
        for session in (mine, other):
            append(session, *turns(40))
            actions.compact_now(session=session, wanted=actions.Wanted(), now=NOW, listener=lambda *_: None)
        before = cast.alice.read(f"sessions/{other.uuid}/context/").json()
        cast.alice.call("DELETE", f"sessions/{mine.uuid}/")
        assert cast.alice.read(f"sessions/{other.uuid}/context/").json() == before
        assert TelemetryEvent.objects.filter(session=other).exists()
        assert not HookDelivery.objects.exists()

    def test_the_number_of_statements_does_not_follow_the_length(self, cast: Cast) -> None:
        counts = []
        for length in (5, 2_000):
            session = make_session(cast.alices_team)
            bulk_history(session, count=length)
            with CaptureQueriesContext(connection) as captured:
                erase_session(session=session, by="test", now=NOW)
            counts.append(len(captured))
            selected = [q["sql"] for q in captured if q["sql"].startswith("SELECT")]
            assert not any('"content"' in sql for sql in selected), "contents are not read to be deleted"
        assert counts[0] == counts[1]


def write_state(run: CompactionRun) -> None:
    client_state.put_state(session=run.session, state={"plan": SECRET}, now=NOW)


def write_call(run: CompactionRun) -> None:
    make_call(run, said=SECRET, outcome="no_summary")


@pytest.mark.django_db(transaction=True)  # what refers to nothing is refused at the end of a transaction
class TestMeanwhile:
    @pytest.mark.parametrize("stage", ["reading", "summarizing", "storing"])
    def test_a_worker_stores_nothing_and_is_not_upset(self, cast: Cast, caplog: Any, stage: str) -> None:
        session = make_session(cast.alices_team)
        append(session, *turns(40))
        run = actions.request_compaction(session=session, wanted=actions.Wanted(), now=NOW)

        def listener(now_at: str, fraction: float) -> None:
            if now_at == stage and Session.objects.filter(pk=session.pk).exists():
                erase_session(session=session, by="test", now=NOW)

        with caplog.at_level(logging.INFO):
            assert runs.execute(run_id=run.pk, listener=listener) is None
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
        assert not CompactionRun.objects.exists()
        assert all_rows()["Message"] == []

    @pytest.mark.parametrize(("model", "write"), [(ClientState, write_state), (ModelCall, write_call)])
    def test_nobody_writes_behind_it(
        self, cast: Cast, monkeypatch: Any, model: type[models.Model], write: Callable[[CompactionRun], Any]
    ) -> None:
        """On SQLite transactions that write exclude each other anyway."""
        if connection.vendor == "sqlite":
            pytest.skip("a second connection has no part in a database in memory")
        session = make_session(cast.alices_team)
        append(session, *turns(3))
        run = actions.request_compaction(session=session, wanted=actions.Wanted(), now=NOW)
        refused: list[Exception] = []

        def write_behind() -> None:
            try:
                write(run)
            except IntegrityError as error:
                refused.append(error)
            finally:
                connection.close()

        writer = threading.Thread(target=write_behind)
        real = erasures._delete

        def delete(rows: Any) -> None:
            real(rows)
            if rows.model is model:
                writer.start()
                writer.join(timeout=0.5)  # it is as far by then as it can come

        monkeypatch.setattr(erasures, "_delete", delete)
        answer = cast.alice.call("DELETE", f"sessions/{session.uuid}/")
        writer.join()
        assert (answer.status_code, answer.content) == (204, b"")
        assert not model._default_manager.exists()
        assert len(refused) == 1

    def test_a_worker_that_stops_gives_nothing_back(self, cast: Cast) -> None:
        session = make_session(cast.alices_team)
        append(session, *turns(40))
        run = actions.request_compaction(session=session, wanted=actions.Wanted(), now=NOW)

        def listener(now_at: str, fraction: float) -> None:
            erase_session(session=session, by="test", now=NOW)
            raise SystemExit

        with pytest.raises(SystemExit):
            runs.execute(run_id=run.pk, listener=listener)

    @pytest.mark.parametrize(
        ("method", "path", "body"),
        [
            ("POST", "messages/", {"role": "user", "content": "x"}),
            ("POST", "compact/", {}),
            ("PATCH", "", {"title": "x"}),
            ("PUT", "memory/", {"content": "# x"}),
            ("PUT", "state/", {}),
            ("POST", "reset-breaker/", {}),
            ("DELETE", "", None),
        ],
    )
    def test_a_call_that_has_found_it_before_is_answered_with_404(
        self, cast: Cast, monkeypatch: Any, method: str, path: str, body: Any
    ) -> None:
        from compaction_app.api.base import ApiView

        session = make_session(cast.alices_team)
        append(session, *turns(40))
        real = ApiView.one

        def erased_behind(self: Any, queryset: Any, uuid: Any, *, name: str) -> Any:
            found = real(self, queryset, uuid, name=name)
            if name == "session":
                erase_session(session=found, by="test", now=NOW)
            return found

        monkeypatch.setattr(ApiView, "one", erased_behind)
        answer = cast.alice.call(method, f"sessions/{session.uuid}/{path}", body)
        assert (answer.status_code, errors(answer)) == (404, [("not_found", None)]), answer.content
