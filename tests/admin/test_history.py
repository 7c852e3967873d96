"""The history page: paging, joining across pages, boundaries in their places, and what it costs."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from compaction_app.admin.history import Pages, read_page
from compaction_app.models import Decision
from sessions_app.models import CompactBoundary, Session, ToolCall
from sessions_app.transcript.messages import MessageKind
from tests.admin.conftest import World, clear_results, history
from tests.build import res, use
from tests.factories import NOW, append, assistant, bulk_history, make_session, turns, user


def positions(session: Session, *, after: int = 0, prompts_only: bool = False) -> list[int]:
    page = read_page(session=session, after=after, prompts_only=prompts_only)
    return [item.message.position for item in page.items if item.message]


def pages(session: Session, *, after: int = 0, prompts_only: bool = False) -> Pages:
    return read_page(session=session, after=after, prompts_only=prompts_only).pages


class TestPaging:
    @pytest.fixture
    def session(self, db: None) -> Session:
        session = make_session()
        bulk_history(session, count=120)
        return session

    def test_goes_by_fifties(self, session: Session) -> None:
        assert positions(session) == list(range(1, 51))
        assert positions(session, after=100) == list(range(101, 121))
        assert pages(session) == Pages(first="", previous="", next="?after=50", last="?after=100")
        assert pages(session, after=50) == Pages("?after=0", "?after=0", "?after=100", "?after=100")
        assert pages(session, after=100) == Pages("?after=0", "?after=50", "", "")

    def test_prompts_only(self, session: Session) -> None:
        assert positions(session, prompts_only=True) == list(range(1, 100, 2))
        assert pages(session, prompts_only=True).next == "?prompts=1&after=99"
        assert positions(session, after=99, prompts_only=True) == list(range(101, 120, 2))
        back = pages(session, after=99, prompts_only=True)
        assert (back.first, back.previous, back.next) == ("?prompts=1", "?prompts=1&after=0", "")

    @pytest.mark.parametrize("after", ["-1", "x", "99999999999999999999", "²"])
    def test_nonsense_is_the_first_page(self, world: World, after: str) -> None:
        assert 'id="m1"' in world.page("root", history(world.session, f"?after={after}"))

    def test_behind_the_end_is_empty(self, world: World) -> None:
        assert "No messages here" in world.page("root", history(world.session, "?after=5000"))

    def test_plain_page_leads_to_the_history(self, world: World) -> None:
        answer = world.get("root", f"/admin/sessions_app/session/{world.session.pk}/change/")
        assert answer.headers["Location"] == history(world.session)

    @pytest.mark.parametrize(("wanted", "place"), [("52", "?after=50#m52"), ("%23b", None), ("b12", "?after=50#m52")])
    def test_jump(self, world: World, wanted: str, place: str | None) -> None:
        answer = world.get("root", f"/admin/sessions_app/session/{world.session.pk}/jump/?to={wanted}")
        assert answer.headers["Location"] == history(world.session, place or "")

    def test_jump_stays_in_the_session(self, world: World) -> None:
        other = make_session(world.other_team)
        append(other, user("hello", uuid="elsewhere"))
        answer = world.get("root", f"/admin/sessions_app/session/{world.session.pk}/jump/?to=elsewhere")
        assert answer.headers["Location"] == history(world.session)


class TestMessages:
    def test_result_on_a_later_page_stands_under_its_call(self, db: None, world: World) -> None:
        session = make_session(world.team)
        bulk_history(session, count=48)
        append(session, assistant([use("far", file_path="/far.py")], uuid="call", message_id="r1"))
        append(session, assistant([use("far2", file_path="/far2.py")], uuid="call2", message_id="r1"))
        append(session, user([res("far", "the far result")], uuid="r51"), user([res("far2", "second")], uuid="r52"))
        assert "the far result" in world.page("root", history(session))
        later = world.page("root", history(session, "?after=50"))
        assert "the far result" not in later
        assert f"{history(session)}?after=0#m49" in later
        assert "Read at #49" in later

    def test_marks(self, world: World) -> None:
        session = make_session(world.team)
        append(
            session,
            user("one", uuid="1"),
            assistant("two", uuid="2", message_id="r1"),
            user("side", uuid="3", is_sidechain=True),
            user("meta", uuid="4", is_meta=True),
            assistant("broken", uuid="5", kind=MessageKind.API_ERROR),
        )
        session.messages.filter(position=2).update(left_path_at=4)
        shown = world.page("root", history(session))
        for mark in ("sub-agent", "left behind by a rewind", "injected", "API error"):
            assert f">{mark}</span>" in shown

    def test_what_the_head_boundary_hides_is_dimmed(self, world: World) -> None:
        page = read_page(session=world.session, after=0, prompts_only=False)
        rows = {item.message.position: item.message for item in page.items if item.message}
        assert rows[1].dimmed
        tail = read_page(session=world.session, after=world.boundary.covers_to, prompts_only=False)
        assert tail.items
        assert not any(item.message.dimmed for item in tail.items if item.message)

    def test_raw_view_is_the_stored_message(self, world: World) -> None:
        session = make_session(world.team)
        append(session, user("lone \ud800 <script>", uuid="x"))
        answer = world.get("root", f"/admin/sessions_app/session/{session.pk}/messages/1/")
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.json()["content"] == "lone \ud800 <script>"
        assert world.get("root", f"/admin/sessions_app/session/{session.pk}/messages/2/").status_code == 404

    def test_hostile_content_on_the_whole_page(self, world: World) -> None:
        evil = '"><script>alert(1)</script>\u202e\ud800'
        session = make_session(world.team, title='<script>alert(2)</script>"\u202e', external_id="<b>x</b>")
        append(session, user(evil, uuid='"><script>alert(3)</script>'), assistant([use("c", evil, x=evil)], uuid="a"))
        shown = world.page("root", history(session)) + world.page("root", "/admin/sessions_app/session/")
        assert "<script>alert" not in shown
        assert "\u202e" not in shown
        assert "<b>x</b>" not in shown


class TestBoundaries:
    def test_stand_at_their_place(self, world: World) -> None:
        place = world.boundary.covers_to
        page = read_page(session=world.session, after=place // 50 * 50, prompts_only=False)
        order = [item.divider.boundary.pk if item.divider else item.message.position for item in page.items]  # type: ignore[union-attr]
        assert order[order.index(place) + 1] == world.boundary.pk
        assert page.boundaries[0].boundary == world.boundary

    def test_of_other_pages_are_one_key_away(self, world: World) -> None:
        bulk = make_session(world.team)
        bulk_history(bulk, count=200)
        for number in (60, 150):
            CompactBoundary.objects.create(
                session=bulk, kind="full", trigger="auto", covers_to=number, committed_at_position=number,
                summary="s", tokens_before=9, created_at=NOW,
            )  # fmt: skip
        page = read_page(session=bulk, after=100, prompts_only=False)
        assert (page.previous_boundary, page.next_boundary) == (60, None)
        assert read_page(session=bulk, after=0, prompts_only=False).next_boundary == 60

    def test_imported_ones_say_so(self, world: World) -> None:
        session = make_session(world.team, source="claude-code")
        append(session, *turns(2))
        boundary = CompactBoundary.objects.create(
            session=session, kind="full", trigger="auto", covers_to=4, committed_at_position=5, summary="s",
            summarizer="claude-code", tokens_before=9, created_at=NOW,
        )  # fmt: skip
        assert "imported" in world.page("root", history(session))
        assert "imported" in world.page("root", f"/admin/sessions_app/compactboundary/{boundary.pk}/change/")
        assert "imported" not in world.page("root", history(world.session))


class TestCleared:
    """What light links took out of the context stays readable, and says who took it out."""

    @pytest.fixture
    def session(self, world: World) -> Session:
        session = make_session(world.team)
        append(session, *turns(4, size=2_000))
        return session

    def part(self, shown: str, position: int) -> str:
        return shown.partition(f'id="m{position}"')[2].partition('id="m')[0]

    def test_is_marked_folded_and_leads_to_its_boundary(self, world: World, session: Session) -> None:
        boundary = clear_results(session, "c0", "c1")
        shown = world.page("vic", history(session))
        assert shown.count("cleared from the context") == 2
        call = self.part(shown, 2)
        assert f'href="/admin/sessions_app/compactboundary/{boundary.pk}/change/"' in call
        assert "a placeholder is sent instead" in call
        assert "def step_0" in call.partition("The original")[2]
        later = self.part(shown, 10)
        assert "def step_2" in later
        assert "The original" not in later

    def test_by_the_api_says_so(self, world: World, session: Session) -> None:
        clear_results(session, "c0", clearing="api_edit")
        assert "the API leaves it out on its side" in world.page("vic", history(session))

    def test_the_boundary_that_cleared_it_first_counts(self, world: World, session: Session) -> None:
        first = clear_results(session, "c0")
        clear_results(session, "c0", "c1")
        assert f"compactboundary/{first.pk}/change/" in self.part(world.page("vic", history(session)), 2)

    def test_what_is_reverted_is_cleared_no_more(self, world: World, session: Session) -> None:
        clear_results(session, "c0", reverted_at=NOW)
        assert "cleared from the context" not in world.page("vic", history(session))

    def test_divider_says_what_was_cleared(self, world: World, session: Session) -> None:
        clear_results(session, "c0", "c1")
        divider = world.page("vic", history(session)).partition("data-boundary>")[2]
        assert "2 results of Read cleared, about 2,000 tokens freed" in divider
        assert "covers up to" not in divider

    def test_imported_one_knows_ids_only(self, world: World, session: Session) -> None:
        boundary = clear_results(session, "c0", cleared_results=[])
        assert "1 result cleared" in world.page("vic", history(session))
        page = world.page("vic", f"/admin/sessions_app/compactboundary/{boundary.pk}/change/")
        assert '<code class="ca-break">c0</code>' in page


class TestCost:
    def queries(self, world: World, session: Session, query: str) -> list[str]:
        with CaptureQueriesContext(connection) as captured:
            world.page("root", history(session, query))
        return [entry["sql"] for entry in captured.captured_queries]

    @pytest.mark.parametrize("query", ["", "?prompts=1", "?after=4950", "?prompts=1&after=4000"])
    @pytest.mark.thorough
    def test_is_the_same_at_10_and_at_5000_messages(self, world: World, query: str) -> None:
        small, large = make_session(world.team), make_session(world.team)
        bulk_history(small, count=10)
        bulk_history(large, count=5_000)
        ToolCall.objects.bulk_create(
            ToolCall(session=large, tool_use_id=f"c{n}", name="Read", use_position=n, result_position=n + 60)
            for n in range(1, 4_900)
        )
        for _ in range(20):
            CompactBoundary.objects.create(
                session=large, kind="microcompact", trigger="prepare", covers_to=4_900, committed_at_position=4_960,
                cleared_tool_use_ids=[f"c{n}" for n in range(4_800, 4_890)], tokens_before=9, created_at=NOW,
            )  # fmt: skip
        Decision.objects.bulk_create(
            Decision(
                session=large, moment="append", at=NOW, position=n, context_tokens=9, source="usage", level="ok",
                warning_threshold=1, error_threshold=1, auto_compact_threshold=1, outcome="below_threshold", why="so",
            )
            for n in range(100)
        )  # fmt: skip
        short, long = self.queries(world, small, query), self.queries(world, large, query)
        assert len(short) == len(long)
        # user, session with team and breaker; messages, calls, answers (prompts only: messages, earlier, newest ones);
        # head boundary, cleared ids, boundaries on the page, latest boundaries, runs, next and previous boundary,
        # decisions, memory
        assert len(long) == 16
        assert not any("COUNT(" in sql for sql in long)
