"""The table of figures: defaults, layers and their origin, and refusals that say what is allowed."""

from __future__ import annotations

import pytest

from sessions_app.figures import PolicyError, ToolTable
from sessions_app.policy import COMPACTABLE_TOOLS, FIGURES, Policy, check, resolve


def _as_stored(value: object) -> object:
    """A figure's value as JSON has it."""
    return value.as_json() if isinstance(value, ToolTable) else value


class TestTheFiguresOfTheMission:
    """Every figure that the mission names, literally."""

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("time_based_idle_ms", 5 * 60 * 1_000),  # S2
            ("time_based_keep_results", 5),
            ("summary_output_tokens", 20_000),  # S8
            ("auto_compact_buffer_tokens", 13_000),
            ("warning_buffer_tokens", 20_000),  # S9
            ("error_buffer_tokens", 20_000),
            ("breaker_failures", 3),  # S10
            ("breaker_ineffective", 3),  # decision 9
            ("least_freed_share", 0.05),
            ("breaker_cooldown_seconds", 60 * 60),
            ("clear_least_tokens", 20_000),
            ("clear_least_result_bytes", 50),  # decision 14
            ("smallest_threshold_share", 0.5),  # decision 3
            ("attached_files", 5),  # S15
            ("attached_file_tokens", 5_000),
            ("attached_files_tokens", 50_000),
        ],
    )
    def test_default(self, name: str, value: object) -> None:
        assert getattr(Policy(), name) == value

    @pytest.mark.parametrize(
        ("name", "variable"),
        [
            ("time_based_idle_ms", "CLAUDE_CODE_TIME_BASED_MC_THRESHOLD_MS"),
            ("context_window", "CLAUDE_CODE_AUTO_COMPACT_WINDOW"),
            ("auto_compact_pct", "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE"),
            ("compaction_enabled", "!DISABLE_COMPACT"),
            ("auto_compact_enabled", "!DISABLE_AUTO_COMPACT"),
            ("cache_edit_dialect", "CACHE_EDIT_DIALECT"),
        ],
    )
    def test_variable(self, name: str, variable: str) -> None:
        assert FIGURES[name].metadata["env"] == variable

    @pytest.mark.parametrize(
        "tool",
        [
            "Read",
            "Bash",
            "PowerShell",
            "Grep",
            "Glob",
            "WebSearch",
            "WebFetch",
            "Edit",
            "Write",
            "MultiEdit",
            "NotebookEdit",
        ],
    )
    def test_compactable(self, tool: str) -> None:
        assert COMPACTABLE_TOOLS.allows(tool)

    @pytest.mark.parametrize("tool", ["AskUserQuestion", "Agent", "Task", "mcp__github__search", "", "read", "Reader"])
    def test_not_compactable(self, tool: str) -> None:
        assert not COMPACTABLE_TOOLS.allows(tool)


class TestToolTable:
    def test_an_override_is_laid_rule_by_rule(self) -> None:
        policy = resolve(
            environment={},
            team={"compactable_tools": {"mcp__*": True, "Read": False}},
            session={"compactable_tools": {"mcp__mail__*": False}},
        ).policy
        tools = {name: policy.compactable_tools.allows(name) for name in ("Bash", "Read", "mcp__x", "mcp__mail__get")}
        assert tools == {"Bash": True, "Read": False, "mcp__x": True, "mcp__mail__get": False}

    def test_a_name_wins_over_a_pattern_and_no_over_yes(self) -> None:
        assert ToolTable((("mcp__*", False), ("mcp__a", True))).allows("mcp__a")
        assert not ToolTable((("a*", True), ("*a", False))).allows("aa")


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
            ("context_window", 999),
            ("auto_compact_pct", 0),
            ("auto_compact_pct", 101),
            ("full_tail_share", float("nan")),
            ("extract_repeat_gain", float("inf")),
            ("warning_buffer_tokens", 10**12),
            ("cache_edit_dialect", "edits"),
            ("compactable_tools", ["Read"]),
            ("compactable_tools", {"Read": "yes"}),
            ("compactable_tools", {"": True}),
            ("sweep_seconds", 5),
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
            if figure.default is not None and not figure.metadata["service"]:
                assert resolve(team={name: _as_stored(figure.default)}).policy == Policy()
            assert figure.metadata["meaning"]
            assert figure.metadata["unit"]
