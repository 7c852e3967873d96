"""Pages where somebody decides: a candidate that waits, a boundary that is taken back."""

from __future__ import annotations

import pytest

from compaction_app.models import CompactionRun, RunStatus
from sessions_app.models import CompactBoundary, Session
from tests.admin.conftest import World
from tests.factories import append, make_session, turns

RUNS = "/admin/compaction_app/compactionrun/"
BOUNDARIES = "/admin/sessions_app/compactboundary/"


@pytest.fixture
def waiting(world: World) -> CompactionRun:
    session = make_session(world.team, title="To approve", policy_overrides={"approve_compactions": True})
    append(session, *turns(40))
    run = world.compact(Session.objects.select_related("team").get(pk=session.pk))
    assert run.status == RunStatus.AWAITING_APPROVAL
    return run


def post(world: World, who: str, path: str, **data: str) -> tuple[int, str]:
    answer = world.clients[who].post(path, data, follow=True)
    return answer.status_code, answer.content.decode()


class TestCandidate:
    def decide(self, world: World, run: CompactionRun, who: str = "mia", **data: str) -> tuple[int, str]:
        status, page = post(world, who, f"{RUNS}{run.pk}/decide/", **data)
        run.refresh_from_db()
        return status, page

    def test_the_page_shows_it(self, world: World, waiting: CompactionRun) -> None:
        shown = world.page("mia", f"{RUNS}{waiting.pk}/change/")
        assert "Waits for approval" in shown
        assert "## 1. Primary Request and Intent" in shown
        assert 'data-active="no"' in shown, "nothing that is typed may be refreshed away"

    def test_accepted(self, world: World, waiting: CompactionRun) -> None:
        _, page = self.decide(world, waiting, do="accept")
        assert "Accepted" in page
        assert waiting.status == RunStatus.SUCCEEDED
        assert "accepted by mia" in page

    def test_edited_then_accepted(self, world: World, waiting: CompactionRun) -> None:
        text = waiting.candidate.summary.replace("please do step 0", "the first step")
        _, page = self.decide(world, waiting, do="save", summary=text.replace("\n", "\r\n"))
        assert "Saved" in page
        _, page = self.decide(world, waiting, do="accept", summary=text.replace("\n", "\r\n"))
        assert waiting.boundary is not None
        assert waiting.boundary.summary == text

    def test_a_text_without_its_sections_is_refused(self, world: World, waiting: CompactionRun) -> None:
        _, page = self.decide(world, waiting, do="accept", summary="no sections")
        assert "goes on waiting" in page
        assert waiting.status == RunStatus.AWAITING_APPROVAL

    def test_rejected_with_a_reason(self, world: World, waiting: CompactionRun) -> None:
        _, page = self.decide(world, waiting, do="reject", reason="<b>rules</b> are missing")
        assert waiting.status == RunStatus.CANCELLED
        assert "<b>rules</b>" not in page
        assert "&lt;b&gt;rules&lt;/b&gt; are missing" in page

    def test_of_two_one_is_told(self, world: World, waiting: CompactionRun) -> None:
        self.decide(world, waiting, do="accept")
        _, page = self.decide(world, waiting, "alice", do="reject")
        assert "Somebody was faster" in page
        assert waiting.status == RunStatus.SUCCEEDED

    def test_who_may(self, world: World, waiting: CompactionRun) -> None:
        assert self.decide(world, waiting, "vic", do="accept")[0] == 403
        assert self.decide(world, waiting, "charlie", do="accept")[0] == 404
        assert world.get("mia", f"{RUNS}{waiting.pk}/decide/").status_code == 405
        assert waiting.status == RunStatus.AWAITING_APPROVAL
        assert 'name="do"' not in world.page("vic", f"{RUNS}{waiting.pk}/change/")


class TestUndo:
    def path(self, boundary: CompactBoundary) -> str:
        return f"{BOUNDARIES}{boundary.pk}/undo/"

    def test_it_is_asked_first(self, world: World) -> None:
        assert "Revert …" in world.page("mia", f"{BOUNDARIES}{world.boundary.pk}/change/")
        shown = world.page("mia", self.path(world.boundary))
        assert "Revert this boundary?" in shown
        assert "please do step 0" in shown
        world.boundary.refresh_from_db()
        assert world.boundary.reverted_at is None

    def test_reverted_and_restored(self, world: World) -> None:
        _, page = post(world, "mia", self.path(world.boundary))
        assert "Reverted" in page
        world.boundary.refresh_from_db()
        assert world.boundary.reverted_by is not None
        _, page = post(world, "mia", self.path(world.boundary))
        assert "Restored" in page
        assert "brings back one that was reverted" in page
        assert CompactBoundary.objects.filter(restores=world.boundary).count() == 1

    def test_what_can_not_be_done_is_told(self, world: World) -> None:
        append(world.session, *turns(20, start=100, size=2_000))
        world.compact(Session.objects.select_related("team").get(pk=world.session.pk))
        _, page = post(world, "mia", self.path(world.boundary))
        assert "Nothing was changed: Only the newest" in page

    def test_who_may(self, world: World) -> None:
        assert post(world, "vic", self.path(world.boundary))[0] == 403
        assert post(world, "charlie", self.path(world.boundary))[0] == 404
        assert "Revert …" not in world.page("vic", f"{BOUNDARIES}{world.boundary.pk}/change/")
