"""The cast: Root sees everything; Alice owns, Mia is a member, Vic a viewer of one team; Charlie is of another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.test import Client

from compaction_app import actions
from compaction_app.models import CompactionRun
from sessions_app.models import CompactBoundary, Membership, Session, Team
from sessions_app.transcript.boundary import ClearedResult
from tests.factories import NOW, append, make_session, make_team, turns


@dataclass
class World:
    team: Team
    other_team: Team
    session: Session
    run: CompactionRun
    boundary: CompactBoundary
    clients: dict[str, Client]

    def get(self, who: str, path: str) -> Any:
        return self.clients[who].get(path)

    def compact(self, session: Session) -> CompactionRun:
        return actions.compact_now(session=session, wanted=actions.Wanted(), now=NOW, listener=lambda stage, part: None)

    def page(self, who: str, path: str) -> str:
        answer = self.get(who, path)
        assert answer.status_code == 200, answer.status_code
        return str(answer.content.decode())


@pytest.fixture(autouse=True)
def empty_cache() -> None:
    cache.clear()


@pytest.fixture
def sessions_in_cookies(settings: Any) -> None:
    """A login without a row, so that a page's queries are the page's."""
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"


def make_client(name: str, *, superuser: bool = False, team: Team | None = None, role: str = "") -> Client:
    user = get_user_model().objects.create(username=name, is_staff=True, is_superuser=superuser)
    if team is not None:
        Membership.objects.create(team=team, user=user, role=role)
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def world(db: None, sessions_in_cookies: None) -> World:
    team, other = make_team("red"), make_team("blue")
    session = make_session(team, title="Fix the parser", external_id="ext-1")
    append(session, *turns(20, size=2_000))
    run = actions.compact_now(
        session=session, wanted=actions.Wanted(instructions="keep names"), now=NOW, listener=lambda stage, part: None
    )
    assert run.boundary is not None, run.detail
    session.refresh_from_db()
    clients = {
        "root": make_client("root", superuser=True),
        "alice": make_client("alice", team=team, role=Membership.Role.OWNER),
        "mia": make_client("mia", team=team, role=Membership.Role.MEMBER),
        "vic": make_client("vic", team=team, role=Membership.Role.VIEWER),
        "charlie": make_client("charlie", team=other, role=Membership.Role.OWNER),
    }
    return World(team=team, other_team=other, session=session, run=run, boundary=run.boundary, clients=clients)


def clear_results(session: Session, *ids: str, **values: Any) -> CompactBoundary:
    """A microcompact boundary at the session's end that clears the results with these ids."""
    calls = {call.tool_use_id: call for call in session.tool_calls.filter(tool_use_id__in=ids)}
    given: dict[str, Any] = {
        "kind": "microcompact",
        "trigger": "prepare",
        "covers_to": session.last_position,
        "committed_at_position": session.last_position,
        "cleared_tool_use_ids": list(ids),
        "cleared_results": [
            ClearedResult(
                tool_use_id=one,
                tool=calls[one].name,
                position=calls[one].result_position or 0,
                tokens_freed=1_000,
                reason="cache cold: idle 400 s of 300 s",
            ).as_json()
            for one in ids
        ],
        "why": "cache cold: idle 400 s of 300 s; the newest 5 stay",
        "tokens_before": 90_000,
        "tokens_after": 60_000,
        "created_at": NOW,
    }
    return CompactBoundary.objects.create(session=session, **(given | values))


def history(session: Session, query: str = "") -> str:
    return f"/admin/sessions_app/session/{session.pk}/history/{query}"
