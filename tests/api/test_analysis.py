"""GET sessions/{id}/analysis/."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, given, settings

from compaction_app import actions, selectors
from compaction_app.services.clearing import light_situation
from sessions_app import selectors as transcripts
from sessions_app.models import Session
from sessions_app.services.append import append_messages
from sessions_app.services.incoming import IncomingMessage
from sessions_app.transcript.clearing import live, old_results
from tests.api.queries import assert_same_count, queries_of
from tests.build import res, thinking, use
from tests.cast import Api, Cast
from tests.factories import NOW, append, assistant, bulk_history, make_session, turns, user
from tests.functional.test_properties import HISTORY


def analysis(api: Api, session: Session) -> dict[str, Any]:
    answer = api.read(f"sessions/{session.uuid}/analysis/")
    assert answer.status_code == 200, answer.content
    return answer.json()


def adds_up(body: dict[str, Any], session: Session) -> None:
    assert body["context"]["tokens"] == session.context_tokens
    assert body["shown"]["tokens"] == session.view_tokens
    assert sum(share["tokens"] for share in body["shown"]["parts"].values()) == session.view_tokens
    whole = [body[name]["tokens"] for name in ("overhead", "shown", "difference")]
    assert sum(whole) == session.context_tokens
    overhead = body["overhead"]
    assert sum(overhead[name]["tokens"] for name in ("system", "tools", "other")) == overhead["tokens"]


class TestAnalysis:
    def test_it_works(self, api: Api, session: Session, now: Any) -> None:
        append(session, *turns(20))
        body = analysis(api, session)
        adds_up(body, session)
        assert body["context"]["source"] == "estimate"
        assert body["context"]["context_window"] == 200_000
        assert body["shown"]["messages"] == 80
        [read] = body["tools"]
        assert (read["name"], read["calls"], read["results"], read["errors"]) == ("Read", 20, 20, 0)
        assert read["percent"] == round(
            100 * (read["request_tokens"] + read["result_tokens"]) / session.context_tokens, 1
        )
        worst = body["repeated_reads"]["files"][0]
        assert (worst["reads"], worst["repeated"]) == (3, 2)
        assert body["repeated_reads"]["repeated"] == 11
        assert len(body["largest"]) == 10
        assert [(link["link"], link["would_run"]) for link in body["links"]] == [
            ("time_based", False),
            ("cache_edits", False),
        ]
        assert body["links"][0]["results"] == 15
        assert body["links"][0]["tokens"] > 0
        assert "cache warm" in body["links"][0]["why"]

    def test_after_a_compaction(self, api: Api, session: Session) -> None:
        append(session, *turns(40))
        actions.compact_now(session=session, wanted=actions.Wanted(), now=timezone.now(), listener=lambda *_: None)
        session.refresh_from_db()
        body = analysis(api, session)
        adds_up(body, session)
        assert body["shown"]["parts"]["summary"]["tokens"] > 0
        assert {row["kind"] for row in body["attachments"]} == {"file"}

    def test_cleared_results(self, api: Api, session: Session) -> None:
        append(session, *turns(20))
        actions.prepare(session=session, now=NOW + timedelta(hours=1))
        session.refresh_from_db()
        body = analysis(api, session)
        adds_up(body, session)
        assert body["cleared"]["count"] == body["tools"][0]["cleared"] == 15
        assert body["cleared"]["tokens"] > 15 * 100
        assert body["repeated_reads"]["repeated"] == 0, "a placeholder wastes nothing"

    def test_system_prompt_and_tools_apart(self, api: Api, cast: Cast) -> None:
        tools = [{"name": "Read", "description": "reads a file " * 50, "input_schema": {}}]
        session = make_session(cast.alices_team, system="You are careful. " * 50, tools=tools)
        append(session, user("go"))
        overhead = analysis(api, session)["overhead"]
        assert overhead["measured"] is False
        assert overhead["system"]["tokens"] > 100
        assert overhead["tools"]["tokens"] > 100
        usage = {"input_tokens": 120, "output_tokens": 1}
        append(session, assistant("ok", usage=usage, message_id="m"))
        body = analysis(api, session)
        adds_up(body, session)
        assert body["overhead"]["measured"] is True

    def test_an_empty_session(self, api: Api, session: Session) -> None:
        body = analysis(api, session)
        adds_up(body, session)
        assert body["shown"]["percent"] == 0
        assert body["remarks"] == []

    def test_what_was_left_by_a_rewind_is_not_counted(self, api: Api, session: Session) -> None:
        append(
            session,
            user("go", uuid="a"),
            assistant("wrong way " * 50, uuid="b", parent_uuid="a"),
            user("another way", uuid="c", parent_uuid="a"),
        )
        body = analysis(api, session)
        adds_up(body, session)
        assert body["shown"]["messages"] == 2

    def test_switched_off(self, api: Api, session: Session, settings: Any) -> None:
        settings.COMPACTION_POLICY = {"compaction_enabled": False}
        append(session, *turns(20))
        for link in analysis(api, session)["links"]:
            assert (link["would_run"], link["results"]) == (False, {"time_based": 15, "cache_edits": 17}[link["link"]])
            assert "switched off" in link["why"]

    def test_hostile_content(self, api: Api, session: Session) -> None:
        append(
            session,
            assistant([use("A", "Re\x00ad\ud800", file_path="/x\ud800"), {"type": "tool_use", "id": 7, "name": {}}]),
            user([res("A", "x" * 300), {"type": "tool_result"}, {"type": "image"}, {"type": "document", "source": 1}]),
        )
        adds_up(analysis(api, session), session)

    def test_queries(self, api: Api, cast: Cast) -> None:
        """key, session with its team, head boundary, boundaries since, messages."""
        few, many = make_session(cast.alices_team), make_session(cast.alices_team)
        bulk_history(few, count=10)
        bulk_history(many, count=1_200)
        counts = [queries_of(lambda s=one: api.read(f"sessions/{s.uuid}/analysis/")) for one in (few, many)]
        assert_same_count(*counts, most=5)


@pytest.mark.django_db
class TestLikeTheLinks:
    """The view is read item by item; the links must say what they say of the whole."""

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(history=HISTORY)
    @pytest.mark.thorough
    def test_any_history(self, history: list[IncomingMessage]) -> None:
        session = make_session(policy_overrides={"time_based_keep_results": 0, "clear_least_result_bytes": 0})
        append_messages(session_id=session.pk, incoming=history, now=NOW)
        session.refresh_from_db()
        check_links(session)

    @pytest.mark.parametrize("thinks", [True, False])
    def test_an_open_round(self, thinks: bool) -> None:
        session = make_session(policy_overrides={"time_based_keep_results": 0})
        append(session, *turns(3), user("and now?"))
        first = [thinking("hm"), use("x0")] if thinks else [use("x0")]
        append(session, assistant(first), user([res("x0")]))
        for number in range(1, 12):
            append(session, assistant([use(f"x{number}")]), user([res(f"x{number}")]))
        check_links(session)
        report = selectors.analysis(session=session, now=NOW + timedelta(hours=1))
        assert report.links[0].would_run is not thinks


def check_links(session: Session) -> None:
    policy = transcripts.effective_policy(team=session.team, session=session).policy
    now = NOW + timedelta(hours=1)
    view = transcripts.context_view(session=session)
    report = selectors.analysis(session=session, now=now)
    assert report.shown.tokens == view.tokens
    assert sum(share.tokens for share in report.shown.parts.values()) == view.tokens
    assert json.dumps(report.as_json())
    situation = light_situation(session=session, policy=policy, view=view, now=now)
    from compaction_app.engine.plan import PLANS

    for link, told in zip(PLANS[situation.trigger].links, report.links, strict=True):
        step = link.attempt(situation)
        assert (told.link, told.would_run, told.why) == (link.name, step.draft is not None, step.why)
        if step.draft:
            assert told.results == len(step.draft.cleared_results)
            assert told.tokens == sum(result.tokens_freed for result in step.draft.cleared_results)
    keep = policy.time_based_keep_results
    assert report.links[0].results == len(old_results(results=live(situation.compactable), keep=keep))
