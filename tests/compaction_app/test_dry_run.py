"""POST sessions/{id}/compact/ with dry_run: the plan of every kind, and nothing stored."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.utils import timezone

from compaction_app import actions
from compaction_app.models import CompactionRun
from compaction_app.services import runs
from sessions_app.models import Session
from tests.cast import Api, Cast, errors
from tests.factories import NOW, append, make_session, turns
from tests.stub_api import StubApi

pytestmark = pytest.mark.django_db
APPS = ("sessions_app", "compaction_app")


def rows() -> dict[str, list[Any]]:
    """Every row of ours, to the letter."""
    models = [model for name in APPS for model in apps.get_app_config(name).get_models()]
    return {model.__name__: list(model.objects.order_by("pk").values()) for model in models}


def plan(api: Api, session: Session, **body: Any) -> Any:
    before = rows()
    answer = api.send(f"sessions/{session.uuid}/compact/", {"dry_run": True, **body})
    assert answer.status_code == 200, answer.content
    assert rows() == before, "nothing is stored"
    return answer.json()


@pytest.fixture
def full(session: Session) -> Session:
    append(session, *turns(60, size=1_500))
    return Session.objects.select_related("team").get(pk=session.pk)


class TestEveryKind:
    def test_the_whole(self, api: Api, full: Session) -> None:
        told = plan(api, full, instructions="mind file_3")
        assert (told["kind"], told["trigger"], told["refused"], told["cut"]) == ("full", "manual", None, None)
        assert (told["summarizer"], told["model"], told["cost"]) == ("extractive", None, None)
        assert [link["link"] for link in told["links"]] == ["session_memory", "time_based", "cache_edits", "full"]
        assert told["compacted"]["messages"] + told["kept"]["messages"] == 240
        assert told["compacted"]["first"] == "u0"
        assert told["kept"]["last"] == "b59"
        assert told["tokens_after_expected"] < told["tokens_before"]

    def test_what_is_foretold_comes_true(self, api: Api, full: Session) -> None:
        told = plan(api, full)
        run = actions.compact_now(session=full, wanted=actions.Wanted(), now=NOW, listener=lambda *_: None)
        assert run.boundary
        assert run.boundary.kind == told["kind"]
        assert run.tokens_before == told["tokens_before"]
        assert run.boundary.head_uuid == told["kept"]["first"]
        assert len(told["attachments"]) == run.boundary.attachments.count()
        assert abs(run.boundary.tokens_after - told["tokens_after_expected"]) < 0.1 * run.boundary.tokens_after

    @pytest.mark.parametrize(("field", "kind"), [("up_to", "partial_up_to"), ("from", "partial_from")])
    def test_a_part(self, api: Api, full: Session, field: str, kind: str) -> None:
        told = plan(api, full, **{field: "t20"})
        assert (told["kind"], told["refused"]) == (kind, None)
        assert (told["cut"]["asked"], told["cut"]["moved"]) == ("t20", True)
        edge = told["kept"]["first"] if field == "up_to" else told["compacted"]["first"]
        assert told["cut"]["uuid"] == edge

    def test_by_memory(self, api: Api, full: Session) -> None:
        actions.put_memory(session=full, content="# Task\nMend the parser.", covers="b40", now=NOW)
        told = plan(api, full)
        assert (told["kind"], told["cost"]) == ("session_memory", None), told["links"]

    @pytest.mark.parametrize("wanted", [True, False])
    def test_that_somebody_would_have_to_consent(self, api: Api, full: Session, wanted: bool) -> None:
        Session.objects.filter(pk=full.pk).update(policy_overrides={"approve_compactions": wanted})
        assert plan(api, full)["awaits_approval"] is wanted

    def test_reactive(self, api: Api, full: Session) -> None:
        figures = {"reactive_compact": True, "context_window": 30_000, "time_based_keep_results": 200}
        Session.objects.filter(pk=full.pk).update(policy_overrides=figures)
        told = plan(api, full, mode="reactive", error="prompt is too long: 61000 tokens > 30000 maximum")
        assert (told["trigger"], told["kind"], told["refused"]) == ("reactive", "full", None)

    @pytest.mark.parametrize("name", ["anthropic", "anthropic_native"])
    def test_by_a_model_nobody_is_called_and_the_price_is_told(
        self,
        api: Api,
        full: Session,
        provider: StubApi,
        name: str,
    ) -> None:
        told = plan(api, full, summarizer=name)
        assert provider.requests == []
        assert (told["summarizer"], told["model"], told["kind"]) == (name, "claude-sonnet-4-5", "full")
        cost = told["cost"]
        assert cost["request_tokens"] > 0.9 * told["compacted"]["tokens"]
        assert 0 < float(cost["usd_expected"]) <= float(cost["usd_uncached"])

    def test_the_providers_own_is_foretold_as_it_would_be_asked(
        self, api: Api, full: Session, provider: StubApi
    ) -> None:
        """With the conversation as it is and a short instruction; not at all where a block would not come first."""
        block, own = plan(api, full, summarizer="anthropic_native"), plan(api, full, summarizer="anthropic")
        assert block["cost"]["request_tokens"] < own["cost"]["request_tokens"]
        told = plan(api, full, **{"summarizer": "anthropic_native", "from": "u20"})
        assert told["summarizer"] == "anthropic"
        assert "a block comes first" in told["links"][-1]["why"]
        assert provider.requests == []

    def test_a_command(self, api: Api, full: Session) -> None:
        assert plan(api, full, command="/compact up_to:u20 keep the SQL")["kind"] == "partial_up_to"


class TestRefusals:
    @pytest.mark.parametrize(
        ("body", "code"),
        [
            ({"up_to": "nobody"}, "unknown_uuid"),
            ({"up_to": "u0"}, "nothing_on_that_side"),
            ({"mode": "reactive"}, "reactive_compact_disabled"),
        ],
    )
    def test_it_is_part_of_the_plan(self, api: Api, full: Session, body: Any, code: str) -> None:
        told = plan(api, full, **body)
        assert (told["refused"]["code"], told["kind"]) == (code, None)
        assert told["tokens_after_expected"] == told["tokens_before"]

    @pytest.mark.parametrize("summarizer", ["anthropic", "anthropic_native"])
    def test_without_a_key_no_model_is_promised(self, api: Api, full: Session, settings: Any, summarizer: str) -> None:
        settings.ANTHROPIC_KEY_SET = False
        told = plan(api, full, summarizer=summarizer)
        assert told["links"][-1]["would_run"] is False
        assert told["refused"]["code"] == "api_error"
        assert "ANTHROPIC_API_KEY" in told["refused"]["detail"]

    def test_an_empty_session(self, api: Api, session: Session) -> None:
        assert plan(api, session)["refused"]["code"] == "nothing_to_compact"

    def test_switched_off(self, api: Api, full: Session) -> None:
        Session.objects.filter(pk=full.pk).update(policy_overrides={"compaction_enabled": False})
        assert plan(api, full)["refused"]["code"] == "compaction_disabled"

    def test_while_a_run_is_active(self, api: Api, full: Session) -> None:
        run = runs.queue_run(session=full, trigger="manual", instructions="", now=timezone.now())
        refused = plan(api, full)["refused"]
        assert refused["code"] == "active_run"
        assert str(run.uuid) in refused["detail"]

    def test_a_body_that_can_not_be_read(self, api: Api, full: Session) -> None:
        answer = api.send(f"sessions/{full.uuid}/compact/", {"dry_run": True, "command": "/compact up_to:"})
        assert (answer.status_code, errors(answer)) == (400, [("invalid", "command")])

    def test_another_team(self, cast: Cast, full: Session) -> None:
        assert cast.charlie.send(f"sessions/{full.uuid}/compact/", {"dry_run": True}).status_code == 404
        assert not CompactionRun.objects.exists()


def test_without_a_model_that_could_write(api: Api, cast: Cast, provider: StubApi) -> None:
    session = make_session(cast.alices_team, model="")
    append(session, *turns(60, size=1_500))
    assert plan(api, session, summarizer="anthropic")["refused"]["code"] == "api_error"
