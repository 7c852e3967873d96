"""policy/ and policy_overrides: every figure, who set it, and what is refused where it enters."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.models import Session
from sessions_app.policy import FIGURES
from tests.cast import Api, Cast, errors
from tests.factories import make_session

pytestmark = pytest.mark.django_db


def figures(api: Api, session: Session) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in api.read(f"sessions/{session.uuid}/policy/").json()["figures"]}


class TestPolicy:
    def test_it_works(self, api: Api, session: Session) -> None:
        found = figures(api, session)
        assert list(found) == list(FIGURES)
        assert found["time_based_idle_ms"] == {
            "name": "time_based_idle_ms",
            "value": 300_000,
            "default": 300_000,
            "origin": "default",
            "unit": "milliseconds",
            "allowed": "0 to 2592000000",
            "variable": "CLAUDE_CODE_TIME_BASED_MC_THRESHOLD_MS",
            "overridable": True,
            "meaning": FIGURES["time_based_idle_ms"].metadata["meaning"],
        }
        assert found["sweep_seconds"]["overridable"] is False
        assert found["compactable_tools"]["value"]["Read"] is True

    def test_each_says_where_it_came_from(self, cast: Cast, settings: Any) -> None:
        settings.COMPACTION_POLICY = {"context_window": 100_000, "auto_compact_pct": 90}
        cast.alices_team.policy_overrides = {"auto_compact_pct": 80, "compactable_tools": {"mcp__*": True}}
        cast.alices_team.save()
        found = figures(cast.alice, make_session(cast.alices_team, policy_overrides={"auto_compact_pct": 70}))
        origins = {name: row["origin"] for name, row in found.items() if row["origin"] != "default"}
        assert origins == {"context_window": "environment", "auto_compact_pct": "session", "compactable_tools": "team"}
        tools = found["compactable_tools"]["value"]
        assert (tools["mcp__*"], tools["Read"]) == (True, True)

    def test_a_stored_value_that_is_not_allowed_is_named(self, cast: Cast) -> None:
        session = make_session(cast.alices_team, policy_overrides={"auto_compact_pct": 700})
        body = cast.alice.read(f"sessions/{session.uuid}/policy/").json()
        assert body["ignored"] == ["session: auto_compact_pct=700: allowed is 1 to 100"]


class TestOverrides:
    def test_any_figure_can_be_set_and_cleared(self, api: Api, session: Session) -> None:
        path = f"sessions/{session.uuid}/"
        body = {"policy_overrides": {"time_based_keep_results": 2, "compactable_tools": {"mcp__*": True}}}
        changed = api.change(path, body).json()
        assert changed["policy_overrides"] == body["policy_overrides"]
        changed = api.change(path, {"policy_overrides": {"time_based_keep_results": None}}).json()
        assert changed["policy_overrides"] == {"compactable_tools": {"mcp__*": True}}
        assert figures(api, session)["compactable_tools"]["origin"] == "session"

    def test_the_short_names_win_over_the_table(self, api: Api) -> None:
        body = {"auto_compact_pct": 70, "policy_overrides": {"auto_compact_pct": 60, "context_window": 50_000}}
        made = api.send("sessions/", body).json()
        assert (made["auto_compact_pct"], made["context_window"]) == (70, 50_000)

    def test_every_bad_value_is_named(self, api: Api, session: Session) -> None:
        body = {
            "policy_overrides": {"context_window": -1, "sweep_seconds": 3, "nonsense": 1, "light_enough_share": 0.5}
        }
        answer = api.change(f"sessions/{session.uuid}/", body)
        assert answer.status_code == 400
        assert sorted(errors(answer)) == [
            ("invalid", "policy_overrides.context_window"),
            ("invalid", "policy_overrides.nonsense"),
            ("invalid", "policy_overrides.sweep_seconds"),
        ]
        assert "allowed is 1000 to 10000000" in answer.content.decode()
        session.refresh_from_db()
        assert session.policy_overrides == {}

    @pytest.mark.parametrize("value", [[], "x", 1])
    def test_an_object_is_needed(self, api: Api, session: Session, value: Any) -> None:
        answer = api.change(f"sessions/{session.uuid}/", {"policy_overrides": value})
        assert errors(answer) == [("invalid", "policy_overrides")]
