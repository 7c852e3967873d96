"""hooks/: made with a secret that is shown once, changed, deleted; their log; the team's own only."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from django.utils import timezone

from compaction_app.models import Hook, HookDelivery
from compaction_app.services import hooks
from compaction_app.services.hook_setup import MOST_HOOKS
from tests.api.queries import assert_same_count, queries_of
from tests.cast import Api, Cast, errors, is_uuid
from tests.factories import make_session

URL = "https://agents.example.com/hooks"


def make(api: Api, **more: Any) -> dict[str, Any]:
    answer = api.send("hooks/", {"event": "pre_compact", "url": URL, **more})
    assert answer.status_code == 201, answer.content
    return dict(answer.json())


class TestMaking:
    def test_it_works(self, api: Api, cast: Cast) -> None:
        made = make(api, can_block=True, timeout=10, description="keeps names")
        secret = made.pop("secret")
        assert secret.startswith("whsec_")
        assert 24 <= len(base64.b64decode(secret[6:], validate=True)) <= 64
        assert is_uuid(made["id"])
        expected = {
            "event": "pre_compact",
            "url": URL,
            "description": "keeps names",
            "enabled": True,
            "can_block": True,
            "required": False,
            "timeout": 10,
        }
        assert {name: made[name] for name in expected} == expected
        assert Hook.objects.get(uuid=made["id"]).team == cast.alices_team

    def test_the_secret_is_shown_once(self, api: Api) -> None:
        made = make(api)
        path = f"hooks/{made['id']}/"
        for answer in (api.read("hooks/"), api.read(path), api.change(path, {"enabled": False})):
            assert answer.status_code == 200
            assert made["secret"] not in answer.content.decode()

    @pytest.mark.parametrize(
        ("body", "wrong"),
        [
            ({}, {("required", "event"), ("required", "url")}),
            ({"event": "compacted", "url": URL}, {("invalid_choice", "event")}),
            ({"event": "post_compact", "url": URL, "can_block": True}, {("invalid", "can_block")}),
            ({"event": "post_compact", "url": URL, "required": True}, {("invalid", "required")}),
            ({"event": "pre_compact", "url": URL, "timeout": 0}, {("min_value", "timeout")}),
            ({"event": "pre_compact", "url": URL, "timeout": 31}, {("max_value", "timeout")}),
            ({"event": "pre_compact", "url": URL, "description": "x" * 201}, {("max_length", "description")}),
            ({"event": "pre_compact", "url": URL + "x" * 2_000}, {("max_length", "url")}),
            ({"event": "pre_compact", "url": 17}, {("invalid", "url")}),
            ({"event": "pre_compact", "url": "ftp://example.com/"}, {("invalid", "url")}),
            ({"event": "pre_compact", "url": "https://me:pw@example.com/"}, {("invalid", "url")}),
            ({"event": "pre_compact", "url": "http://localhost:8000/"}, {("invalid", "url")}),
            ({"event": "pre_compact", "url": "http://169.254.169.254/"}, {("invalid", "url")}),
            ({"event": "pre_compact", "url": "http://[::ffff:10.0.0.1]/"}, {("invalid", "url")}),
            ({"event": "pre_compact", "url": URL, "secret": "whsec_x"}, {("immutable", "secret")}),
            ({"event": "pre_compact", "url": URL, "team": "x"}, {("unknown_field", "team")}),
        ],
    )
    def test_what_can_not_be(self, api: Api, body: dict[str, Any], wrong: set[tuple[str, str]]) -> None:
        answer = api.send("hooks/", body)
        assert (answer.status_code, set(errors(answer))) == (400, wrong)
        assert not Hook.objects.exists()

    def test_a_private_address_where_the_service_allows_them(self, api: Api, settings: Any) -> None:
        settings.HOOKS_ALLOW_PRIVATE_ADDRESSES = True
        assert make(api, url="http://localhost:8000/x")["url"] == "http://localhost:8000/x"

    def test_a_team_has_not_many(self, api: Api) -> None:
        for _ in range(MOST_HOOKS):
            make(api)
        answer = api.send("hooks/", {"event": "pre_compact", "url": URL})
        assert (answer.status_code, errors(answer)) == (409, [("too_many_hooks", None)])


class TestChanging:
    def test_only_what_is_given_changes(self, api: Api) -> None:
        made = make(api, timeout=10)
        path = f"hooks/{made['id']}/"
        changed = api.change(path, {"enabled": False, "timeout": None}).json()
        assert (changed["enabled"], changed["timeout"], changed["url"]) == (False, None, URL)
        assert Hook.objects.get().secret == made["secret"]

    @pytest.mark.parametrize(
        ("body", "wrong"),
        [
            ({"event": "post_compact"}, [("immutable", "event")]),
            ({"secret": "x"}, [("immutable", "secret")]),
            ({"url": "http://127.1/"}, [("invalid", "url")]),
            ({"url": None}, [("null", "url")]),
        ],
    )
    def test_what_can_not_be(self, api: Api, body: dict[str, Any], wrong: list[tuple[str, str]]) -> None:
        path = f"hooks/{make(api)['id']}/"
        answer = api.change(path, body)
        assert (answer.status_code, errors(answer)) == (400, wrong)
        assert api.read(path).json()["url"] == URL

    def test_no_rights_for_one_that_is_only_told(self, api: Api) -> None:
        made = make(api, event="post_compact")
        answer = api.change(f"hooks/{made['id']}/", {"can_block": True})
        assert errors(answer) == [("invalid", "can_block")]

    def test_another_secret(self, api: Api) -> None:
        made = make(api)
        rotated = api.send(f"hooks/{made['id']}/rotate-secret/").json()
        assert rotated["secret"] == Hook.objects.get().secret != made["secret"]

    def test_deleting(self, api: Api) -> None:
        path = f"hooks/{make(api)['id']}/"
        answer = api.call("DELETE", path)
        assert (answer.status_code, answer.content) == (204, b"")
        assert api.read(path).status_code == 404
        assert api.call("DELETE", path).status_code == 404


class TestOthers:
    @pytest.mark.parametrize(
        ("method", "below"),
        [("GET", ""), ("PATCH", ""), ("DELETE", ""), ("GET", "deliveries/"), ("POST", "rotate-secret/")],
    )
    def test_another_team_finds_nothing(self, cast: Cast, method: str, below: str) -> None:
        made = make(cast.alice)
        answer = cast.charlie.call(method, f"hooks/{made['id']}/{below}", {} if method != "GET" else None)
        assert (answer.status_code, errors(answer)) == (404, [("not_found", None)])
        assert Hook.objects.get().secret == made["secret"]

    @pytest.mark.parametrize(("method", "path"), [("POST", ""), ("PATCH", "{}/"), ("DELETE", "{}/")])
    def test_a_key_that_reads_changes_nothing(self, cast: Cast, method: str, path: str) -> None:
        made = make(cast.alice)
        assert cast.reader.call(method, "hooks/" + path.format(made["id"]), {}).status_code == 403
        assert Hook.objects.get().enabled
        assert len(cast.reader.read("hooks/").json()["results"]) == 1
        assert cast.charlie.read("hooks/").json()["results"] == []


class TestDeliveries:
    def test_they_are_listed_newest_first(self, api: Api, cast: Cast) -> None:
        made = make(api, event="post_compact")
        session, now, counts = make_session(cast.alices_team), timezone.now(), []
        for number in (3, 60):
            for tokens in range(number):
                hooks.tell(event="post_compact", session=session, run=None, payload={"tokens_after": tokens}, now=now)
            counts.append(queries_of(lambda: api.read(f"hooks/{made['id']}/deliveries/")))
        assert_same_count(*counts, most=3)  # key, hook, deliveries
        page = api.read(f"hooks/{made['id']}/deliveries/").json()
        assert [row["payload"]["data"]["tokens_after"] for row in page["results"][:3]] == [59, 58, 57]
        newest = HookDelivery.objects.latest("pk")
        assert {**page["results"][0], "payload": None, "created_at": None, "next_try_at": None} == {
            "id": str(newest.uuid),
            "event": "post_compact",
            "session": str(session.uuid),
            "run": None,
            "status": "waiting",
            "tries": 0,
            "next_try_at": None,
            "http_status": None,
            "detail": "",
            "payload": None,
            "created_at": None,
            "finished_at": None,
        }
        assert len(api.read(page["next"]).json()["results"]) == 13

    def test_they_are_the_hooks_own(self, api: Api, cast: Cast) -> None:
        first = make(api, event="post_compact")
        hooks.tell(
            event="post_compact", session=make_session(cast.alices_team), run=None, payload={}, now=timezone.now()
        )
        second = make(api, event="post_compact")
        assert len(api.read(f"hooks/{first['id']}/deliveries/").json()["results"]) == 1
        assert api.read(f"hooks/{second['id']}/deliveries/").json()["results"] == []
