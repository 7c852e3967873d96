"""Automatic compaction on the session's page and in the lists: breaker, reset, and the decision log."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from compaction_app.admin.automatic import LATEST, automatic_of, decision_row
from compaction_app.engine.decision import Outcome
from compaction_app.models import CompactionState, Decision
from sessions_app.models import Session
from sessions_app.transcript.window import Level
from tests.admin.conftest import World, history
from tests.factories import NOW, make_session

LIST = "/admin/compaction_app/decision/"
SESSIONS = "/admin/sessions_app/session/"


def open_breaker(session: Session, **values: Any) -> CompactionState:
    given = {"consecutive_failures": 3, "last_failure": "summary_refused", "opened_at": NOW, "opened_by": "failures"}
    state = CompactionState.objects.create(session=session, **(given | values))
    session.refresh_from_db()
    return state


def decide(session: Session, **values: Any) -> Decision:
    given: dict[str, Any] = {
        "moment": "append",
        "at": NOW,
        "position": 4,
        "context_tokens": 120_000,
        "source": "usage",
        "level": "warning",
        "warning_threshold": 100_000,
        "error_threshold": 130_000,
        "auto_compact_threshold": 140_000,
        "outcome": "below_threshold",
        "why": "120,000 tokens; automatic compaction starts at 140,000",
    }
    return Decision.objects.create(session=session, **(given | values))


class TestCard:
    def test_closed_breaker(self, world: World) -> None:
        told = automatic_of(session=world.session, now=NOW)
        assert (told.on, told.switched_by, told.hindrance) == (True, "auto_compact_enabled: the default", "")
        assert not told.breaker.is_open
        assert not told.breaker.resettable
        shown = world.page("mia", history(world.session))
        assert "Automatic compaction" in shown
        assert "Reset breaker" not in shown
        assert "None yet: decisions are kept" in shown

    def test_open_breaker_tells_why_and_when_a_try_is_allowed(self, world: World) -> None:
        open_breaker(world.session)
        told = automatic_of(session=world.session, now=NOW)
        assert told.breaker.next_try == NOW + timedelta(hours=1)
        assert not told.breaker.try_is_due
        assert automatic_of(session=world.session, now=NOW + timedelta(hours=1)).breaker.try_is_due
        shown = world.page("mia", history(world.session))
        for words in (
            "after 3 failures in a row (the last: summary_refused)",
            "3 of 3",
            "0 of 3",
            "last: summary refused",
        ):
            assert words in shown

    def test_a_threshold_out_of_reach_has_no_next_try(self, world: World) -> None:
        open_breaker(world.session, opened_by="unreachable", consecutive_failures=0)
        crowded = {"overhead_tokens": 29_000, "policy_overrides": {"context_window": 32_768}}
        Session.objects.filter(pk=world.session.pk).update(**crowded)
        assert automatic_of(session=world.session, now=NOW).breaker.next_try is None
        assert "none by time alone" in world.page("mia", history(world.session))

    @pytest.mark.parametrize(
        ("layer", "name", "words"),
        [
            ("session", "auto_compact_enabled", "auto_compact_enabled: the session"),
            ("team", "compaction_enabled", "compaction_enabled: the team"),
            ("environment", "auto_compact_enabled", "DISABLE_AUTO_COMPACT in the environment"),
            ("environment", "compaction_enabled", "DISABLE_COMPACT in the environment"),
        ],
    )
    def test_tells_who_switched_it_off(self, world: World, settings: Any, layer: str, name: str, words: str) -> None:
        if layer == "environment":
            settings.COMPACTION_POLICY = {name: False}
        else:
            row = world.session if layer == "session" else world.team
            row.policy_overrides = {name: False}
            row.save()
        shown = world.page("mia", history(world.session))
        assert words in shown
        assert "<b>no</b>" in shown

    def test_shows_the_newest_decisions_and_leads_to_all(self, world: World) -> None:
        for number in range(LATEST + 2):
            decide(world.session, why=f"reason {number}.")
        decide(make_session(world.team), why="of another session")
        shown = world.page("vic", history(world.session))
        assert "reason 11." in shown
        assert "reason 2." in shown
        assert "reason 1." not in shown
        assert "of another session" not in shown
        assert f'href="{LIST}?session__id__exact={world.session.pk}"' in shown


class TestReset:
    def path(self, world: World) -> str:
        return f"{SESSIONS}{world.session.pk}/breaker/reset/"

    def is_open(self, world: World) -> bool:
        return CompactionState.objects.filter(session=world.session, opened_at__isnull=False).exists()

    def test_closes_the_breaker_and_says_so(self, world: World) -> None:
        open_breaker(world.session)
        assert self.path(world) in world.page("mia", history(world.session))
        answer = world.clients["mia"].post(self.path(world), follow=True)
        assert answer.redirect_chain == [(history(world.session), 302)]
        assert "The breaker is reset" in answer.content.decode()
        assert not self.is_open(world)
        assert "Reset breaker" not in world.page("mia", history(world.session))

    def test_forgets_failures_of_a_closed_one(self, world: World) -> None:
        open_breaker(world.session, opened_at=None, opened_by="", consecutive_failures=2)
        assert "Reset breaker" in world.page("mia", history(world.session))
        answer = world.clients["mia"].post(self.path(world), follow=True)
        assert "is forgotten" in answer.content.decode()
        assert CompactionState.objects.get(session=world.session).consecutive_failures == 0

    def test_get_changes_nothing(self, world: World) -> None:
        open_breaker(world.session)
        assert world.get("root", self.path(world)).status_code == 405
        assert self.is_open(world)

    def test_needs_the_token(self, world: World) -> None:
        open_breaker(world.session)
        client = Client(enforce_csrf_checks=True)
        client.cookies = world.clients["root"].cookies
        assert client.post(self.path(world)).status_code == 403
        assert self.is_open(world)

    @pytest.mark.parametrize(("who", "status"), [("vic", 403), ("charlie", 404)])
    def test_is_for_who_may_compact(self, world: World, who: str, status: int) -> None:
        open_breaker(world.session)
        assert world.clients[who].post(self.path(world)).status_code == status
        assert self.is_open(world)
        assert "Reset breaker" not in world.page("vic", history(world.session))


class TestSessionList:
    @pytest.fixture(autouse=True)
    def others(self, world: World) -> None:
        open_breaker(make_session(world.team, title="Stopped one"))
        open_breaker(make_session(world.team, title="Failed once"), opened_at=None, opened_by="")
        Session.objects.filter(title="Stopped one").update(level=Level.ERROR.value)

    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("breaker=open", {"Stopped one"}),
            ("breaker=closed", {"Failed once", "Fix the parser"}),
            ("breaker=x", set()),
            ("level=error", {"Stopped one"}),
            ("level=ok", {"Failed once", "Fix the parser"}),
            ("level=x", set()),
            ("level=%00", set()),
        ],
    )
    def test_filters(self, world: World, query: str, found: set[str]) -> None:
        shown = world.page("root", f"{SESSIONS}?{query}")
        assert {title for title in ("Stopped one", "Failed once", "Fix the parser") if title in shown} == found

    def test_marks_an_open_breaker_with_why(self, world: World) -> None:
        shown = world.page("root", SESSIONS)
        assert shown.count(">open</span>") == 1
        assert "after 3 failures in a row (the last: summary_refused)" in shown

    def test_tells_the_level_in_words(self, world: World) -> None:
        assert '<span class="ca-fill-level">fits</span>' in world.page("root", SESSIONS)


class TestDecisionPages:
    def test_list_shows_what_was_decided(self, world: World) -> None:
        row = decide(world.session, outcome="breaker_open", level="auto_compact", why="because <b>so</b>")
        shown = world.page("vic", LIST)
        for words in (
            "120,000",
            "breaker open",
            "over the threshold",
            "because &lt;b&gt;so",
            f"{LIST}{row.pk}/change/",
        ):
            assert words in shown

    @pytest.mark.parametrize(
        "query", ["outcome__exact=requested", "moment__exact=prepare", "level=error", "team={other}"]
    )
    def test_list_filters(self, world: World, query: str) -> None:
        decide(world.session, why="the common one")
        wanted = make_session(world.other_team)
        decide(wanted, why="the wanted one", outcome="requested", moment="prepare", level="error")
        shown = world.page("root", f"{LIST}?{query.format(other=world.other_team.pk)}")
        assert "the wanted one" in shown
        assert "the common one" not in shown

    def test_list_can_be_narrowed_to_a_session(self, world: World) -> None:
        decide(world.session, why="the wanted one")
        decide(make_session(world.team), why="the other one")
        shown = world.page("mia", f"{LIST}?session__id__exact={world.session.pk}")
        assert "the wanted one" in shown
        assert "the other one" not in shown

    def test_another_team_sees_none(self, world: World) -> None:
        row = decide(world.session, why="red's own")
        assert "red&#x27;s own" not in world.page("charlie", LIST)
        assert world.get("charlie", f"{LIST}{row.pk}/change/").status_code == 404

    def test_page_shows_figures_and_what_the_links_did(self, world: World) -> None:
        applied = [
            {"link": "time_based", "ran": True, "why": "cache cold", "cleared": 3, "tokens_freed": 21_000,
             "boundary": str(world.boundary.uuid)},
            {"link": "cache_edits", "ran": False, "why": "few results", "cleared": 0, "tokens_freed": 0,
             "boundary": None},
        ]  # fmt: skip
        row = decide(world.session, outcome="applied", applied=applied, run=world.run)
        shown = world.page("vic", f"{LIST}{row.pk}/change/")
        for words in (
            row.why, "140,000", "(measured)", "cache cold", "about 21,000 tokens freed", "few results", "#m4",
            f"/admin/sessions_app/compactboundary/{world.boundary.pk}/change/",
            f"/admin/compaction_app/compactionrun/{world.run.pk}/change/",
        ):  # fmt: skip
            assert words in shown

    @pytest.mark.parametrize("outcome", list(Outcome))
    @pytest.mark.parametrize("level", list(Level))
    def test_every_outcome_and_level_has_words(self, outcome: Outcome, level: Level) -> None:
        told = decision_row(Decision(pk=1, outcome=outcome.value, level=level.value, why="so"))
        assert told.outcome == outcome.value.replace("_", " ")
        assert told.level
        assert told.badge

    def test_list_costs_the_same_for_many_rows_and_counts_nothing(
        self, world: World, django_assert_num_queries: Any
    ) -> None:
        decide(world.session)
        with django_assert_num_queries(3):  # user, teams, rows
            world.page("root", LIST)
        for _ in range(60):
            decide(make_session(world.team))
        with django_assert_num_queries(3) as captured:
            world.page("root", LIST)
        assert not any("COUNT(" in entry["sql"] for entry in captured.captured_queries)
