"""The window's arithmetic, on the figures of the source and on windows that its formulas do not fit."""

from __future__ import annotations

import pytest

from sessions_app.catalog import ModelInfo, TokenizerFamily, model_info
from sessions_app.policy import Policy
from sessions_app.transcript.window import Level, warning_state, window_of

FAMILY = TokenizerFamily.UNTIL_OPUS_4_6


def model(window: int, output: int = 64_000) -> ModelInfo:
    return ModelInfo(window, output, FAMILY)


class TestWindowOf:
    @pytest.mark.parametrize(("size", "auto"), [(200_000, 167_000), (1_000_000, 967_000)])
    def test_the_sources_figures(self, size: int, auto: int) -> None:
        window = window_of(policy=Policy(), model=model(size))
        assert window.effective_window == size - 20_000
        assert window.auto_compact_threshold == auto
        assert window.warning_threshold == window.error_threshold == size - 40_000

    def test_a_short_output_reserves_only_itself(self) -> None:
        assert window_of(policy=Policy(), model=model(200_000, 4_096)).effective_window == 195_904

    @pytest.mark.parametrize("size", [1_000, 30_000, 32_768, 33_000, 40_000])
    def test_t10_small_windows_have_thresholds_above_zero(self, size: int) -> None:
        window = window_of(policy=Policy(), model=model(size, size))
        assert 0 < window.warning_threshold <= window.auto_compact_threshold <= window.effective_window < size

    def test_on_a_window_of_32_768(self) -> None:
        window = window_of(policy=Policy(), model=model(32_768))
        assert (window.effective_window, window.auto_compact_threshold) == (12_768, 6_384)
        assert window.warning_threshold == window.error_threshold == 6_384
        short = window_of(policy=Policy(), model=model(32_768, 4_096))
        assert (short.effective_window, short.auto_compact_threshold) == (28_672, 15_672)

    def test_a_percentage_only_lowers(self) -> None:
        assert window_of(policy=Policy(auto_compact_pct=50), model=model(200_000)).auto_compact_threshold == 90_000
        assert window_of(policy=Policy(auto_compact_pct=100), model=model(200_000)).auto_compact_threshold == 167_000

    def test_an_override_sets_the_window(self) -> None:
        assert window_of(policy=Policy(context_window=100_000), model=model(200_000)).context_window == 100_000


class TestWarningState:
    WINDOW = window_of(policy=Policy(), model=model(200_000))

    @pytest.mark.parametrize(
        ("tokens", "level"),
        [(0, Level.OK), (159_999, Level.OK), (160_000, Level.ERROR), (167_000, Level.AUTO_COMPACT)],
    )
    def test_levels(self, tokens: int, level: Level) -> None:
        assert warning_state(window=self.WINDOW, context_tokens=tokens).level == level

    def test_warning_and_error_can_be_parted(self) -> None:
        window = window_of(policy=Policy(warning_buffer_tokens=50_000), model=model(200_000))
        assert warning_state(window=window, context_tokens=135_000).level == Level.WARNING

    def test_percent_left_goes_from_100_to_0(self) -> None:
        assert warning_state(window=self.WINDOW, context_tokens=0).percent_left == 100
        assert warning_state(window=self.WINDOW, context_tokens=83_500).percent_left == 50
        assert warning_state(window=self.WINDOW, context_tokens=500_000).percent_left == 0

    def test_t9_overhead_beyond_the_threshold_is_unreachable(self) -> None:
        window = window_of(policy=Policy(), model=model(32_768))
        assert warning_state(window=window, context_tokens=29_000, overhead_tokens=29_000).level == Level.UNREACHABLE


class TestModelInfo:
    @pytest.mark.parametrize(
        ("name", "window"),
        [
            ("claude-sonnet-4-5-20250929", 200_000),
            ("claude-opus-4-6", 1_000_000),
            ("claude-sonnet-4-5[1m]", 1_000_000),
            ("anthropic/claude-opus-4-8", 1_000_000),
            ("us.anthropic.claude-haiku-4-5-v1:0", 200_000),
        ],
    )
    def test_known(self, name: str, window: int) -> None:
        assert model_info(name).context_window == window
        assert not model_info(name).assumed

    @pytest.mark.parametrize("name", ["", None, "gpt-5", "glm-4.7", "claude-unheard-of"])
    def test_unknown_is_assumed_and_says_so(self, name: str | None) -> None:
        assert model_info(name).assumed
