"""GET sessions/{id}/token-state/."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.models import Session
from tests.api.queries import queries_of
from tests.cast import Api, Cast
from tests.factories import append, assistant, make_session, user


def state_at(api: Api, session: Session, tokens: int) -> dict[str, Any]:
    usage = {"input_tokens": tokens - 1, "output_tokens": 1}
    append(session, user("go"), assistant("", usage=usage, message_id="m"))
    return api.read(f"sessions/{session.uuid}/token-state/").json()


class TestTokenState:
    def test_it_works(self, api: Api, session: Session) -> None:
        assert state_at(api, session, 120_000) == {
            "context_tokens": 120_000,
            "source": "usage",
            "context_window": 200_000,
            "effective_window": 180_000,
            "warning_threshold": 160_000,
            "error_threshold": 160_000,
            "auto_compact_threshold": 167_000,
            "percent_left": 28,
            "level": "ok",
            "auto_compact_enabled": True,
            "origins": {},
        }

    @pytest.mark.parametrize(
        ("tokens", "level"), [(159_000, "ok"), (160_000, "error"), (167_000, "auto_compact"), (900_000, "auto_compact")]
    )
    def test_levels(self, api: Api, session: Session, tokens: int, level: str) -> None:
        append(session, user("x " * 80_000))
        session.overhead_measured, session.overhead_due = True, False
        session.save()
        assert state_at(api, session, tokens)["level"] == level

    def test_it_says_who_set_a_figure(self, api: Api, cast: Cast, settings: Any) -> None:
        settings.COMPACTION_POLICY = {"context_window": 100_000, "compaction_enabled": False}
        cast.alices_team.policy_overrides = {"auto_compact_pct": 90}
        cast.alices_team.save()
        session = make_session(cast.alices_team, policy_overrides={"auto_compact_pct": 50})
        state = api.read(f"sessions/{session.uuid}/token-state/").json()
        assert state["origins"] == {
            "context_window": "environment",
            "compaction_enabled": "environment",
            "auto_compact_pct": "session",
        }
        assert (state["context_window"], state["effective_window"], state["auto_compact_threshold"]) == (
            100_000,
            80_000,
            40_000,
        )
        assert state["auto_compact_enabled"] is False, "with compaction off, nothing starts by itself"

    def test_queries(self, api: Api, session: Session) -> None:
        """key, last use, session with its team."""
        assert len(queries_of(lambda: api.read(f"sessions/{session.uuid}/token-state/"))) == 2
