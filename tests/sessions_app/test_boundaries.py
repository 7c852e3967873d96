"""Boundaries: all or nothing, never over a changed history, and every constraint tried."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from sessions_app import selectors
from sessions_app.models import Attachment, CompactBoundary, Session, ToolCall
from sessions_app.services.boundaries import InvalidContext, StaleView, commit_boundary
from sessions_app.transcript.boundary import (
    AttachmentValue,
    BoundaryDraft,
    BoundaryKind,
    Clearing,
    Placement,
    PreservedSegment,
)
from sessions_app.transcript.request import build_request
from tests.factories import NOW, append, bulk_history, make_session, turns, user

pytestmark = pytest.mark.django_db


def commit(session: Session, covers_to: int, **more: Any) -> CompactBoundary:
    draft = BoundaryDraft(
        kind=more.pop("kind", BoundaryKind.FULL),
        covers_to=covers_to,
        summary=more.pop("summary", "what was"),
        summary_tokens=10,
        **more,
    )
    session.refresh_from_db()
    head = selectors.head_boundary(session=session)
    made = commit_boundary(
        session_id=session.pk,
        draft=draft,
        trigger="manual",
        expected_head_id=head.pk if head else None,
        as_of=session.last_position,
        tokens_before=session.context_tokens,
        now=NOW,
    )
    session.refresh_from_db()
    return made


def request_text(session: Session, at: CompactBoundary | None = None) -> str:
    view = (
        selectors.context_view_at(session=session, boundary_uuid=str(at.uuid))
        if at
        else selectors.context_view(session=session)
    )
    return str(build_request(view=view).messages)


class TestClearing:
    """Placeholders change the prefix, so nothing may have come since they were looked for."""

    def clear(self, session: Session, clearing: Clearing) -> CompactBoundary:
        draft = BoundaryDraft(
            kind=BoundaryKind.MICROCOMPACT, covers_to=3, cleared_tool_use_ids=("c0",), clearing=clearing
        )
        as_of, tokens = session.last_position, session.context_tokens
        append(session, user("meanwhile"))
        return commit_boundary(
            session_id=session.pk,
            draft=draft,
            trigger="prepare",
            expected_head_id=None,
            as_of=as_of,
            tokens_before=tokens,
            now=NOW,
        )

    def test_a_message_that_came_meanwhile_makes_placeholders_stale_and_not_edits(self) -> None:
        session = make_session()
        append(session, *turns(3, size=4_000))
        with pytest.raises(StaleView, match="arrived meanwhile"):
            self.clear(session, Clearing.PLACEHOLDER)
        assert not CompactBoundary.objects.exists()
        assert self.clear(session, Clearing.API_EDIT).kind == "microcompact"


class TestCommitBoundary:
    def test_it_works(self) -> None:
        session = make_session()
        append(session, *turns(5))
        history = list(session.messages.order_by("position").values())
        plan = AttachmentValue(kind="plan", text="the plan \x00", payload={"a": 1}, tokens=5)
        boundary = commit(session, 16, attachments=(plan,))
        assert (boundary.head_uuid, boundary.tail_uuid) == ("u4", "b4")
        assert boundary.tokens_after == session.context_tokens < boundary.tokens_before
        assert session.boundary_count == 1
        assert [item.position for item in selectors.context_view(session=session).items] == [0, 0, 17, 18, 19, 20]
        assert list(session.messages.order_by("position").values()) == history, "history is never touched"

    def test_every_earlier_context_comes_back_byte_for_byte(self) -> None:
        session = make_session()
        append(session, *turns(3))
        first = commit(session, 8, summary="first")
        then = request_text(session)
        append(session, *turns(3, start=3))
        second = commit(session, 20, summary="second")
        later = request_text(session)
        append(session, user("after"))
        assert request_text(session, first) == then
        assert request_text(session, second) == later

    def test_a_stale_head_is_refused(self) -> None:
        session = make_session()
        append(session, *turns(3))
        commit(session, 8)
        with pytest.raises(StaleView):
            commit_boundary(
                session_id=session.pk,
                draft=BoundaryDraft(kind=BoundaryKind.FULL, covers_to=4, summary="late"),
                trigger="manual",
                expected_head_id=None,
                as_of=12,
                tokens_before=1,
                now=NOW,
            )
        assert CompactBoundary.objects.count() == 1

    def test_a_history_that_was_taken_back_meanwhile_is_refused(self) -> None:
        session = make_session()
        append(session, *turns(3))
        append(session, user("other", uuid="x", parent_uuid="b0"))
        with pytest.raises(StaleView):
            commit_boundary(
                session_id=session.pk,
                draft=BoundaryDraft(kind=BoundaryKind.FULL, covers_to=8, summary="late"),
                trigger="manual",
                expected_head_id=None,
                as_of=12,
                tokens_before=1,
                now=NOW,
            )

    def test_t29_a_context_that_the_api_would_refuse_stores_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        session = make_session()
        append(session, *turns(3))
        before = Session.objects.filter(pk=session.pk).values().get()
        monkeypatch.setattr("sessions_app.services.boundaries.validate_messages", lambda messages: ["messages.0: bad"])
        with pytest.raises(InvalidContext):
            commit(session, 8, attachments=(AttachmentValue(kind="plan", text="x"),))
        assert not CompactBoundary.objects.exists()
        assert not Attachment.objects.exists()
        assert Session.objects.filter(pk=session.pk).values().get() == before

    @pytest.mark.parametrize("size", [100, 10_000])
    def test_reading_a_context_costs_what_is_shown(self, size: int) -> None:
        session = make_session()
        bulk_history(session, count=size)
        commit(session, size - 20)
        with CaptureQueriesContext(connection) as queries:
            view = selectors.context_view(session=session)
        assert len(view.items) == 21
        assert len(queries) == 4, "head, its attachments, boundaries since, messages shown"
        assert not any("COUNT(" in q["sql"] for q in queries)


class TestConstraints:
    def refuse(self, **values: Any) -> None:
        session = make_session()
        append(session, *turns(2))
        row = {
            "session": session,
            "kind": "full",
            "trigger": "manual",
            "covers_to": 4,
            "committed_at_position": 8,
            "summary": "x",
            "tokens_before": 1,
            "created_at": NOW,
        }
        with pytest.raises(IntegrityError), transaction.atomic():
            CompactBoundary.objects.create(**{**row, **values})

    def test_a_summary_exactly_for_kinds_that_summarize(self) -> None:
        self.refuse(summary=None)
        self.refuse(summary="")
        self.refuse(kind="microcompact")

    def test_a_preserved_segment_is_whole_or_not_there(self) -> None:
        self.refuse(preserved_first=1)
        self.refuse(preserved_first=3, preserved_last=2, preserved_placement="after_summary")
        self.refuse(preserved_first=1, preserved_last=2)

    def test_a_boundary_covers_history_that_there_is(self) -> None:
        self.refuse(covers_to=9)

    def test_a_call_has_a_place(self) -> None:
        session = make_session()
        with pytest.raises(IntegrityError), transaction.atomic():
            ToolCall.objects.create(session=session, tool_use_id="A", name="x")

    def test_history_is_protected(self) -> None:
        from django.db.models import ProtectedError

        session = make_session()
        append(session, *turns(1))
        with pytest.raises(ProtectedError):
            session.delete()


def test_a_preserved_segment_is_shown_between_summary_and_tail() -> None:
    session = make_session()
    append(session, *turns(4))
    kept = PreservedSegment(first=5, last=8, placement=Placement.AFTER_SUMMARY)
    commit(session, 12, preserved=kept)
    assert [item.position for item in selectors.context_view(session=session).items] == [0, 5, 6, 7, 8, 13, 14, 15, 16]


class TestCost:
    def test_a_view_looks_through_no_boundaries_that_it_does_not_need(self) -> None:
        """In force or taken back, they grow with the history: each branch of the look-up has an index with a bound."""
        if connection.vendor != "sqlite":
            pytest.skip("reads SQLite's query plan")
        session = make_session()
        append(session, *turns(4))
        commit(session, 8)
        with CaptureQueriesContext(connection) as captured:
            selectors.context_view(session=session)
        [look_up] = [query["sql"] for query in captured if '"reverted_position" >' in query["sql"]]
        with connection.cursor() as cursor:
            cursor.execute("EXPLAIN QUERY PLAN " + look_up)
            plan = [row[-1] for row in cursor.fetchall()]
        searches = [step for step in plan if "SEARCH" in step]
        assert "SCAN" not in " ".join(plan)
        assert [step.partition("USING INDEX ")[2] for step in searches] == [
            "boundary_head (session_id=? AND id>?)",
            "boundary_taken_back (session_id=? AND reverted_position>?)",
        ]
