"""The table of figures: defaults, layers and their origin, and refusals that say what is allowed."""

from __future__ import annotations

import pytest

from sessions_app.policy import FIGURES, Policy, PolicyError, check, resolve


class TestResolve:
    def test_later_layers_win_and_say_where_a_value_came_from(self) -> None:
        resolved = resolve(
            environment={"context_window": 100_000, "auto_compact_pct": 50},
            team={"auto_compact_pct": 60},
            session={"auto_compact_enabled": False},
        )
        policy = resolved.policy
        assert (policy.context_window, policy.auto_compact_pct, policy.auto_compact_enabled) == (100_000, 60, False)
        assert resolved.origins == {
            "context_window": "environment",
            "auto_compact_pct": "team",
            "auto_compact_enabled": "session",
        }

    def test_none_is_not_set(self) -> None:
        assert resolve(session={"context_window": None}).policy == Policy()

    def test_a_stored_value_that_is_not_allowed_is_left_out_and_named(self) -> None:
        resolved = resolve(team={"gone_since": 1, "auto_compact_pct": 500}, session={"auto_compact_pct": 50})
        assert (resolved.policy.auto_compact_pct, resolved.origins) == (50, {"auto_compact_pct": "session"})
        assert [line.split(":")[0] for line in resolved.ignored] == ["team", "team"]


class TestCheck:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("context_window", -1),
            ("context_window", "big"),
            ("context_window", 1.5),
            ("context_window", True),
            ("auto_compact_pct", 101),
            ("auto_compact_enabled", 1),
            ("full_tail_share", 2.0),
            ("nonsense", 1),
        ],
    )
    def test_refusals_name_the_figure(self, name: str, value: object) -> None:
        with pytest.raises(PolicyError, match=name):
            check(name=name, value=value)

    def test_every_default_is_within_its_own_bounds_and_explained(self) -> None:
        for name, figure in FIGURES.items():
            assert check(name=name, value=figure.default) == figure.default
            assert figure.metadata["meaning"]
            assert figure.metadata["unit"]
