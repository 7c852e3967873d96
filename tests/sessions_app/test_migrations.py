"""Migrations over rows: what was stored by an earlier version reads the same, and its sizes are filled in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, models
from django.db.migrations.executor import MigrationExecutor

from compaction_app.models import CompactionRun, Decision, RunStep, TelemetryEvent
from sessions_app import selectors
from sessions_app.models import CompactBoundary, Session
from sessions_app.services.boundaries import commit_boundary
from sessions_app.transcript.boundary import (
    AttachmentValue,
    BoundaryDraft,
    BoundaryKind,
    ClearedResult,
    Clearing,
    Placement,
    PreservedSegment,
)
from sessions_app.transcript.view import REFERENCE_OPENING, SUMMARY_OPENING
from tests.build import res, use
from tests.factories import NOW, append, assistant, make_session, turns, user

pytestmark = pytest.mark.django_db(transaction=True)

APPS = ("sessions_app", "compaction_app")
FIRST = [("sessions_app", "0001_initial"), ("compaction_app", "0001_initial")]
BEFORE_SIZES = [("sessions_app", "0002_pressure"), ("compaction_app", "0002_decisions_and_breaker")]
# What each message and each thing that a boundary puts in counts beyond its text: role, brackets, opening words.
ROUGHLY = 50
OPENINGS = len(SUMMARY_OPENING) + len(REFERENCE_OPENING)


@pytest.fixture(autouse=True)
def at_the_newest_again() -> Iterator[None]:
    yield
    migrate_to_newest()


def migrate_to_newest() -> None:
    executor = MigrationExecutor(connection)
    executor.migrate([node for node in executor.loader.graph.leaf_nodes() if node[0] in APPS])


def back_to(targets: list[tuple[str, str]]) -> None:
    MigrationExecutor(connection).migrate(targets)


def commit(session: Session, draft: BoundaryDraft) -> CompactBoundary:
    head = selectors.head_boundary(session=session)
    boundary = commit_boundary(
        session_id=session.pk,
        draft=draft,
        trigger="manual",
        expected_head_id=head.pk if head else None,
        expected_newest_id=selectors.newest_boundary_id(session=session),
        as_of=session.last_position,
        tokens_before=session.context_tokens,
        now=NOW,
    )
    session.refresh_from_db()
    return boundary


def clear(session: Session, *ids: str, clearing: Clearing = Clearing.PLACEHOLDER) -> CompactBoundary:
    places = dict(session.tool_calls.filter(tool_use_id__in=ids).values_list("tool_use_id", "result_position"))
    rows = tuple(
        ClearedResult(tool_use_id=i, tool="Read", position=places.get(i) or 1, tokens_freed=9, reason="cold")
        for i in ids
    )
    draft = BoundaryDraft(
        kind=BoundaryKind.MICROCOMPACT,
        covers_to=session.last_position,
        cleared_tool_use_ids=ids,
        cleared_results=rows,
        clearing=clearing,
    )
    return commit(session, draft)


def summarise(session: Session, covers_to: int, **more: Any) -> CompactBoundary:
    kind = more.pop("kind", BoundaryKind.FULL)
    return commit(session, BoundaryDraft(kind=kind, covers_to=covers_to, summary="what was " * 400, **more))


def plain() -> Session:
    session = make_session()
    append(session, *turns(4, size=4_000))
    return session


def summarised() -> Session:
    session = plain()
    summarise(session, 8, attachments=(AttachmentValue(kind="plan", text="the plan " * 500, payload={}, tokens=5),))
    return session


def with_a_preserved_segment() -> Session:
    session = plain()
    kept = PreservedSegment(first=5, last=8, placement=Placement.BEFORE_SUMMARY)
    summarise(session, 14, kind=BoundaryKind.PARTIAL_FROM, preserved=kept)
    return session


def cleared() -> Session:
    session = plain()
    clear(session, "c0", "c1")
    clear(session, "c1", "c2", "c2")
    return session


def cleared_by_a_client() -> Session:
    """An imported clearing tells ids, and no places."""
    session = plain()
    CompactBoundary.objects.filter(pk=clear(session, "c0", "c3").pk).update(cleared_results=[])
    return session


def cleared_twice_with_one_id() -> Session:
    """The later result with the id stands after the clearing, so it is shown."""
    session = plain()
    clear(session, "c0")
    append(session, assistant([use("c0")], message_id="again"), user([res("c0", "def again(): ...\n" * 400)]))
    return session


def cleared_after_a_summary_and_before_it() -> Session:
    session = plain()
    clear(session, "c0")
    summarise(session, 8)
    clear(session, "c2")
    return session


def reverted() -> Session:
    session = plain()
    CompactBoundary.objects.filter(pk=clear(session, "c0", "c1").pk).update(reverted_at=NOW)
    return session


def taken_back() -> Session:
    session = plain()
    append(session, user("another way", uuid="w", parent_uuid="b1"))
    return session


def with_a_sidechain() -> Session:
    session = plain()
    append(session, assistant("side " * 900, uuid="s", is_sidechain=True))
    return session


HISTORIES = [
    plain,
    summarised,
    with_a_preserved_segment,
    cleared,
    cleared_by_a_client,
    cleared_twice_with_one_id,
    cleared_after_a_summary_and_before_it,
    reverted,
    taken_back,
    with_a_sidechain,
]


class TestSizes:
    @pytest.mark.parametrize("targets", [FIRST, BEFORE_SIZES], ids=["from_the_first", "from_the_second"])
    @pytest.mark.thorough
    @pytest.mark.database
    def test_views_hold_what_an_append_would_have_counted(self, targets: list[tuple[str, str]]) -> None:
        sessions = {make.__name__: make() for make in HISTORIES}
        exact = {name: selectors.context_view(session=one) for name, one in sessions.items()}
        assert len({view.content_bytes for view in exact.values()}) > 5, "the histories differ"
        back_to(targets)
        migrate_to_newest()
        for name, session in sessions.items():
            counted = Session.objects.get(pk=session.pk).view_bytes
            allowed = ROUGHLY * len(exact[name].items) + OPENINGS
            assert abs(counted - exact[name].content_bytes) <= allowed, name

    @pytest.mark.thorough
    @pytest.mark.database
    def test_what_the_api_clears_is_sent_whole(self) -> None:
        session = plain()
        clear(session, "c0", "c1", clearing=Clearing.API_EDIT)
        before = session.view_bytes
        back_to(BEFORE_SIZES)
        migrate_to_newest()
        session.refresh_from_db()
        assert abs(session.view_bytes - before) < ROUGHLY * session.last_position

    @pytest.mark.parametrize("measured", [False, True])
    @pytest.mark.thorough
    @pytest.mark.database
    def test_given_overhead(self, measured: bool) -> None:
        sessions = [
            make_session(system="You are a careful engineer. " * 300),
            make_session(tools=[{"name": "Read", "description": "reads a file " * 200, "input_schema": {}}]),
            make_session(),
        ]
        exact = [session.given_overhead_tokens for session in sessions]
        assert exact[0] > 1_000
        assert exact[2] == 0
        if measured:
            Session.objects.update(overhead_measured=True, overhead_tokens=70_000)
        back_to(FIRST)
        migrate_to_newest()
        found = [Session.objects.get(pk=session.pk).given_overhead_tokens for session in sessions]
        if measured:
            assert all(0.6 * right <= count <= 2 * right for count, right in zip(found, exact, strict=True))
        else:
            assert found == exact


class TestClientValuesAsText:
    @pytest.mark.thorough
    @pytest.mark.database
    def test_rows_of_the_earlier_kind_read_the_same(self) -> None:
        session = plain()
        boundary = clear(session, "c0", 'ü "quoted" 漢')
        Session.objects.filter(pk=session.pk).update(
            anchor={"position": 4, "message_id": "m", "prompt_tokens": 9},
            calibration={"model": "claude-sonnet-4-5", "billed": 1.5, "estimated": 1.25},
            appended_tokens=0,  # these two came later, and begin at 0
            appended_calls=0,
        )
        event = TelemetryEvent.objects.create(
            team=session.team, session=session, name="x", payload={"b": [1, None, True], "a": "é"}, at=NOW
        )
        applied = [{"link": "time_based", "ran": False, "why": "cache warm", "cleared": 0}]
        common = {"warning_threshold": 1, "error_threshold": 1, "auto_compact_threshold": 1, "context_tokens": 1}
        decision = Decision.objects.create(
            session=session, moment="prepare", at=NOW, position=1, source="estimate", level="ok",
            outcome="applied", why="so", applied=applied, **common,
        )  # fmt: skip
        plain_session = make_session()
        run = CompactionRun.objects.create(session=session, trigger="manual", queued_at=NOW, detail="d")
        step = RunStep.objects.create(
            run=run, ordinal=1, link="full", ran=True, why="w", tokens_before=2, tokens_after=1
        )
        rows: list[models.Model] = [session, boundary, event, decision, run, step, plain_session]
        session.refresh_from_db()
        before = [told(row) for row in rows]
        back_to(BEFORE_SIZES)
        migrate_to_newest()
        for row in rows:
            row.refresh_from_db()
        assert [told(row) for row in rows] == before
        assert (plain_session.anchor, plain_session.calibration) == (None, None)

    def test_nothing_of_a_client_is_kept_as_jsonb(self) -> None:
        """PostgreSQL's jsonb refuses NUL and lone surrogates, which ids, names and outputs of tools may hold."""
        kept = {
            f"{model.__name__}.{field.name}"
            for model in apps_models()
            for field in model._meta.get_fields()
            if isinstance(field, models.JSONField)
        }
        ours = {"Team.policy_overrides", "Session.policy_overrides", "CompactionRun.attempts", "CompactionRun.stages"}
        assert kept == ours, "figures are checked where they enter; attempts and stages are words of this service"


def apps_models() -> list[type[models.Model]]:
    return [model for name in APPS for model in apps.get_app_config(name).get_models()]


SIZES = {"content_bytes", "view_bytes", "given_overhead_tokens", "compacted_from_tokens", "compacted_view_tokens"}


def told(row: models.Model) -> dict[str, Any]:
    return {f.name: getattr(row, f.attname) for f in row._meta.concrete_fields if f.name not in SIZES}
