"""What the admin changes: always by POST, only by who may, and through the actions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

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


class TestReadOnly:
    @pytest.mark.parametrize(
        "model",
        [
            "sessions_app/session",
            "sessions_app/compactboundary",
            "compaction_app/compactionrun",
            "compaction_app/telemetryevent",
        ],
    )
    def test_nothing_is_added_changed_or_deleted(self, world: World, model: str) -> None:
        client = world.clients["root"]
        assert client.get(f"/admin/{model}/add/").status_code == 403
        assert client.post(f"/admin/{model}/{world.session.pk}/delete/", {"post": "yes"}).status_code in (403, 404)


class TestTeams:
    def save(self, world: World, overrides: Any, who: str = "root") -> Any:
        form = {
            "name": "Red",
            "slug": "red",
            "policy_overrides": json.dumps(overrides),
            "memberships-TOTAL_FORMS": "0",
            "memberships-INITIAL_FORMS": "0",
        }
        return world.clients[who].post(f"/admin/sessions_app/team/{world.team.pk}/change/", form)

    def test_overrides_are_saved(self, world: World) -> None:
        assert self.save(world, {"auto_compact_pct": 80}).status_code == 302
        world.team.refresh_from_db()
        assert world.team.policy_overrides == {"auto_compact_pct": 80}
        assert "<td>team</td>" in world.page("root", f"/admin/sessions_app/team/{world.team.pk}/change/")

    @pytest.mark.parametrize(
        ("overrides", "message"),
        [
            (
                {"auto_compact_pct": 101, "nonsense": 1},
                ["auto_compact_pct=101: allowed is 1 to 100", "nonsense: no such"],
            ),
            ({"compaction_enabled": "no"}, ["allowed is true or false"]),
            ([1], ["An object is needed"]),
        ],
    )
    def test_overrides_are_checked_with_clear_words(self, world: World, overrides: Any, message: list[str]) -> None:
        shown = self.save(world, overrides).content.decode()
        for part in message:
            assert part in shown
        world.team.refresh_from_db()
        assert world.team.policy_overrides == {}

    def test_only_superusers_change_them(self, world: World) -> None:
        assert self.save(world, {"auto_compact_pct": 80}, who="alice").status_code == 403
        assert world.clients["alice"].get("/admin/sessions_app/team/add/").status_code == 403

    def test_members_are_added_on_the_page(self, world: World, django_user_model: Any) -> None:
        new = django_user_model.objects.create(username="new")
        form = {
            "name": "Green",
            "slug": "green",
            "policy_overrides": "{}",
            "memberships-TOTAL_FORMS": "1",
            "memberships-INITIAL_FORMS": "0",
            "memberships-0-user": new.pk,
            "memberships-0-role": "viewer",
        }
        assert world.clients["root"].post("/admin/sessions_app/team/add/", form).status_code == 302
        assert Membership.objects.get(user=new).team == Team.objects.get(slug="green")

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

    def revoke(self, world: World, who: str, row: ApiKey) -> Any:
        form = {"action": "revoke", "_selected_action": [row.pk]}
        return world.clients[who].post("/admin/sessions_app/apikey/", form, follow=True)

    def test_is_revoked_by_post(self, world: World) -> None:
        row, key = create_api_key(team=world.team, name="old")
        assert "1 key revoked" in self.revoke(world, "alice", row).content.decode()
        assert key_owner(key=key, now=NOW) is None

    @pytest.mark.parametrize("who", ["mia", "vic", "charlie"])
    def test_is_not_revoked_by_others(self, world: World, who: str) -> None:
        row, key = create_api_key(team=world.team, name="old")
        self.revoke(world, who, row)
        assert key_owner(key=key, now=NOW) is not None
