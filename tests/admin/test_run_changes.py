"""A run is tried again or ended on its page: by who may, by POST, and what can not be is told."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from compaction_app import actions
from compaction_app.models import CompactionRun, CompactionState, RunStatus
from sessions_app.models import Session
from tests.admin.conftest import World
from tests.admin.test_failures import failed  # noqa: F401 - a fixture
from tests.factories import NOW, append, user

RUNS = "/admin/compaction_app/compactionrun/"


def page_of(run: CompactionRun) -> str:
    return f"{RUNS}{run.pk}/change/"


def act(world: World, who: str, of: CompactionRun, what: str, **data: Any) -> Any:
    return world.clients[who].post(f"{RUNS}{of.pk}/{what}/", data, follow=True)


@pytest.fixture
def queued(world: World) -> CompactionRun:
    append(world.session, user("something new"))
    session = Session.objects.select_related("team").get(pk=world.session.pk)
    return actions.request_compaction(session=session, wanted=actions.Wanted(), now=NOW)


class TestTryingAgain:
    def test_as_it_was(self, world: World, failed: CompactionRun) -> None:  # noqa: F811
        shown = world.page("mia", page_of(failed))
        assert "Try it again" in shown
        assert "All that failed like this" in shown
        told = act(world, "mia", failed, "retry").content.decode()
        [again] = CompactionRun.objects.filter(retry_of=failed)
        assert (again.instructions, again.names_summarizer, again.source) == (failed.instructions, False, "admin")
        assert again.requested_by is not None
        assert again.requested_by.username == "mia"
        assert "Queued again" in told

    def test_by_another_and_with_other_instructions(self, world: World, failed: CompactionRun) -> None:  # noqa: F811
        act(world, "alice", failed, "retry", summarizer="extractive", instructions="keep\r\nnames")
        [again] = CompactionRun.objects.filter(retry_of=failed)
        assert (again.summarizer, again.instructions) == ("extractive", "keep\nnames")

    def test_what_can_not_be_is_told(self, world: World, failed: CompactionRun) -> None:  # noqa: F811
        assert "Nothing was queued" in act(world, "mia", failed, "retry", summarizer="nobody").content.decode()
        assert "Nothing was queued" in act(world, "mia", failed, "retry", instructions="x" * 20_000).content.decode()
        assert "has succeeded" in act(world, "mia", world.run, "retry").content.decode()
        act(world, "mia", failed, "retry")
        assert "is not finished" in act(world, "mia", failed, "retry").content.decode()
        assert CompactionRun.objects.filter(retry_of__isnull=False).count() == 1

    def test_the_breaker_is_reset_from_here(self, world: World, failed: CompactionRun) -> None:  # noqa: F811
        CompactionState.objects.update_or_create(
            session=failed.session, defaults={"opened_at": NOW, "opened_by": "failures", "consecutive_failures": 3}
        )
        assert "Reset the breaker" in world.page("mia", page_of(failed))
        assert "Reset the breaker" not in world.page("vic", page_of(failed))


class TestEnding:
    def test_it_is_cancelled(self, world: World, queued: CompactionRun) -> None:
        assert "Cancel this run" in world.page("mia", page_of(queued))
        told = act(world, "mia", queued, "cancel").content.decode()
        queued.refresh_from_db()
        assert (queued.status, queued.detail) == (RunStatus.CANCELLED, "cancelled by mia")
        assert "nothing of it was stored" in told
        assert "Cancel this run" not in told

    def test_one_that_has_ended_is_not(self, world: World) -> None:
        assert "has ended" in act(world, "mia", world.run, "cancel").content.decode()
        assert "Cancel this run" not in world.page("mia", page_of(world.run))


@pytest.mark.parametrize("what", ["retry", "cancel"])
class TestWhoMay:
    def test_a_viewer_may_not(self, world: World, queued: CompactionRun, what: str) -> None:
        assert act(world, "vic", queued, what).status_code == 403
        shown = world.page("vic", page_of(queued))
        assert "Cancel this run" not in shown

    def test_for_another_team_it_is_not_there(self, world: World, queued: CompactionRun, what: str) -> None:
        assert act(world, "charlie", queued, what).status_code == 404
        queued.refresh_from_db()
        assert queued.status == RunStatus.QUEUED

    def test_a_link_changes_nothing(self, world: World, queued: CompactionRun, what: str) -> None:
        assert world.get("root", f"{RUNS}{queued.pk}/{what}/").status_code == 405

    def test_it_needs_the_token(self, world: World, queued: CompactionRun, what: str) -> None:
        client = Client(enforce_csrf_checks=True)
        client.cookies = world.clients["mia"].cookies
        assert client.post(f"{RUNS}{queued.pk}/{what}/").status_code == 403
