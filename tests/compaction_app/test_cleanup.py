"""Cleanup after a commit: what is cleared, what stays, and that it stops nothing (S14)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compaction_app import actions
from compaction_app.engine.cleanup import CacheName
from compaction_app.services import cleanup
from compaction_app.services.cleanup import run_cleanup
from sessions_app.models import CompactBoundary, Session
from sessions_app.services.boundaries import record_imported_boundary
from sessions_app.transcript.boundary import BoundaryDraft, BoundaryKind
from tests.factories import NOW, append, make_session, turns, user

pytestmark = pytest.mark.django_db
Registrar = Callable[[CacheName, cleanup.Clear], None]


@pytest.fixture
def register() -> Iterator[Registrar]:
    """Registers for the length of one test."""
    done: list[tuple[CacheName, cleanup.Clear]] = []

    def add(name: CacheName, clear: cleanup.Clear) -> None:
        cleanup.register(name, clear)
        done.append((name, clear))

    yield add
    for name, clear in done:
        cleanup.unregister(name, clear)


def compacted(**values: Any) -> CompactBoundary:
    session = make_session(**values)
    append(session, *turns(3))
    draft = BoundaryDraft(kind=BoundaryKind.FULL, covers_to=8, summary="what was")
    boundary = record_imported_boundary(
        session=session, draft=draft, trigger="auto", tokens_before=9, tokens_after=5, now=NOW
    )
    return boundary


def names(entries: list[dict[str, str]]) -> set[str]:
    return {entry["cache"] for entry in entries}


class TestRunCleanup:
    def test_it_works(self) -> None:
        boundary = compacted()
        done = run_cleanup(boundary=boundary)
        assert CompactBoundary.objects.get(pk=boundary.pk).cleanup == done == boundary.cleanup
        assert names(done["cleared"]) == set(CacheName) - {"sent_skill_names"}
        assert names(done["kept"]) == {"sent_skill_names"}
        held = {entry["cache"]: entry["held_by"] for entry in done["cleared"]}
        assert (held["micro_tracking"], held["classifier_approvals"]) == ("service", "client")

    def test_it_may_run_again(self) -> None:
        boundary = compacted()
        assert run_cleanup(boundary=boundary) == run_cleanup(boundary=boundary)

    def test_every_function_is_called_with_its_session(self, register: Registrar) -> None:
        boundary, seen = compacted(), []
        register(CacheName.MEMORY_FILES, lambda session: seen.append(session.pk))
        run_cleanup(boundary=boundary)
        assert seen == [boundary.session_id]

    def test_a_subagent_never_clears_what_is_the_main_threads(self, register: Registrar) -> None:
        boundary, seen = compacted(thread="subagent"), []
        for name in CacheName:
            register(name, lambda session, name=name: seen.append(name))  # type: ignore[misc]
        done = run_cleanup(boundary=boundary)
        assert {"memory_files", "context_collapse", "sent_skill_names"} == names(done["kept"])
        assert names(done["kept"]).isdisjoint({name.value for name in seen})
        assert names(done["cleared"]) == {name.value for name in seen}

    def test_skill_names_stay_whoever_registers_for_them(self, register: Registrar) -> None:
        seen: list[int] = []
        register(CacheName.SENT_SKILL_NAMES, lambda session: seen.append(session.pk))
        run_cleanup(boundary=compacted())
        assert seen == []

    def test_one_that_fails_stops_no_other_and_is_told_by_its_kind(
        self, register: Registrar, caplog: pytest.LogCaptureFixture
    ) -> None:
        seen: list[int] = []

        def fail(session: Session) -> None:
            raise ValueError("the transcript's secret")

        register(CacheName.MESSAGE_CACHES, fail)
        register(CacheName.MESSAGE_CACHES, lambda session: seen.append(session.pk))
        with caplog.at_level(logging.ERROR):
            done = run_cleanup(boundary=compacted())
        assert names(done["failed"]) == {"message_caches"}
        assert done["failed"][0]["why"] == "clearing it met ValueError"
        assert "message_caches" not in names(done["cleared"])
        assert len(seen) == 1
        assert "secret" not in caplog.text + str(done)

    def test_it_raises_nothing_where_the_session_is_gone(self) -> None:
        assert run_cleanup(boundary=CompactBoundary(session_id=0, kind="full")) == {}

    def test_clearing_results_makes_nothing_else_stale(self) -> None:
        session = make_session()
        append(session, *turns(2))
        draft = BoundaryDraft(kind=BoundaryKind.MICROCOMPACT, covers_to=4, cleared_tool_use_ids=("c0",))
        boundary = record_imported_boundary(
            session=session, draft=draft, trigger="auto", tokens_before=9, tokens_after=5, now=NOW
        )
        assert run_cleanup(boundary=boundary) == {}
        assert CompactBoundary.objects.get(pk=boundary.pk).cleanup is None


class TestAfterARun:
    def test_the_boundary_of_a_run_tells_its_cleanup(self, django_capture_on_commit_callbacks: Any) -> None:
        session = make_session()
        append(session, *turns(40))
        with django_capture_on_commit_callbacks(execute=True):
            run = actions.compact_now(session=session, wanted=actions.Wanted(), now=NOW, listener=lambda *_: None)
        told = CompactBoundary.objects.get(run=run).cleanup
        assert names(told["kept"]) == {"sent_skill_names"}
        assert {entry["held_by"] for entry in told["cleared"]} == {"service", "client"}

    def test_before_the_commit_nothing_is_cleared(self) -> None:
        session = make_session()
        append(session, *turns(40))
        run = actions.compact_now(session=session, wanted=actions.Wanted(), now=NOW, listener=lambda *_: None)
        assert CompactBoundary.objects.get(run=run).cleanup is None


class TestOwnCaches:
    def test_a_prompt_of_the_context_before_is_forgotten(self) -> None:
        boundary = compacted()
        Session.objects.update(ignored_prompt_tokens=90_000)
        run_cleanup(boundary=boundary)
        assert Session.objects.get().ignored_prompt_tokens == 0

    def test_one_that_was_told_since_is_not(self) -> None:
        boundary = compacted()
        append(boundary.session, user("more"))
        Session.objects.update(ignored_prompt_tokens=90_000)
        run_cleanup(boundary=boundary)
        assert Session.objects.get().ignored_prompt_tokens == 90_000
