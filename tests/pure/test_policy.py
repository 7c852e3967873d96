"""The table of figures: defaults, layers and their origin, and refusals that say what is allowed."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app import figures
from sessions_app.figures import PolicyError, Tables, ToolTable
from sessions_app.policy import COMPACTABLE_TOOLS, FIGURES, Policy, check, resolve


def _as_stored(value: object) -> object:
    """A figure's value as JSON has it."""
    return value.as_json() if isinstance(value, Tables) else value


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

    @given(
        rules=st.dictionaries(st.text("ab*?[]!-", min_size=1, max_size=5), st.booleans(), max_size=6),
        names=st.lists(st.text("ab*[]", max_size=5), max_size=5),
    )
    def test_it_answers_as_its_rule_says(self, rules: dict[str, bool], names: list[str]) -> None:
        table = ToolTable(tuple(rules.items()))
        for name in names * 2:
            matching = [(len(rule), not allowed) for rule, allowed in rules.items() if fnmatchcase(name, rule)]
            by_pattern = bool(matching) and not max(matching)[1]
            assert table.allows(name) == rules.get(name, by_pattern)

    def test_a_name_is_matched_once_and_only_against_rules_that_begin_like_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tried: list[str] = []
        monkeypatch.setattr(figures, "fnmatchcase", lambda name, rule: tried.append(rule) or fnmatchcase(name, rule))
        table = ToolTable(tuple((f"mcp__server{n:03d}__*", n % 2 == 0) for n in range(500)))
        answers = [table.allows(name) for name in ("mcp__server004__x", "mcp__server005__x", "mcp__other") * 3]
        assert answers == [True, False, False] * 3
        assert tried == ["mcp__server004__*", "mcp__server005__*"]

    def test_hostile_names_fill_no_memory(self) -> None:
        table = ToolTable((("a*", True),))
        for number in range(2 * figures.MOST_KNOWN):
            assert table.allows(f"a{number}")
        assert not table.allows("x" * 100_000)
        assert len(table._known) == figures.MOST_KNOWN
        assert table == ToolTable((("a*", True),)), "what it has answered is no part of it"


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


class TestOffIsFinal:
    """What the environment has switched off is an operator's emergency switch: it holds for everybody."""

    SWITCHES = ("compaction_enabled", "auto_compact_enabled")

    def test_those_switches_and_no_other_figure(self) -> None:
        assert tuple(name for name, row in FIGURES.items() if row.metadata["off_is_final"]) == self.SWITCHES

    @pytest.mark.parametrize("name", SWITCHES)
    @pytest.mark.parametrize("said", [True, False])
    def test_team_and_session_can_not_overrule_it(self, name: str, said: bool) -> None:
        for layers in (
            {"team": {name: said}},
            {"session": {name: said}},
            {"team": {name: said}, "session": {name: said}},
        ):
            resolved = resolve(environment={name: False}, **layers)
            assert getattr(resolved.policy, name) is False
            assert (resolved.origins, resolved.ignored) == ({name: "environment"}, ())

    @pytest.mark.parametrize("name", SWITCHES)
    def test_otherwise_they_are_laid_as_any_other(self, name: str) -> None:
        for environment in ({}, {name: True}):
            resolved = resolve(environment=environment, team={name: False})
            assert (getattr(resolved.policy, name), resolved.origin(name)) == (False, "team")
            resolved = resolve(environment=environment, team={name: False}, session={name: True})
            assert (getattr(resolved.policy, name), resolved.origin(name)) == (True, "session")

    def test_another_switch_of_the_environment_can_be_overruled(self) -> None:
        assert resolve(environment={"time_based_enabled": False}, team={"time_based_enabled": True}).policy == Policy()


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
            ("compactable_tools", {"a\x00": True}),
            ("compactable_tools", {"\ud800*": True}),
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
