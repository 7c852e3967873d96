"""The queue of failed compactions: who sees it, what it says, what can be done."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from compaction_app import actions
from compaction_app.models import CompactionRun, FailureGroup, FailureNote, GroupState
from compaction_app.services import situations
from sessions_app.models import Session
from tests.admin.conftest import World
from tests.factories import NOW, append, make_session, turns
from tests.pressure import FailingSummarizer

LIST = "/admin/compaction_app/failuregroup/"
HOSTILE = '<img src=x onerror="document.title=1">\u202e{{ 7*7 }}'


def fail(session: Session) -> CompactionRun:
    session = Session.objects.select_related("team").get(pk=session.pk)
    run = actions.compact_now(session=session, wanted=actions.Wanted(), now=NOW, listener=lambda stage, part: None)
    assert run.failure_reason == "no_summary"
    return run


@pytest.fixture
def failed(world: World, monkeypatch: pytest.MonkeyPatch) -> CompactionRun:
    session = make_session(world.team, title=HOSTILE, model=HOSTILE)
    append(session, *turns(12, size=2_000))
    monkeypatch.setattr(situations, "make_summarizer", lambda **_: FailingSummarizer())
    return fail(session)


def page_of(run: CompactionRun) -> str:
    run.refresh_from_db()
    return f"{LIST}{run.failure_group_id}/change/"


def act(world: World, who: str, of: CompactionRun, what: str, **data: Any) -> Any:
    of.refresh_from_db()
    return world.clients[who].post(f"{LIST}{of.failure_group_id}/{what}/", data, follow=True)


class TestQueue:
    def test_an_empty_one_says_so_kindly(self, world: World) -> None:
        shown = world.page("vic", LIST)
        assert "Nothing waits here" in shown
        assert "has failed" in shown

    def test_shows_what_waits_of_ones_own_teams(self, world: World, failed: CompactionRun) -> None:
        for who in ("root", "alice", "mia", "vic"):
            shown = world.page(who, LIST)
            assert "no summary" in shown
            assert "<img src=x" not in shown
            assert "\u202e" not in shown
            assert 'aria-label="Each day: ' in shown
        assert page_of(failed) not in world.page("charlie", LIST)
        assert "Nothing waits here" in world.page("charlie", LIST)

    def test_what_was_acknowledged_leaves_it(self, world: World, failed: CompactionRun) -> None:
        actions.acknowledge_failures(groups=FailureGroup.objects.all(), by=actions.Decider(), now=NOW)
        shown = world.page("mia", LIST)
        assert "Nothing waits here" in shown
        assert "What was acknowledged" in shown
        for query in ("?queue=acknowledged", "?queue=all"):
            assert page_of(failed) in world.page("mia", LIST + query)
        fail(failed.session)
        shown = world.page("mia", LIST)
        assert "came back (+1)" in shown

    def test_several_are_acknowledged_at_once_by_who_may(self, world: World, failed: CompactionRun) -> None:
        data = {"action": "acknowledge_selected", "_selected_action": [FailureGroup.objects.get().pk]}
        told = world.clients["vic"].post(LIST, data, follow=True).content.decode()
        assert "only look" in told
        assert FailureGroup.objects.get().state is GroupState.OPEN
        world.clients["charlie"].post(LIST, data)
        assert FailureGroup.objects.get().state is GroupState.OPEN
        told = world.clients["mia"].post(LIST, data, follow=True).content.decode()
        assert "1 of 1 acknowledged" in told
        assert FailureGroup.objects.get().acknowledged_by == "mia"

    @pytest.mark.usefixtures("sessions_in_cookies")
    def test_costs_the_same_for_many(self, world: World, failed: CompactionRun, django_assert_num_queries: Any) -> None:
        with CaptureQueriesContext(connection) as few:
            world.page("mia", LIST)
        for number in range(40):
            FailureGroup.objects.create(
                team=world.team, reason="api_error", model=f"m-{number}", first_seen=NOW, last_seen=NOW, count=1
            )
        with django_assert_num_queries(len(few)):
            world.page("mia", LIST)


class TestGroup:
    def test_tells_what_it_is_and_lists_its_runs(self, world: World, failed: CompactionRun) -> None:
        shown = world.page("vic", page_of(failed))
        assert "The model answered, but not with a summary." in shown
        assert "nobody writes" in shown
        assert f"/admin/compaction_app/compactionrun/{failed.pk}/change/" in shown
        assert "<img src=x" not in shown
        assert "\u202e" not in shown
        assert "<form" not in shown.split('class="ca-page"')[1], "a viewer only looks"

    def test_is_not_there_for_another_team(self, world: World, failed: CompactionRun) -> None:
        assert world.get("charlie", page_of(failed)).status_code == 404
        assert act(world, "charlie", failed, "review", do="acknowledge", seen=1).status_code == 404
        assert act(world, "charlie", failed, "retry", run=failed.pk).status_code == 404
        assert FailureGroup.objects.get().state is GroupState.OPEN
        assert CompactionRun.objects.filter(retry_of=failed).count() == 0

    def test_a_viewer_changes_nothing(self, world: World, failed: CompactionRun) -> None:
        assert act(world, "vic", failed, "review", do="acknowledge", seen=1).status_code == 403
        assert act(world, "vic", failed, "retry", run=failed.pk).status_code == 403
        assert not FailureNote.objects.exists()

    def test_a_link_changes_nothing(self, world: World, failed: CompactionRun) -> None:
        for what in ("review", "retry"):
            assert world.get("mia", page_of(failed).replace("change", what)).status_code == 405

    def test_needs_the_token(self, world: World, failed: CompactionRun) -> None:
        client = Client(enforce_csrf_checks=True)
        client.cookies = world.clients["mia"].cookies
        assert client.post(page_of(failed).replace("change", "review"), {"do": "note"}).status_code == 403

    def test_acknowledged_with_a_note_and_a_name_and_opened_again(self, world: World, failed: CompactionRun) -> None:
        told = act(world, "mia", failed, "review", do="acknowledge", note=HOSTILE, seen=1).content.decode()
        assert "leaves the queue until it happens again" in told
        assert "Back into the queue" in told
        assert "<img src=x" not in told
        assert "&lt;img src=x" in told
        assert "mia" in told
        told = act(world, "alice", failed, "review", do="reopen", seen=1).content.decode()
        assert "back in the queue" in told
        assert FailureGroup.objects.get().state is GroupState.OPEN

    def test_what_came_after_the_page_was_read_is_still_to_be_seen(self, world: World, failed: CompactionRun) -> None:
        fail(failed.session)
        act(world, "mia", failed, "review", do="acknowledge", seen=1)
        assert FailureGroup.objects.get().state is GroupState.CAME_BACK

    @pytest.mark.parametrize(
        "data",
        [{}, {"do": "note", "seen": 1}, {"do": "x", "seen": 1}, {"do": "acknowledge", "seen": "-1"},
         {"do": "note", "note": "x" * 2_001, "seen": 1}],
    )  # fmt: skip
    def test_what_makes_no_sense_is_told(self, world: World, failed: CompactionRun, data: dict[str, Any]) -> None:
        assert "Nothing was done" in act(world, "mia", failed, "review", **data).content.decode()
        assert not FailureNote.objects.exists()

    def test_chosen_runs_are_tried_again(self, world: World, failed: CompactionRun) -> None:
        second = fail(failed.session)
        told = act(world, "mia", failed, "retry", run=[failed.pk, second.pk], summarizer="extractive").content.decode()
        [retry] = CompactionRun.objects.filter(retry_of__isnull=False)
        assert (retry.retry_of, retry.summarizer, retry.requested_by.username) == (second, "extractive", "mia")  # type: ignore[union-attr]
        assert "1 of 2 queued again" in told
        assert "a newer run of the same session" in told
        assert f"/admin/compaction_app/compactionrun/{retry.pk}/change/" in told, "the list links to the new run"

    @pytest.mark.parametrize(
        "data", [{}, {"run": "x"}, {"run": "9" * 30}, {"run": "OTHER"}, {"run": "OWN", "summarizer": "nobody"}]
    )
    def test_runs_that_are_not_its_own_are_not(self, world: World, failed: CompactionRun, data: dict[str, str]) -> None:
        keys = {"OTHER": str(world.run.pk), "OWN": str(failed.pk)}
        data = {name: keys.get(value, value) for name, value in data.items()}
        act(world, "mia", failed, "retry", **data)
        assert CompactionRun.objects.filter(retry_of__isnull=False).count() == 0

    def test_older_runs_are_on_further_pages(self, world: World, failed: CompactionRun) -> None:
        for _ in range(25):
            fail(failed.session)
        shown = world.page("mia", page_of(failed))
        assert shown.count('name="run"') == 25
        assert "?before=" in shown
        last = world.page("mia", f"{page_of(failed)}?before={failed.pk + 1}")
        assert last.count('name="run"') == 1
        assert "Newest" in last
        for nonsense in ("x", "-1", "9" * 30, "\x00"):
            assert world.get("mia", page_of(failed) + f"?before={nonsense}").status_code == 200
