"""GET sessions/{id}/token-state/."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache

from compaction_app.models import CompactionState
from sessions_app.models import Session
from sessions_app.selectors import MODEL_LIMITS_KEY
from tests.api.queries import assert_same_count, queries_of
from tests.cast import Api, Cast
from tests.factories import NOW, append, assistant, bulk_history, make_session, user


def state_at(api: Api, session: Session, tokens: int) -> dict[str, Any]:
    usage = {"input_tokens": tokens - 1, "output_tokens": 1}
    append(session, user("go"), assistant("", usage=usage, message_id="m"))
    return api.read(f"sessions/{session.uuid}/token-state/").json()


@pytest.fixture
def told() -> Iterator[None]:
    """What the provider told of its models: 500,000 tokens in and 10,000 out."""
    models = {"claude-tomorrow-1": [500_000, 10_000]}
    cache.set(MODEL_LIMITS_KEY, {"fetched_at": NOW.timestamp(), "models": models}, timeout=None)
    yield
    cache.delete(MODEL_LIMITS_KEY)


class TestTokenState:
    def test_it_works(self, api: Api, session: Session) -> None:
        assert state_at(api, session, 120_000) == {
            "context_tokens": 120_000,
            "source": "usage",
            "context_window": 200_000,
            "window_source": "table",
            "model_assumed": False,
            "effective_window": 180_000,
            "warning_threshold": 160_000,
            "error_threshold": 160_000,
            "auto_compact_threshold": 167_000,
            "percent_left": 28,
            "level": "ok",
            "above_warning": False,
            "above_error": False,
            "above_auto_compact": False,
            "overhead_tokens": session.overhead_tokens,
            "context_bytes": session.view_bytes,
            "auto_compact_bytes": 28_000_000,
            "auto_compact_enabled": True,
            "consecutive_failures": 0,
            "consecutive_ineffective": 0,
            "breaker_open": False,
            "breaker_opened_at": None,
            "breaker_opened_by": None,
            "breaker_retry_at": None,
            "detail": None,
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

    @pytest.mark.parametrize(
        ("tokens", "above"),
        [
            (149_999, (False, False, False)),
            (150_000, (True, False, False)),
            (160_000, (True, True, False)),
            (167_000, (True, True, True)),
        ],
    )
    def test_each_threshold_that_is_passed_is_told(
        self, api: Api, cast: Cast, tokens: int, above: tuple[bool, bool, bool]
    ) -> None:
        session = make_session(cast.alices_team, policy_overrides={"warning_buffer_tokens": 30_000})
        append(session, user("x " * 80_000))
        state = state_at(api, session, tokens)
        assert (state["above_warning"], state["above_error"], state["above_auto_compact"]) == above

    def test_out_of_reach_names_the_overhead(self, api: Api, cast: Cast) -> None:
        """T9: 29,000 tokens of system prompt and tools on a window of 32,768."""
        session = make_session(cast.alices_team, policy_overrides={"context_window": 32_768})
        state = state_at(api, session, 29_000)
        assert (state["effective_window"], state["auto_compact_threshold"]) == (12_768, 6_384)
        assert state["level"] == "unreachable"
        assert f"system prompt and tools alone take {state['overhead_tokens']:,} tokens" in state["detail"]
        assert "threshold of 6,384" in state["detail"]
        assert state["overhead_tokens"] > 28_900

    def test_out_of_reach_the_breaker_is_open_before_anything_was_appended(self, api: Api, cast: Cast) -> None:
        tools = [{"name": "big", "description": "word " * 40_000, "input_schema": {"type": "object"}}]
        session = make_session(cast.alices_team, tools=tools, policy_overrides={"context_window": 32_768})
        state = api.read(f"sessions/{session.uuid}/token-state/").json()
        assert (state["level"], state["breaker_open"], state["breaker_opened_by"]) == (
            "unreachable",
            True,
            "unreachable",
        )
        assert (state["breaker_opened_at"], state["breaker_retry_at"]) == (None, None)
        assert state == api.send(f"sessions/{session.uuid}/reset-breaker/").json()

    def test_a_client_that_goes_on_with_another_context_is_told(self, api: Api, session: Session) -> None:
        append(session, user("go"))
        Session.objects.update(ignored_prompt_tokens=258_060)
        state = api.read(f"sessions/{session.uuid}/token-state/").json()
        assert state["detail"] == (
            "the last response's prompt had 258,060 tokens, but what is handed out has about "
            f"{session.context_tokens:,}: the client goes on without context/ or prepare/"
        )
        api.change(f"sessions/{session.uuid}/", {"auto_compact_enabled": False})
        state = api.read(f"sessions/{session.uuid}/token-state/").json()
        assert state["detail"] == "automatic compaction is switched off by the session"

    def test_an_open_breaker_is_told(self, api: Api, session: Session) -> None:
        CompactionState.objects.create(
            session=session, consecutive_failures=3, last_failure="no_summary", opened_at=NOW, opened_by="failures"
        )
        state = api.read(f"sessions/{session.uuid}/token-state/").json()
        assert (state["consecutive_failures"], state["breaker_open"]) == (3, True)
        assert (state["breaker_opened_at"], state["breaker_opened_by"]) == ("2026-11-03T09:00:00Z", "failures")
        assert state["breaker_retry_at"] == "2026-11-03T10:00:00Z"
        assert "after 3 failures in a row (the last: no_summary)" in state["detail"]

    def test_what_is_switched_off_is_told(self, api: Api, session: Session) -> None:
        api.change(f"sessions/{session.uuid}/", {"auto_compact_enabled": False})
        state = api.read(f"sessions/{session.uuid}/token-state/").json()
        assert state["detail"] == "automatic compaction is switched off by the session"

    def test_what_the_environment_has_switched_off_stays_off(self, api: Api, session: Session, settings: Any) -> None:
        settings.COMPACTION_POLICY = {"auto_compact_enabled": False}
        assert api.change(f"sessions/{session.uuid}/", {"auto_compact_enabled": True}).status_code == 200
        state = api.read(f"sessions/{session.uuid}/token-state/").json()
        assert (state["auto_compact_enabled"], state["origins"]) == (False, {"auto_compact_enabled": "environment"})

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

    @pytest.mark.parametrize(
        ("model", "override", "shown"),
        [
            ("claude-sonnet-4-5", None, (200_000, "table", False)),
            ("claude-tomorrow-1", None, (500_000, "models_api", False)),
            ("gpt-9", None, (200_000, "assumed", True)),
            ("", None, (200_000, "assumed", True)),
            ("claude-tomorrow-1", 100_000, (100_000, "override", False)),
            ("gpt-9", 100_000, (100_000, "override", True)),
            ("claude-sonnet-4-5", 200_000, (200_000, "override", False)),
        ],
    )
    def test_it_says_where_the_window_comes_from(
        self, api: Api, cast: Cast, told: None, model: str, override: int | None, shown: tuple[int, str, bool]
    ) -> None:
        overrides = {"context_window": override} if override else {}
        session = make_session(cast.alices_team, model=model, policy_overrides=overrides)
        state = api.read(f"sessions/{session.uuid}/token-state/").json()
        assert (state["context_window"], state["window_source"], state["model_assumed"]) == shown

    def test_a_told_window_moves_the_thresholds(self, api: Api, cast: Cast, told: None) -> None:
        session = make_session(cast.alices_team, model="claude-tomorrow-1")
        state = api.read(f"sessions/{session.uuid}/token-state/").json()
        assert (state["effective_window"], state["auto_compact_threshold"]) == (490_000, 477_000)

    def test_queries(self, api: Api, cast: Cast) -> None:
        """key; session with its team and its breaker: whatever the history's length."""
        counts = []
        for size in (10, 10_000):
            session = make_session(cast.alices_team)
            bulk_history(session, count=size)
            path = f"sessions/{session.uuid}/token-state/"
            counts.append(queries_of(lambda path=path: api.read(path)))
            CompactionState.objects.create(session=session, consecutive_failures=1)
            counts.append(queries_of(lambda path=path: api.read(path)))
        for count in counts:
            assert_same_count(counts[0], count, most=2)
