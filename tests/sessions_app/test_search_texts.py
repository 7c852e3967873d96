"""Search texts: one beside each message and each summary, whoever writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from sessions_app.models import SearchText, Session, Team
from sessions_app.services.append import UuidConflict
from sessions_app.services.boundaries import commit_boundary
from sessions_app.services.reverts import restore, revert
from sessions_app.transcript.boundary import BoundaryDraft, BoundaryKind
from sessions_app.transcript.search_text import fold, search_text
from tests.build import use
from tests.factories import NOW, append, assistant, make_session, turns, user
from tests.sessions_app.test_migrations import back_to, clear, migrate_to_newest

BEFORE = [("sessions_app", "0011_search_erasures_expiry")]


def told() -> list[tuple[int, int, int | None, int | None, str]]:
    rows = SearchText.objects.order_by("message_id", "boundary_id")
    return list(rows.values_list("team_id", "session_id", "message_id", "boundary_id", "text"))


def summarise(session: Session, summary: str = "What was: das Straßenschild 关键") -> Any:
    boundary = commit_boundary(
        session_id=session.pk,
        draft=BoundaryDraft(kind=BoundaryKind.FULL, covers_to=4, summary=summary),
        trigger="manual",
        expected_head_id=None,
        as_of=session.last_position,
        tokens_before=session.context_tokens,
        now=NOW,
    )
    session.refresh_from_db()
    return boundary


@pytest.mark.django_db
class TestWriting:
    def test_each_message_has_one(self, session: Session) -> None:
        first, second = append(session, user("Das Straßenschild"), assistant([use("A", "Bash", command="LS -l")]))
        assert told() == [
            (session.team_id, session.pk, first.pk, None, "das strassenschild"),
            (session.team_id, session.pk, second.pk, None, "bash\ncommand\nls -l"),
        ]

    def test_what_is_sent_again_has_no_second(self, session: Session) -> None:
        for _ in range(2):
            append(session, user("one", uuid="1"))
        assert len(told()) == 1

    def test_what_is_refused_has_none(self, session: Session) -> None:
        append(session, user("one", uuid="1"))
        with pytest.raises(UuidConflict):
            append(session, user("new", uuid="2"), user("other", uuid="1"))
        assert [row[-1] for row in told()] == ["one"]

    def test_each_summary_has_one_and_a_clearing_none(self, session: Session) -> None:
        append(session, *turns(4))
        clear(session, "c0")
        assert SearchText.objects.filter(boundary__isnull=False).count() == 0
        boundary = summarise(session)
        [row] = SearchText.objects.filter(boundary__isnull=False)
        assert (row.boundary, row.team, row.session) == (boundary, session.team, session)
        assert row.text == fold(text="What was: das Straßenschild 关键")

    def test_what_is_brought_back_has_its_own(self, session: Session) -> None:
        append(session, *turns(4))
        boundary = summarise(session)
        revert(boundary=boundary, now=NOW)
        brought = restore(boundary=boundary, now=NOW)
        rows = SearchText.objects.filter(boundary__isnull=False)
        assert set(rows.values_list("boundary", flat=True)) == {boundary.pk, brought.pk}

    def test_what_no_database_takes_is_no_obstacle(self, session: Session) -> None:
        append(session, user("a\x00b\ud800c"))
        assert told()[0][-1] == "a\ufffdb\ufffdc"


@pytest.mark.django_db
class TestHolding:
    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("关键", 1),
            ("键字", 1),
            ("关字", 0),
            ("STRASSE", 1),
            ("straße", 1),
            ("100%", 1),
            ("1%0", 0),
            ("_", 0),
            ("\\", 0),
        ],
    )
    def test_it_works(self, session: Session, query: str, found: int) -> None:
        append(session, user("Die Straße, 关键字, 100% sure"), user("nothing"))
        assert SearchText.objects.holding(query).count() == found


@pytest.fixture
def at_the_newest_again() -> Iterator[None]:
    yield
    migrate_to_newest()


@pytest.mark.django_db(transaction=True)
class TestMigrations:
    @pytest.mark.thorough
    @pytest.mark.database
    def test_what_is_stored_already_is_filled_in(self, at_the_newest_again: None) -> None:
        session = make_session()
        append(session, *turns(200, size=20))
        append(session, user("关键"))
        summarise(session)
        clear(session, "c9")
        before = told()
        assert len(before) == session.last_position + 1
        back_to(BEFORE)
        migrate_to_newest()
        assert told() == before

    @pytest.mark.thorough
    @pytest.mark.database
    def test_it_can_be_begun_again(self, at_the_newest_again: None) -> None:
        session = make_session()
        rows = append(session, *turns(3))
        whole = told()
        SearchText.objects.filter(message__in=rows[5:]).delete()
        executor = MigrationExecutor(connection)
        executor.migrate([("sessions_app", "0013_fill_search_texts")])
        executor.loader.build_graph()
        fill = executor.loader.get_migration("sessions_app", "0013_fill_search_texts").operations[0]
        state = executor.loader.project_state([("sessions_app", "0013_fill_search_texts")])
        fill.code(state.apps, None)
        assert told() == whole

    @pytest.mark.thorough
    @pytest.mark.database
    def test_an_empty_database(self, at_the_newest_again: None) -> None:
        assert not Team.objects.exists()
        back_to(BEFORE)
        migrate_to_newest()
        assert told() == []


def test_a_row_is_what_a_search_folds_its_query_with() -> None:
    assert fold(text=search_text(content=[{"type": "text", "text": "Ä"}])) == "ä"
