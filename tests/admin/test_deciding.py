"""Pages where somebody decides: a candidate that waits, a boundary that is taken back."""

from __future__ import annotations

from typing import Any

import pytest

from compaction_app import actions
from compaction_app.models import CompactionRun, RunStatus
from sessions_app.models import CompactBoundary, Session
from tests.admin.conftest import World, history
from tests.factories import NOW, append, make_session, turns

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

    def test_what_was_found_is_told_in_words(self, world: World, waiting: CompactionRun) -> None:
        candidate = waiting.candidate
        found = {
            "missing_sections": [],
            "names": 9,
            "unknown_count": 1,
            "unknown_names": ["<b>src/nowhere.py"],
            "user_messages": 4,
            "unquoted_count": 1,
            "unquoted": [{"uuid": "u1", "position": 5, "begins": "please do step 1"}],
            "whole": False,
        }
        type(candidate).objects.filter(pk=candidate.pk).update(audit=found)
        shown = world.page("vic", f"{RUNS}{waiting.pk}/change/")
        assert "No section is missing." in shown
        assert "Names that the history does not hold: 1 of 9, as far as it was read" in shown
        assert "&lt;b&gt;src/nowhere.py" in shown
        assert "Prompts that are not in it word for word: 1 of 4" in shown
        assert "#5 please do step 1</a>" in shown
        assert "No fact is lost" not in shown, "it was not looked for"

    @pytest.mark.parametrize("found", [None, {}, [], {"unknown_count": 2, "unknown_names": None, "unquoted": 3}])
    def test_an_audit_of_any_shape_is_no_error(self, world: World, waiting: CompactionRun, found: Any) -> None:
        type(waiting.candidate).objects.filter(run=waiting).update(audit=found or {})
        assert "Waits for approval" in world.page("vic", f"{RUNS}{waiting.pk}/change/")

    def test_what_rejects_is_no_part_of_what_accepts(self, world: World, waiting: CompactionRun) -> None:
        """Return in a field presses the first button of its form."""
        forms = world.page("mia", f"{RUNS}{waiting.pk}/change/").split("<form")
        [with_reason] = [form.partition("</form>")[0] for form in forms if 'name="reason"' in form]
        assert 'value="reject"' in with_reason
        assert 'value="accept"' not in with_reason

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
        assert "Read: /srv/app/file_0.py" in shown
        assert "def step_0()" in shown, "a result by its first words"
        assert "## 1. Primary Request and Intent" in shown
        assert "Comes back: what it hides" in shown
        assert "tokens</b> larger" in shown
        world.boundary.refresh_from_db()
        assert world.boundary.reverted_at is None

    def test_reverted_and_restored(self, world: World) -> None:
        _, page = post(world, "mia", self.path(world.boundary))
        assert "Reverted" in page
        shown = world.page("mia", self.path(world.boundary))
        assert "Comes back: what it puts in" in shown
        assert "tokens</b> smaller" in shown
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
        shown = world.page("mia", self.path(world.boundary))
        newer = world.session.boundaries.latest("pk")
        assert f'A <a class="ca-link" href="{BOUNDARIES}{newer.pk}/change/">newer boundary</a> stands' in shown
        assert ">Revert</button>" not in shown

    def test_who_may(self, world: World) -> None:
        assert post(world, "vic", self.path(world.boundary))[0] == 403
        assert post(world, "charlie", self.path(world.boundary))[0] == 404
        assert "Revert …" not in world.page("vic", f"{BOUNDARIES}{world.boundary.pk}/change/")


class TestAPart:
    @pytest.fixture
    def part(self, world: World) -> CompactionRun:
        session = make_session(world.team, title="A part")
        append(session, *turns(40))
        wanted = actions.Wanted.from_command("/compact up_to:t25 mind the names")
        session = Session.objects.select_related("team").get(pk=session.pk)
        return actions.compact_now(session=session, wanted=wanted, now=NOW, listener=lambda stage, fraction: None)

    def test_the_run_tells_where_it_was_asked_for_and_where_it_was_cut(self, world: World, part: CompactionRun) -> None:
        shown = world.page("vic", f"{RUNS}{part.pk}/change/")
        assert "what is before a message" in shown
        assert "/jump/?to=t25" in shown
        assert "/jump/?to=a25" in shown
        assert "(moved: " in shown

    def test_a_cut_where_it_was_asked_for(self, world: World, part: CompactionRun) -> None:
        CompactionRun.objects.filter(pk=part.pk).update(cut_uuid="t25")
        shown = world.page("vic", f"{RUNS}{part.pk}/change/")
        assert "just there" in shown
        assert "(moved: " not in shown

    def test_a_run_of_the_whole_says_nothing_of_it(self, world: World) -> None:
        assert "Asked for at" not in world.page("vic", f"{RUNS}{world.run.pk}/change/")

    def test_the_form_says_how(self, world: World) -> None:
        shown = world.page("mia", history(world.session))
        assert "<code>up_to:UUID</code>" in shown
        assert 'aria-describedby="instructions-help"' in shown


def test_a_restored_file_is_told_by_its_path(world: World) -> None:
    row = world.boundary.attachments.filter(kind="file").first()
    assert row is not None
    shown = world.page("vic", f"{BOUNDARIES}{world.boundary.pk}/change/")
    assert f'file <code class="ca-break">{row.payload["path"]}</code>' in shown
