"""Every page opens, says what it should, and shows nobody another team's rows."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone
from django.utils.html import escape

from compaction_app.admin.clearing import MOST_ROWS
from compaction_app.models import TelemetryEvent, TranscriptImport
from sessions_app.models import ApiKey, CompactBoundary, Erasure
from sessions_app.services.teams import create_api_key
from tests.admin.conftest import World, clear_results, history
from tests.factories import append, make_session, turns

LISTS = [
    "/admin/",
    "/admin/sessions_app/session/",
    "/admin/sessions_app/compactboundary/",
    "/admin/compaction_app/compactionrun/",
    "/admin/compaction_app/telemetryevent/",
    "/admin/compaction_app/decision/",
    "/admin/compaction_app/transcriptimport/",
    "/admin/sessions_app/erasure/",
    "/admin/sessions_app/team/",
    "/admin/sessions_app/apikey/",
]
SUPERUSER_PAGES = [
    "/admin/sessions_app/team/add/",
    "/admin/sessions_app/apikey/add/",
    "/admin/auth/user/",
    "/admin/auth/user/add/",
    "/admin/auth/group/",
]


def row_pages(world: World) -> list[str]:
    event = TelemetryEvent.objects.get()
    key = ApiKey.objects.filter(team=world.team).first() or create_api_key(team=world.team, name="ci")[0]
    session = f"/admin/sessions_app/session/{world.session.pk}"
    now = timezone.now()
    imported = TranscriptImport.objects.create(
        team=world.team,
        name="<blink>.jsonl",
        format="auto",
        size_bytes=1,
        status="succeeded",
        queued_at=now,
        sessions=[
            {"id": str(world.session.uuid), "messages": 1, "duplicates": 0, "entries": 0, "boundaries": 0},
            {"id": str(uuid4()), "messages": 1, "duplicates": 0, "entries": 0, "boundaries": 0},
        ],
        problems=[{"line": 2, "reason": "<blink>", "kept": False}],
        problem_count=1,
    )
    erased = Erasure.objects.create(
        team=world.team, session_uuid=uuid4(), erased_by="<blink>", messages=1, boundaries=0, at=now
    )
    return [
        f"/admin/compaction_app/transcriptimport/{imported.pk}/change/",
        f"/admin/sessions_app/erasure/{erased.pk}/change/",
        f"{session}/history/",
        f"{session}/messages/2/",
        f"{session}/policy/",
        f"/admin/sessions_app/compactboundary/{world.boundary.pk}/change/",
        f"/admin/compaction_app/compactionrun/{world.run.pk}/change/",
        f"/admin/compaction_app/telemetryevent/{event.pk}/change/",
        f"/admin/sessions_app/team/{world.team.pk}/change/",
        f"/admin/sessions_app/apikey/{key.pk}/change/",
    ]


class TestPages:
    @pytest.mark.parametrize("path", [*LISTS, *SUPERUSER_PAGES])
    def test_open_for_a_superuser(self, world: World, path: str) -> None:
        world.page("root", path)

    def test_of_a_row_open_for_its_team(self, world: World) -> None:
        for path in row_pages(world):
            for who in ("root", "alice", "mia", "vic"):
                assert "<blink>" not in world.page(who, path)

    def test_of_a_row_are_not_found_by_another_team(self, world: World) -> None:
        session = f"/admin/sessions_app/session/{world.session.pk}"
        for path in [*row_pages(world), f"{session}/change/", f"{session}/jump/?to=1"]:
            assert world.get("charlie", path).status_code == 404, path

    @pytest.mark.parametrize("path", LISTS)
    def test_lists_show_only_the_own_team(self, world: World, path: str) -> None:
        create_api_key(team=world.team, name="reds own key")
        now = timezone.now()
        TranscriptImport.objects.create(
            team=world.team,
            name="reds<blink>.jsonl",
            format="auto",
            size_bytes=1,
            status="failed",
            detail="x",
            queued_at=now,
        )
        Erasure.objects.create(
            team=world.team, session_uuid=uuid4(), erased_by="reds owner", messages=1, boundaries=0, at=now
        )
        assert "<blink>" not in world.page("root", path)
        shown = world.page("charlie", path)
        for secret in ("Fix the parser", "reds own key", "Red", "reds"):
            assert secret not in shown
        world.page("vic", path)

    def test_filters_name_only_the_own_team(self, world: World) -> None:
        assert "Blue" not in world.page("alice", "/admin/sessions_app/session/")
        assert "Red" in world.page("alice", "/admin/sessions_app/session/")

    def test_need_staff(self, world: World, client: Any, django_user_model: Any) -> None:
        client.force_login(django_user_model.objects.create(username="nobody"))
        assert client.get(history(world.session)).status_code == 302

    def test_unknown_rows_are_not_found(self, world: World) -> None:
        for path in ("session/999/history/", "session/x/change/", "compactboundary/999/change/"):
            assert world.get("root", f"/admin/sessions_app/{path}").status_code == 404


class TestSessionList:
    def test_shows_fill_with_its_basis_and_the_last_run(self, world: World) -> None:
        shown = world.page("root", "/admin/sessions_app/session/")
        assert "Fix the parser" in shown
        assert f"{world.session.context_tokens:,} tokens" in shown
        assert "estimated" in shown
        assert f'href="/admin/compaction_app/compactionrun/{world.run.pk}/change/">succeeded' in shown
        assert f'href="{history(world.session)}' in shown

    def test_finds_by_title_external_id_and_uuid(self, world: World) -> None:
        make_session(world.team, title="Something else")
        for wanted in ("parser", "ext-1", str(world.session.uuid), world.session.uuid.hex):
            shown = world.page("root", f"/admin/sessions_app/session/?q={wanted}")
            assert "Fix the parser" in shown, wanted
            assert "Something else" not in shown, wanted

    def test_filters(self, world: World) -> None:
        make_session(world.other_team, title="Something else", model="claude-opus-4-8", source="import")
        for query in (f"team={world.team.pk}", "model=claude-sonnet-4-5", "source=api"):
            shown = world.page("root", f"/admin/sessions_app/session/?{query}")
            assert "Fix the parser" in shown, query
            assert "Something else" not in shown, query

    @pytest.mark.parametrize(
        "query", ["team=x", "team=" + "9" * 30, "model=%00", "q=%00", "_facets=True", "p=99999999"]
    )
    def test_nonsense_in_the_address_does_no_harm(self, world: World, query: str) -> None:
        answer = world.get("root", f"/admin/sessions_app/session/?{query}")
        assert answer.status_code == 200

    def test_says_what_to_do_when_there_is_nothing(self, world: World) -> None:
        assert "No sessions yet" in world.page("charlie", "/admin/sessions_app/session/")

    def test_survives_an_override_that_is_not_allowed(self, world: World) -> None:
        world.team.policy_overrides = {"nonsense": 1}
        world.team.save()
        assert "nonsense: no such figure" in world.page("root", "/admin/sessions_app/session/")
        assert "nonsense: no such figure" in world.page("root", history(world.session))

    def test_costs_the_same_for_many_rows(self, world: World, django_assert_num_queries: Any) -> None:
        # user, is anything there, three filters (team, model, source), the rows
        with django_assert_num_queries(6):
            world.page("root", "/admin/sessions_app/session/")
        for number in range(30):
            make_session(world.team, title=f"s{number}")
        with django_assert_num_queries(6):
            world.page("root", "/admin/sessions_app/session/")


class TestOtherLists:
    @pytest.mark.parametrize(
        ("path", "queries"),
        [
            ("/admin/sessions_app/compactboundary/", 3),  # user, teams, rows
            ("/admin/compaction_app/compactionrun/", 3),  # user, teams, rows
            ("/admin/compaction_app/telemetryevent/", 4),  # user, teams, names, rows
        ],
    )
    def test_cost_the_same_for_many_rows(
        self, world: World, path: str, queries: int, django_assert_num_queries: Any
    ) -> None:
        with django_assert_num_queries(queries):
            world.page("root", path)
        for number in range(3):
            session = make_session(world.team, title=f"s{number}")
            append(session, *turns(12, start=100 * number, size=2_000))
            world.compact(session)
        with django_assert_num_queries(queries):
            world.page("root", path)

    def test_can_be_narrowed_to_a_session(self, world: World) -> None:
        for path in ("sessions_app/compactboundary", "compaction_app/compactionrun"):
            assert "Fix the parser" in world.page("root", f"/admin/{path}/?session__id__exact={world.session.pk}")
            assert "Fix the parser" not in world.page("root", f"/admin/{path}/?session__id__exact=999")


class TestBoundaryPage:
    def test_shows_numbers_sections_and_place(self, world: World) -> None:
        shown = world.page("root", f"/admin/sessions_app/compactboundary/{world.boundary.pk}/change/")
        assert f"{world.boundary.tokens_before:,} → {world.boundary.tokens_after:,}" in shown
        assert "<summary>Primary Request and Intent</summary>" in shown
        assert "keep names" in shown
        assert f"#m{world.boundary.covers_to}" in shown
        assert f"/admin/compaction_app/compactionrun/{world.run.pk}/change/" in shown
        assert "counted by the provider" not in shown

    def test_shows_the_exact_count_once_it_is_there(self, world: World) -> None:
        CompactBoundary.objects.update(tokens_after_exact=4_321)
        shown = world.page("root", f"/admin/sessions_app/compactboundary/{world.boundary.pk}/change/")
        assert "4,321 tokens" in shown
        assert "counted by the provider" in shown

    def test_of_cleared_results_says_what_why_and_how(self, world: World) -> None:
        session = make_session(world.team)
        append(session, *turns(4, size=2_000))
        boundary = clear_results(session, "c0", "c1", clearing="api_edit", tokens_after_exact=61_234)
        shown = world.page("vic", f"/admin/sessions_app/compactboundary/{boundary.pk}/change/")
        for words in (
            boundary.why,
            "edits by which the API leaves them out",
            "2 results, about 2,000 tokens",
            "61,234 tokens",
            f"{history(session)}?after=0#m7",
            '<code class="ca-break">c1</code>',
            "≈1,000",
            'data-label="Reason">cache cold: idle 400 s of 300 s</td>',
        ):
            assert words in shown
        for words in ("Summarizer", "Kept messages", "Covers"):
            assert words not in shown

    def test_lists_a_bounded_number_of_results(self, world: World) -> None:
        row = {"tool_use_id": "c", "tool": "<b>Read</b>", "position": 3, "tokens_freed": 1, "reason": "r"}
        boundary = clear_results(world.session, cleared_results=[row] * (MOST_ROWS + 7))
        shown = world.page("vic", f"/admin/sessions_app/compactboundary/{boundary.pk}/change/")
        assert "7 more are not listed" in shown
        assert "<b>Read" not in shown

    @pytest.mark.parametrize("rows", [[None], [{}], [{"position": "x", "tokens_freed": None}], ["a"]])
    def test_odd_rows_do_no_harm(self, world: World, rows: list[Any]) -> None:
        boundary = clear_results(world.session, cleared_results=rows)
        world.page("vic", f"/admin/sessions_app/compactboundary/{boundary.pk}/change/")
        world.page("vic", history(world.session, "?after=50"))


class TestRunPage:
    def path(self, world: World) -> str:
        return f"/admin/compaction_app/compactionrun/{world.run.pk}/change/"

    def test_shows_steps_with_why(self, world: World) -> None:
        shown = world.page("root", self.path(world))
        steps = list(world.run.steps.all())
        assert [step.link for step in steps] == ["session_memory", "time_based", "cache_edits", "full"]
        assert {step.ran for step in steps} == {True, False}
        for step in steps:
            assert escape(step.why) in shown
            assert f"{'ran' if step.ran else 'passed'}</span> <b>{step.link.replace('_', ' ')}</b>" in shown
        assert 'data-active="no"' in shown
        assert f"/admin/sessions_app/compactboundary/{world.boundary.pk}/change/" in shown

    def test_shows_why_it_failed(self, world: World) -> None:
        session = make_session(world.team)
        run = world.compact(session)
        shown = world.page("root", f"/admin/compaction_app/compactionrun/{run.pk}/change/")
        assert run.get_failure_reason_display() in shown
        assert run.detail in shown
