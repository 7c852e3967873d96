"""Hooks in the admin: owners set them up, members look, other teams see nothing; secrets are shown once."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.messages import get_messages

from compaction_app.models import Hook, HookDelivery
from compaction_app.services import hooks
from compaction_app.services.hook_setup import MOST_HOOKS, create_hook
from tests.admin.conftest import World
from tests.factories import NOW, make_session

LIST = "/admin/compaction_app/hook/"
LOG = "/admin/compaction_app/hookdelivery/"
URL = "https://agents.example.com/hooks"


@pytest.fixture
def hook(world: World) -> Hook:
    return create_hook(team=world.team, event="post_compact", values={"url": URL, "description": "<b>ours</b>"})


@pytest.fixture
def delivery(world: World, hook: Hook) -> HookDelivery:
    [pk] = hooks.tell(event="post_compact", session=world.session, run=world.run, payload={"tokens_before": 9}, now=NOW)
    HookDelivery.objects.filter(pk=pk).update(detail="HTTP 503 <script>", http_status=503, tries=2)
    return HookDelivery.objects.get(pk=pk)


def form(world: World, **more: Any) -> dict[str, Any]:
    return {"team": world.team.pk, "event": "pre_compact", "url": URL, "enabled": "on", **more}


def told(answer: Any) -> str:
    return "\n".join(str(message) for message in get_messages(answer.wsgi_request))


class TestPages:
    def test_open_for_the_team_without_the_secret(self, world: World, hook: Hook, delivery: HookDelivery) -> None:
        for who in ("root", "alice", "mia", "vic"):
            for path in (LIST, f"{LIST}{hook.pk}/change/", LOG, f"{LOG}{delivery.pk}/change/"):
                shown = world.page(who, path)
                assert "agents.example.com" in shown, path
                assert hook.secret not in shown
                assert "<b>ours" not in shown
                assert "<script>" not in shown.split("HTTP 503")[-1][:20]

    def test_are_not_found_by_another_team(self, world: World, hook: Hook, delivery: HookDelivery) -> None:
        for path in (LIST, LOG):
            assert "agents.example.com" not in world.page("charlie", path)
        for path in (f"{LIST}{hook.pk}/change/", f"{LIST}{hook.pk}/delete/", f"{LOG}{delivery.pk}/change/"):
            assert world.get("charlie", path).status_code == 404, path

    def test_the_log_tells_how_it_went(self, world: World, hook: Hook, delivery: HookDelivery) -> None:
        for shown in (world.page("vic", LOG), world.page("vic", f"{LOG}{delivery.pk}/change/")):
            for wanted in ("Waiting", "503", "Fix the parser", "HTTP 503 &lt;script&gt;"):
                assert wanted in shown
        assert "tokens_before" in world.page("vic", f"{LOG}{delivery.pk}/change/")

    @pytest.mark.parametrize(("query", "found"), [("hook={}", True), ("hook=999", False), ("hook=x", False)])
    def test_the_log_of_one_hook(
        self, world: World, hook: Hook, delivery: HookDelivery, query: str, found: bool
    ) -> None:
        shown = world.page("alice", f"{LOG}?{query.format(hook.pk)}")
        assert (f"{LOG}{delivery.pk}/change/" in shown) is found

    def test_costs_the_same_for_many_rows(
        self, world: World, hook: Hook, delivery: HookDelivery, django_assert_num_queries: Any
    ) -> None:
        for number in range(20):
            session = make_session(world.team, title=f"s{number}")
            hooks.tell(event="post_compact", session=session, run=None, payload={}, now=NOW)
            create_hook(team=world.other_team, event="post_compact", values={"url": URL})
            with django_assert_num_queries(4):  # user, two filters, the rows
                world.page("root", LOG)


class TestSettingUp:
    def test_an_owner_makes_one_and_sees_its_secret_once(self, world: World) -> None:
        answer = world.clients["alice"].post(f"{LIST}add/", form(world, can_block="on", timeout="10"))
        assert answer.status_code == 302, answer.content.decode()
        made = Hook.objects.get()
        assert (made.team, made.event, made.url, made.can_block, made.timeout) == (
            world.team,
            "pre_compact",
            URL,
            True,
            10,
        )
        assert made.secret in told(answer)
        world.page("alice", LIST)
        assert made.secret not in world.page("alice", LIST)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"url": "http://127.1/"},
            {"url": "https://me:pw@example.com/"},
            {"url": ""},
            {"event": "post_compact", "required": "on"},
            {"timeout": "31"},
            {"event": "x"},
        ],
    )
    def test_what_can_not_be_is_told(self, world: World, wrong: dict[str, str]) -> None:
        answer = world.clients["alice"].post(f"{LIST}add/", form(world, **wrong))
        assert answer.status_code == 200
        assert answer.context["adminform"].form.errors
        assert not Hook.objects.exists()

    def test_not_for_another_team(self, world: World) -> None:
        answer = world.clients["alice"].post(f"{LIST}add/", form(world, team=world.other_team.pk))
        assert answer.status_code == 200
        assert not Hook.objects.exists()

    @pytest.mark.parametrize("who", ["mia", "vic"])
    def test_only_owners_change_anything(self, world: World, hook: Hook, who: str) -> None:
        before = Hook.objects.values().get()
        client = world.clients[who]
        assert client.post(f"{LIST}add/", form(world)).status_code == 403
        assert client.post(f"{LIST}{hook.pk}/change/", form(world, url="https://e.example/")).status_code == 403
        assert client.post(f"{LIST}{hook.pk}/delete/", {"post": "yes"}).status_code == 403
        client.post(LIST, {"action": "rotate", "_selected_action": [hook.pk]})
        assert Hook.objects.values().get() == before

    def test_an_owner_elsewhere_who_is_a_member_here_changes_nothing(self, world: World, hook: Hook) -> None:
        world.other_team.memberships.create(user=world.team.memberships.get(user__username="mia").user, role="owner")
        before = Hook.objects.values().get()
        client = world.clients["mia"]
        assert client.post(f"{LIST}{hook.pk}/change/", form(world)).status_code == 403
        assert client.post(f"{LIST}{hook.pk}/delete/", {"post": "yes"}).status_code == 403
        for action in ("rotate", "delete_selected"):
            client.post(LIST, {"action": action, "_selected_action": [hook.pk], "post": "yes"})
        assert Hook.objects.values().get() == before

    def test_changing(self, world: World, hook: Hook) -> None:
        answer = world.clients["alice"].post(f"{LIST}{hook.pk}/change/", {"url": URL + "/2", "description": "x"})
        assert answer.status_code == 302, answer.content.decode()
        changed = Hook.objects.get()
        assert (changed.url, changed.enabled, changed.event) == (URL + "/2", False, "post_compact")
        assert (changed.secret, changed.team) == (hook.secret, world.team)
        answer = world.clients["alice"].post(f"{LIST}{hook.pk}/change/", {"url": URL, "can_block": "on"})
        assert answer.status_code == 200

    def test_another_secret(self, world: World, hook: Hook) -> None:
        answer = world.clients["alice"].post(LIST, {"action": "rotate", "_selected_action": [hook.pk]})
        rotated = Hook.objects.get().secret
        assert rotated != hook.secret
        assert rotated in told(answer)

    @pytest.mark.parametrize("how", ["page", "list"])
    def test_deleting_takes_the_log_with_it(self, world: World, hook: Hook, delivery: HookDelivery, how: str) -> None:
        client = world.clients["alice"]
        if how == "page":
            assert "agents.example.com" in world.page("alice", f"{LIST}{hook.pk}/delete/")
            client.post(f"{LIST}{hook.pk}/delete/", {"post": "yes"})
        else:
            client.post(LIST, {"action": "delete_selected", "_selected_action": [hook.pk], "post": "yes"})
        assert not Hook.objects.exists()
        assert not HookDelivery.objects.exists()

    def test_a_team_has_not_many(self, world: World) -> None:
        for _ in range(MOST_HOOKS):
            create_hook(team=world.team, event="post_compact", values={"url": URL})
        answer = world.clients["alice"].post(f"{LIST}add/", form(world))
        assert answer.context["adminform"].form.errors
