"""What the admin changes: always by POST, only by who may, and through the actions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils import timezone

from compaction_app.models import CompactionRun, RunStatus
from sessions_app.models import ApiKey, Membership, Team
from sessions_app.models.teams import key_digest
from sessions_app.services.teams import create_api_key, key_owner
from tests.admin.conftest import World, history
from tests.factories import NOW, append, user


class TestCompactNow:
    def path(self, world: World) -> str:
        return f"/admin/sessions_app/session/{world.session.pk}/compact/"

    def test_queues_a_run_and_shows_it(self, world: World) -> None:
        append(world.session, user("something new"))
        answer = world.clients["mia"].post(self.path(world), {"instructions": "mind the tests"})
        run = CompactionRun.objects.latest("pk")
        assert (run.status, run.instructions, run.requested_by.username) == ("queued", "mind the tests", "mia")  # type: ignore[union-attr]
        assert answer.headers["Location"] == f"/admin/compaction_app/compactionrun/{run.pk}/change/"
        shown = world.page("mia", answer.headers["Location"])
        assert "Compaction queued" in shown
        assert 'data-active="yes"' in shown

    def test_says_when_there_is_nothing_to_compact(self, world: World) -> None:
        answer = world.clients["mia"].post(self.path(world), follow=True)
        assert "Nothing to compact" in answer.content.decode()
        assert CompactionRun.objects.count() == 1

    def test_get_changes_nothing(self, world: World) -> None:
        assert world.get("root", self.path(world)).status_code == 405
        assert CompactionRun.objects.count() == 1

    def test_needs_the_token(self, world: World) -> None:
        client = Client(enforce_csrf_checks=True)
        client.cookies = world.clients["root"].cookies
        assert client.post(self.path(world)).status_code == 403
        assert CompactionRun.objects.count() == 1

    def test_a_viewer_may_not(self, world: World) -> None:
        assert world.clients["vic"].post(self.path(world)).status_code == 403
        assert "Compact now" not in world.page("vic", history(world.session))
        assert "Compact now" in world.page("mia", history(world.session))
        assert CompactionRun.objects.count() == 1

    def test_another_team_may_not(self, world: World) -> None:
        assert world.clients["charlie"].post(self.path(world)).status_code == 404
        assert CompactionRun.objects.count() == 1

    def test_an_active_run_is_shown_instead(self, world: World) -> None:
        active = CompactionRun.objects.create(
            session=world.session, trigger="auto", status=RunStatus.QUEUED, queued_at=NOW
        )
        answer = world.clients["root"].post(self.path(world), follow=True)
        assert answer.redirect_chain == [(f"/admin/compaction_app/compactionrun/{active.pk}/change/", 302)]
        assert "has a run already" in answer.content.decode()

    def test_too_long_instructions_are_refused(self, world: World) -> None:
        answer = world.clients["root"].post(self.path(world), {"instructions": "x" * 4_001}, follow=True)
        assert "longer than 4,000" in answer.content.decode()
        assert CompactionRun.objects.count() == 1

    def test_a_scope_that_comes_late_costs_no_compaction(self, world: World) -> None:
        append(world.session, user("something new"))
        answer = world.clients["root"].post(self.path(world), {"instructions": "keep up_to:u1"}, follow=True)
        assert "Nothing was asked for: A scope (up_to: or from:) comes first" in answer.content.decode()
        assert CompactionRun.objects.count() == 1


class TestReadOnly:
    @pytest.mark.parametrize(
        "model",
        [
            "sessions_app/session",
            "sessions_app/compactboundary",
            "compaction_app/compactionrun",
            "compaction_app/telemetryevent",
            "compaction_app/decision",
        ],
    )
    def test_nothing_is_added_changed_or_deleted(self, world: World, model: str) -> None:
        client = world.clients["root"]
        assert client.get(f"/admin/{model}/add/").status_code == 403
        assert client.post(f"/admin/{model}/{world.session.pk}/delete/", {"post": "yes"}).status_code in (403, 404)


class TestTeams:
    def save(self, world: World, who: str = "root", **figures: str) -> Any:
        form = {
            "name": "Red",
            "slug": "red",
            **{f"policy-{name}": value for name, value in figures.items()},
            "memberships-TOTAL_FORMS": "0",
            "memberships-INITIAL_FORMS": "0",
        }
        return world.clients[who].post(f"/admin/sessions_app/team/{world.team.pk}/change/", form)

    def test_overrides_are_saved_in_their_own_types(self, world: World) -> None:
        answer = self.save(
            world,
            auto_compact_pct="80",
            auto_compact_enabled="no",
            least_freed_share="0.1",
            cache_edit_dialect="cache_edits",
            compactable_tools="mcp__*: yes\n Agent : No \n\n",
        )
        assert answer.status_code == 302
        world.team.refresh_from_db()
        assert world.team.policy_overrides == {
            "auto_compact_pct": 80,
            "auto_compact_enabled": False,
            "least_freed_share": 0.1,
            "cache_edit_dialect": "cache_edits",
            "compactable_tools": {"mcp__*": True, "Agent": False},
        }
        # What is shown again saves the same.
        shown = world.page("root", f"/admin/sessions_app/team/{world.team.pk}/change/")
        assert 'name="policy-auto_compact_pct" value="80"' in shown
        assert '<option value="no" selected>no</option>' in shown
        assert "Agent: no\nmcp__*: yes</textarea>" in shown

    def test_an_empty_input_takes_an_override_back(self, world: World) -> None:
        world.team.policy_overrides = {"auto_compact_pct": 80}
        world.team.save()
        assert self.save(world, auto_compact_pct="").status_code == 302
        world.team.refresh_from_db()
        assert world.team.policy_overrides == {}

    def test_nothing_is_saved_where_one_figure_is_bad_and_no_input_is_lost(self, world: World) -> None:
        answer = self.save(world, auto_compact_pct="101", warning_buffer_tokens="30000", extract_quote_chars="3")
        shown = answer.content.decode()
        assert answer.status_code == 200
        assert '<ul class="ca-problem" id="id_policy-auto_compact_pct_error">' in shown
        assert shown.count('class="errornote') == 0, "the theme's boxes name no field"
        for name, told in (
            ("auto_compact_pct", "=101: allowed is 1 to 100"),
            ("extract_quote_chars", "=3: allowed is"),
        ):
            assert f'<li><a class="ca-link" href="#id_policy-{name}">{name}{told}' in shown
        assert 'name="policy-warning_buffer_tokens" value="30000"' in shown
        assert '<details class="ca-policy ca-more" open>' in shown  # the bad one among the rest is not hidden
        world.team.refresh_from_db()
        assert world.team.policy_overrides == {}

    def test_a_bad_name_saves_no_figure(self, world: World) -> None:
        form = {"name": "", "slug": "red", "policy-auto_compact_pct": "80"}
        form |= {"memberships-TOTAL_FORMS": "0", "memberships-INITIAL_FORMS": "0"}
        shown = world.clients["root"].post(f"/admin/sessions_app/team/{world.team.pk}/change/", form).content.decode()
        assert 'name="policy-auto_compact_pct" value="80"' in shown
        assert '<a class="ca-link" href="#id_name">Name: This field is required.</a>' in shown
        world.team.refresh_from_db()
        assert (world.team.name, world.team.policy_overrides) == ("Red", {})

    def test_a_stored_name_that_is_no_figure_is_told_and_taken_out(self, world: World) -> None:
        world.team.policy_overrides = {"nonsense": 1, "auto_compact_pct": 80}
        world.team.save()
        assert "no figure of the table: nonsense" in world.page(
            "root", f"/admin/sessions_app/team/{world.team.pk}/change/"
        )
        self.save(world, auto_compact_pct="80")
        world.team.refresh_from_db()
        assert world.team.policy_overrides == {"auto_compact_pct": 80}

    def test_the_log_of_changes_names_the_figure(self, world: World) -> None:
        self.save(world, auto_compact_pct="80")
        assert "figure auto_compact_pct" in LogEntry.objects.latest("pk").change_message

    def test_only_superusers_change_them(self, world: World) -> None:
        assert self.save(world, who="alice", auto_compact_pct="80").status_code == 403
        assert world.clients["alice"].get("/admin/sessions_app/team/add/").status_code == 403
        shown = world.page("alice", f"/admin/sessions_app/team/{world.team.pk}/change/")
        assert 'name="policy-' not in shown
        assert "<code>auto_compact_pct</code>" in shown

    def test_all_that_was_refused_is_told_in_one_list(self, world: World, django_user_model: Any) -> None:
        new = django_user_model.objects.create(username="new")
        form = {"name": "Red", "slug": "no slug", "policy-auto_compact_pct": "101"}
        form |= {"memberships-TOTAL_FORMS": "3", "memberships-INITIAL_FORMS": "0"}
        for number, role in enumerate(("viewer", "owner", "emperor")):
            form |= {f"memberships-{number}-user": new.pk, f"memberships-{number}-role": role}
        shown = world.clients["root"].post(f"/admin/sessions_app/team/{world.team.pk}/change/", form).content.decode()
        told = shown.partition("data-problems")[2].partition("</ul>")[0]
        links = [part.partition('"')[0] for part in told.split('href="#')[1:]]
        assert links == [
            "id_slug",
            "id_memberships-1-user",  # the same one as in the first row
            "id_memberships-2-role",
            "memberships-group",  # the same again, told of the rows together
            "id_policy-auto_compact_pct",
        ]
        assert not world.team.memberships.filter(user=new).exists()

    def test_members_are_added_on_the_page(self, world: World, django_user_model: Any) -> None:
        new = django_user_model.objects.create(username="new")
        form = {
            "name": "Green",
            "slug": "green",
            "policy-auto_compact_pct": "80",
            "memberships-TOTAL_FORMS": "1",
            "memberships-INITIAL_FORMS": "0",
            "memberships-0-user": new.pk,
            "memberships-0-role": "viewer",
        }
        assert world.clients["root"].post("/admin/sessions_app/team/add/", form).status_code == 302
        team = Team.objects.get(slug="green")
        assert Membership.objects.get(user=new).team == team
        assert team.policy_overrides == {"auto_compact_pct": 80}

    def test_nobody_deletes_one(self, world: World) -> None:
        path = f"/admin/sessions_app/team/{world.team.pk}/delete/"
        assert world.clients["root"].post(path, {"post": "yes"}).status_code == 403


class TestApiKeys:
    ADD = "/admin/sessions_app/apikey/add/"

    def test_is_shown_once(self, world: World) -> None:
        form = {"team": world.team.pk, "name": "ci", "scope": "read"}
        shown = world.clients["alice"].post(self.ADD, form, follow=True).content.decode()
        row = ApiKey.objects.get(name="ci")
        key = shown.partition("not shown again: ")[2].partition("<")[0].strip()
        assert key_digest(key=key) == row.digest
        owner = key_owner(key=key, now=NOW)
        assert owner is not None
        assert (owner.team, owner.scope) == (world.team, "read")
        assert key not in world.page("alice", "/admin/sessions_app/apikey/")
        assert row.hint in world.page("alice", "/admin/sessions_app/apikey/")

    def test_an_owner_makes_them_for_the_own_team_only(self, world: World) -> None:
        world.clients["alice"].post(self.ADD, {"team": world.other_team.pk, "name": "x", "scope": "read"})
        assert not ApiKey.objects.exists()

    @pytest.mark.parametrize("who", ["mia", "vic"])
    def test_others_make_none(self, world: World, who: str) -> None:
        form = {"team": world.team.pk, "name": "x", "scope": "read"}
        assert world.clients[who].post(self.ADD, form).status_code == 403
        assert not ApiKey.objects.exists()

    def test_may_end_by_itself(self, world: World) -> None:
        form = {
            "team": world.team.pk,
            "name": "ci",
            "scope": "read",
            "expires_at_0": "2999-01-31",
            "expires_at_1": "12:00",
        }
        assert world.clients["alice"].post(self.ADD, form).status_code == 302
        assert ApiKey.objects.get().expires_at == datetime(2999, 1, 31, 12, tzinfo=UTC)

    def test_is_not_made_to_have_ended_already(self, world: World) -> None:
        form = {
            "team": world.team.pk,
            "name": "ci",
            "scope": "read",
            "expires_at_0": "2020-01-31",
            "expires_at_1": "12:00",
        }
        assert "has passed" in world.clients["alice"].post(self.ADD, form).content.decode()
        assert not ApiKey.objects.exists()

    @pytest.mark.parametrize("state", ["active", "expired", "revoked"])
    def test_are_found_by_their_state(self, world: World, state: str) -> None:
        create_api_key(team=world.team, name="key-active", expires_at=timezone.now() + timedelta(days=1))
        create_api_key(team=world.team, name="key-expired", expires_at=timezone.now() - timedelta(days=1))
        both, _ = create_api_key(team=world.team, name="key-revoked", expires_at=timezone.now() - timedelta(days=1))
        ApiKey.objects.filter(pk=both.pk).update(revoked_at=timezone.now())
        shown = world.page("alice", f"/admin/sessions_app/apikey/?state={state}")
        names = {name for name in ("key-active", "key-expired", "key-revoked") if name in shown}
        assert names == {f"key-{state}"}
        assert world.page("alice", "/admin/sessions_app/apikey/?state=%00x")

    def revoke(self, world: World, who: str, row: ApiKey, **more: str) -> Any:
        form = {"action": "revoke", "_selected_action": [row.pk], **more}
        return world.clients[who].post("/admin/sessions_app/apikey/", form, follow=True)

    def test_is_revoked_once_somebody_has_confirmed_it(self, world: World) -> None:
        row, key = create_api_key(team=world.team, name="<b>old")
        asked = self.revoke(world, "alice", row).content.decode()
        assert "Revoke this key?" in asked
        assert "&lt;b&gt;old" in asked
        assert key_owner(key=key, now=NOW) is not None
        assert "1 key revoked" in self.revoke(world, "alice", row, confirmed="yes").content.decode()
        assert key_owner(key=key, now=NOW) is None
        assert "nothing to revoke" in self.revoke(world, "alice", row).content.decode()

    def test_is_not_revoked_by_a_link(self, world: World) -> None:
        row, key = create_api_key(team=world.team, name="old")
        query = f"?action=revoke&confirmed=yes&_selected_action={row.pk}"
        world.clients["alice"].get(f"/admin/sessions_app/apikey/{query}")
        assert key_owner(key=key, now=NOW) is not None

    @pytest.mark.parametrize("who", ["mia", "vic", "charlie"])
    def test_is_not_revoked_by_others(self, world: World, who: str) -> None:
        row, key = create_api_key(team=world.team, name="old")
        self.revoke(world, who, row, confirmed="yes")
        assert key_owner(key=key, now=NOW) is not None
