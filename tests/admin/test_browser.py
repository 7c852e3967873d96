"""The history page in a real browser, at the width of a phone."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model

from compaction_app import actions
from compaction_app.models import CompactionCandidate, CompactionRun
from sessions_app.models import Membership, Session
from tests.admin.conftest import clear_results, history
from tests.admin.test_automatic import decide
from tests.build import res, use
from tests.factories import NOW, append, assistant, make_call, make_session, turns, user

# transaction=True: the live server answers from another thread and must see the rows.
pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def session(db: None) -> Session:
    session = make_session(title="A title as long as titles get, with_a_very_long_unbroken_identifier" * 2)
    append(session, *turns(20, size=2_000))
    append(
        session,
        user("x" * 3_000),
        user("| a | b |\n|---|---|\n" + "| long cell with words | `another_long_cell_without_spaces` |\n" * 5),
        assistant([use("e", "Edit", file_path="/a/" + "b/" * 200, old_string="o" * 500, new_string="n" * 500)]),
        user([res("e", "y" * 3_000)]),
        user("<script>document.title = 'owned'</script> ![x](https://evil.example/pixel.png)"),
    )
    run = actions.compact_now(session=session, wanted=actions.Wanted(), now=NOW, listener=lambda stage, part: None)
    assert run.boundary is not None, run.detail
    return session


def candidate_run(**wanted: Any) -> CompactionRun:
    """A run that waits for approval."""
    session = make_session(title="To approve", policy_overrides={"approve_compactions": True})
    append(session, *turns(20), user("z" * 3_000), assistant("done"))
    session = Session.objects.select_related("team").get(pk=session.pk)
    run = actions.compact_now(
        session=session, wanted=actions.Wanted(**wanted), now=NOW, listener=lambda stage, part: None
    )
    found = {"unknown_count": 1, "names": 1, "unknown_names": ["n" * 300]}
    CompactionCandidate.objects.filter(run=run).update(audit=found)
    return run


class Watched:
    """A page, and what it complained about or asked of others."""

    def __init__(self, browser: Any, *, live_server: Any, client: Any, width: int, scheme: str) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
        cookie = client.cookies["sessionid"]
        self.context.add_cookies([{"name": "sessionid", "value": cookie.value, "url": live_server.url}])
        self.base = live_server.url
        self.page = self.context.new_page()
        self.troubles: list[str] = []
        self.page.on("console", lambda message: message.type == "error" and self.troubles.append(message.text))
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("request", self._requested)

    def _requested(self, request: Any) -> None:
        if not request.url.startswith((self.base, "data:", "blob:")):
            self.troubles.append(f"asked for {request.url}")

    def open(self, path: str) -> None:
        answer = self.page.goto(self.base + path)
        assert answer.status == 200
        assert answer.url == self.base + path, "not the login page"
        self.page.wait_for_load_state("networkidle")

    def overflow(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def on_screen(thing: Any) -> bool:
    """Whether the whole of it is within the window, and nothing lies over its middle."""
    return bool(
        thing.evaluate(
            """it => {
                const box = it.getBoundingClientRect();
                const over = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
                return box.top >= 0 && box.bottom <= window.innerHeight && it.contains(over);
            }"""
        )
    )


@pytest.fixture
def watched(browser: Any, live_server: Any, client: Any) -> Any:
    client.force_login(get_user_model().objects.create(username="root", is_staff=True, is_superuser=True))

    def make(*, width: int = 390, scheme: str = "light") -> Watched:
        return Watched(browser, live_server=live_server, client=client, width=width, scheme=scheme)

    return make


class TestInTheBrowser:
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.thorough
    def test_fits_a_phone_and_stays_at_home(self, watched: Any, session: Session, scheme: str) -> None:
        tab = watched(scheme=scheme)
        run, boundary = session.runs.get(), session.boundaries.get()
        micro = clear_results(session, "e", why="x" * 300)
        make_call(run, said="word " * 500 + "x" * 3_000, outcome="no_summary", detail="d" * 300, dropped_groups=3)
        cleanup = {"cleared": [{"cache": "c" * 60, "why": "w" * 300}], "kept": [{"cache": "k", "why": "w " * 99}]}
        type(boundary).objects.filter(pk=boundary.pk).update(model="m" * 100, response_id="r" * 100, cleanup=cleanup)
        words = f"# {'h' * 300}\n{'w' * 3_000}\n\n| a | b |\n|---|---|\n| {'c' * 300} | d |\n\n```\n{'f' * 300}\n```"
        actions.put_memory(session=session, content=words, covers="", now=NOW)
        waiting = candidate_run(instructions="i" * 300)
        decision = decide(session, why="y" * 300, applied=[{"link": "time_based", "ran": False, "why": "z" * 300}])
        for path in (
            history(session),
            history(session, "?after=50"),
            history(session, "?prompts=1"),
            "/admin/sessions_app/session/",
            f"/admin/sessions_app/compactboundary/{boundary.pk}/change/",
            f"/admin/sessions_app/compactboundary/{boundary.pk}/undo/",
            f"/admin/sessions_app/session/{session.pk}/memory/",
            f"/admin/compaction_app/compactionrun/{waiting.pk}/change/",
            f"/admin/compaction_app/compactionrun/{run.pk}/change/",
            f"/admin/sessions_app/session/{session.pk}/policy/",
            f"/admin/sessions_app/team/{session.team_id}/change/",
            "/admin/compaction_app/decision/",
            f"/admin/compaction_app/decision/{decision.pk}/change/",
            f"/admin/sessions_app/compactboundary/{micro.pk}/change/",
        ):
            tab.open(path)
            for fold in tab.page.locator("details").all():
                fold.evaluate("fold => { fold.open = true }")
            assert tab.overflow() <= 0, path
            assert tab.page.title() != "owned"
        assert tab.troubles == []

    def test_keys_move_between_messages_and_boundaries(self, watched: Any, session: Session) -> None:
        tab = watched(width=1280)
        tab.open(history(session))

        def focused() -> str:
            return str(tab.page.evaluate("document.activeElement.id"))

        tab.page.keyboard.press("j")
        assert focused() == "m1"
        tab.page.keyboard.press("j")
        assert focused() == "m2"
        tab.page.keyboard.press("k")
        assert focused() == "m1"
        tab.page.keyboard.press("n")
        place = session.boundaries.get()
        arrived = "([row, hash]) => document.activeElement.id === row || location.hash === hash"
        tab.page.wait_for_function(arrived, arg=[f"b{place.pk}", f"#m{place.covers_to}"])  # perhaps on another page
        tab.page.wait_for_load_state("load")
        tab.page.keyboard.press("/")
        assert focused() == "jump"
        tab.page.locator(".ca-title").click()
        tab.page.keyboard.press("?")
        assert tab.page.locator("#keys-help").evaluate("dialog => dialog.open")
        assert tab.troubles == []

    def test_a_bad_figure_is_told_and_reached(self, watched: Any, session: Session) -> None:
        tab = watched()
        tab.open(f"/admin/sessions_app/session/{session.pk}/policy/")
        field = tab.page.locator("#id_policy-extract_quote_chars")
        assert not field.is_visible()
        tab.page.locator(".ca-more > summary").click()
        field.fill("3")
        tab.page.get_by_role("button", name="Save").click()
        tab.page.wait_for_selector("[data-problems]:focus")
        assert on_screen(tab.page.locator("[data-problems]"))
        tab.page.locator(".ca-more > summary").click()
        tab.page.locator("[data-problems]").focus()
        tab.page.keyboard.press("Tab")
        tab.page.keyboard.press("Enter")
        assert tab.page.evaluate("document.activeElement.id") == "id_policy-extract_quote_chars"
        assert on_screen(field)
        assert on_screen(tab.page.locator("#id_policy-extract_quote_chars_error"))
        assert field.input_value() == "3"
        assert tab.troubles == []

    @pytest.mark.parametrize("kind", ["session", "team"])
    @pytest.mark.thorough
    def test_what_is_no_number_stays_and_takes_nothing_back(self, watched: Any, session: Session, kind: str) -> None:
        session.policy_overrides = session.team.policy_overrides = {"auto_compact_pct": 80}
        session.save()
        session.team.save()
        tab = watched(width=1280)
        path = f"session/{session.pk}/policy/" if kind == "session" else f"team/{session.team_id}/change/"
        tab.open(f"/admin/sessions_app/{path}")
        field = tab.page.locator("#id_policy-auto_compact_pct")
        field.fill("")
        field.press_sequentially("abc")
        tab.page.get_by_role("button", name="Save", exact=True).click()
        tab.page.wait_for_selector("[data-problems]:focus")
        assert field.input_value() == "abc"
        session.refresh_from_db()
        session.team.refresh_from_db()
        assert session.policy_overrides == session.team.policy_overrides == {"auto_compact_pct": 80}

    @pytest.mark.parametrize("width", [390, 1440])
    @pytest.mark.thorough
    def test_bars_of_the_list_have_one_length(self, watched: Any, session: Session, width: int) -> None:
        small = make_session(session.team)
        append(small, user("go"))
        make_session(session.team, system="be careful " * 90_000)
        tab = watched(width=width)
        tab.open("/admin/sessions_app/session/")
        bars = tab.page.locator(".ca-fill-bar")
        widths = {round(bars.nth(number).bounding_box()["width"]) for number in range(bars.count())}
        assert bars.count() == 3
        assert len(widths) == 1

    def test_tables_have_all_their_columns_on_a_phone(self, watched: Any, session: Session) -> None:
        micro = clear_results(session, "e", why="x" * 300)
        tab = watched()
        Membership.objects.create(team=session.team, user=get_user_model().objects.get(), role="owner")
        tab.open(f"/admin/sessions_app/compactboundary/{micro.pk}/change/")
        reason = tab.page.get_by_role("cell", name="cache cold: idle 400 s of 300 s").bounding_box()
        assert reason["x"] >= 0
        assert reason["x"] + reason["width"] <= 390
        tab.open(f"/admin/sessions_app/team/{session.team_id}/change/")
        box = tab.page.locator("#memberships-group .simplebar-content-wrapper")
        assert box.evaluate("box => box.scrollWidth - box.clientWidth") == 0

    def test_return_in_the_reason_rejects(self, watched: Any, db: None) -> None:
        run = candidate_run()
        tab = watched()
        tab.open(f"/admin/compaction_app/compactionrun/{run.pk}/change/")
        reason = tab.page.get_by_label("Reason for rejecting it")
        reason.fill("rules are missing")
        reason.press("Enter")
        tab.page.get_by_text("Rejected: nothing of it was stored.").wait_for()
        run.refresh_from_db()
        assert (run.status, run.candidate.reason) == ("cancelled", "rules are missing")
        assert tab.troubles == []

    def test_a_run_that_waits_refreshes_itself(self, watched: Any, session: Session) -> None:
        append(session, user("something new"))
        run = actions.request_compaction(session=session, wanted=actions.Wanted(), now=NOW)
        tab = watched()
        tab.open(f"/admin/compaction_app/compactionrun/{run.pk}/change/")
        assert tab.page.locator("#run-live").get_attribute("data-active") == "yes"
        type(run).objects.filter(pk=run.pk).update(status="cancelled", finished_at=NOW)
        tab.page.wait_for_selector('#run-live[data-active="no"]', timeout=6_000)
        assert tab.troubles == []
