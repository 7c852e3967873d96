"""Windows of models: what a provider told goes before the table, field by field; ids are matched with care."""

from __future__ import annotations

import pytest

from sessions_app.catalog import (
    ALL_VERSIONS,
    ASSUMED,
    CATALOG,
    TokenizerFamily,
    WindowSource,
    api_name,
    limits,
    model_info,
    plausible,
    tokenizer_family,
)

TOLD = {
    "claude-sonnet-4-5-20250929": (400_000, 80_000),
    "claude-haiku-4-5-20251001": (300_000, 70_000),
    "claude-haiku-4-5-20260101": (310_000, 71_000),
    "claude-opus-4": (100_000, 10_000),
    "claude-tomorrow-1": (500_000, 32_000),
    "house-model": (50_000, None),
    "claude-mythos-preview": (None, None),
    "claude-opus-4-8": (None, 90_000),
}


class TestLimits:
    def test_it_works(self) -> None:
        info = limits(model="claude-sonnet-4-5-20250929", told=TOLD)
        assert (info.context_window, info.max_output_tokens) == (400_000, 80_000)
        assert (info.source, info.assumed) == (WindowSource.MODELS_API, False)
        assert info.family == model_info("claude-sonnet-4-5").family

    @pytest.mark.parametrize(
        "name",
        [
            "claude-sonnet-4-5",
            "Claude-Sonnet-4-5",
            "claude-sonnet-4-5-latest",
            "claude-sonnet-4-5@20250929",
            "anthropic/claude-sonnet-4-5",
            "anthropic/claude-sonnet-4-5:beta",
            "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "eu.anthropic.claude-sonnet-4-5-20250929-v1",
        ],
    )
    def test_one_model_has_many_names(self, name: str) -> None:
        assert limits(model=name, told=TOLD).context_window == 400_000

    def test_of_several_dates_its_own_else_the_newest(self) -> None:
        assert limits(model="claude-haiku-4-5-20251001", told=TOLD).context_window == 300_000
        assert limits(model="claude-haiku-4-5", told=TOLD).context_window == 310_000

    def test_another_version_is_another_model(self) -> None:
        """The table's longest prefix would make opus-4-1 of what was told of opus-4."""
        info = limits(model="claude-opus-4-1", told=TOLD)
        assert (info.context_window, info.source) == (200_000, WindowSource.TABLE)

    def test_a_model_that_only_the_provider_knows(self) -> None:
        info = limits(model="claude-tomorrow-1", told=TOLD)
        assert (info.context_window, info.max_output_tokens, info.assumed) == (500_000, 32_000, False)
        house = limits(model="house-model", told=TOLD)
        assert (house.context_window, house.max_output_tokens) == (50_000, ASSUMED.max_output_tokens)
        assert house.source == WindowSource.MODELS_API

    def test_what_was_not_told_is_the_tables(self) -> None:
        assert limits(model="claude-mythos-preview", told=TOLD) == model_info("claude-mythos-preview")
        info = limits(model="claude-opus-4-8", told=TOLD)
        assert (info.context_window, info.max_output_tokens) == (1_000_000, 90_000)
        assert info.source == WindowSource.TABLE, "the source is the window's"

    @pytest.mark.parametrize("name", [None, "", "gpt-5", "claude-", "claude-unheard-of", "[1m]", "-20250929", ":"])
    def test_an_unknown_one_is_assumed_and_says_so(self, name: str | None) -> None:
        info = limits(model=name, told=TOLD)
        assert (info.source, info.assumed) == (WindowSource.ASSUMED, True)
        assert info.max_output_tokens == ASSUMED.max_output_tokens

    def test_the_long_window_is_at_least_a_million(self) -> None:
        short = limits(model="claude-sonnet-4-5[1m]", told=TOLD)
        assert (short.context_window, short.max_output_tokens) == (1_000_000, 80_000)
        assert short.source == WindowSource.TABLE
        long = limits(model="claude-sonnet-4-5[1m]", told={"claude-sonnet-4-5": (2_000_000, 1_000)})
        assert (long.context_window, long.source) == (2_000_000, WindowSource.MODELS_API)

    def test_nothing_told_is_the_table(self) -> None:
        for name in ("claude-opus-4-6", "claude-sonnet-4-5[1m]", "gpt-5", None):
            assert limits(model=name, told={}) == model_info(name)

    @pytest.mark.parametrize("name", ["claude-tomorrow-1", "vendor/claude-opus-4-9", "claude-"])
    def test_an_unknown_model_of_the_makers_has_the_newer_tokenizer(self, name: str) -> None:
        """An undercount costs a refused request, an overcount only an early compaction."""
        for told in ({}, {"claude-tomorrow-1": (500_000, 32_000)}):
            assert limits(model=name, told=told).family == TokenizerFamily.FROM_OPUS_4_7
        assert tokenizer_family("gpt-5") == tokenizer_family(None) == TokenizerFamily.UNTIL_OPUS_4_6


# Ways in which clients and vendors write one model.
FORMS = [
    "{}",
    "{}-20250929",
    "{}@20250929",
    "{}-latest",
    "{}@latest",
    "{}-v1",
    "{}-20250929-v1:0",
    "{}:beta",
    "{}-thinking",
    "{}-fast",
    "{}-1m",
    "anthropic/{}",
    "us.anthropic.{}-20250929-v1:0",
    "global.anthropic.{}",
    "anthropic.{}",
]


class TestVersions:
    @pytest.mark.parametrize("known", sorted(CATALOG))
    def test_one_model_has_many_names(self, known: str) -> None:
        for name in (form.format(known) for form in FORMS):
            assert model_info(name) == model_info(name.upper()) == CATALOG[known], name

    @pytest.mark.parametrize("known", sorted(set(CATALOG) - ALL_VERSIONS))
    def test_another_version_is_unknown(self, known: str) -> None:
        further = [f"{known}-9", f"{known}-9-1", f"{known}-17", *([f"{known}.9"] if known[-1].isdigit() else [])]
        for name in (form.format(other) for other in further for form in FORMS):
            info = model_info(name)
            assert info.assumed, name
            assert (info.context_window, info.max_output_tokens) == (ASSUMED.context_window, ASSUMED.max_output_tokens)

    @pytest.mark.parametrize("known", sorted(CATALOG))
    def test_a_longer_number_is_another_one(self, known: str) -> None:
        assert known == "claude-mythos" or not known[-1].isdigit() or model_info(f"{known}0").assumed

    @pytest.mark.parametrize("known", sorted(ALL_VERSIONS))
    def test_families_that_are_known_as_a_whole(self, known: str) -> None:
        versions = [known, f"{known}-1", f"{known}-2", f"{known}-5", f"{known}-17"]
        for name in (form.format(version) for version in versions for form in FORMS):
            assert model_info(name) == CATALOG[known], name

    @pytest.mark.parametrize(
        ("name", "window", "output"),
        [
            ("claude-3-5-sonnet-20241022", 200_000, 8_192),
            ("claude-3.5-haiku", 200_000, 8_192),
            ("claude-3-5-sonnet-v2@20241022", 200_000, 8_192),
            ("claude-3-opus-20240229", 200_000, 4_096),
            ("anthropic/claude-3.7-sonnet:thinking", 200_000, 64_000),
            ("anthropic/claude-opus-4.6", 1_000_000, 128_000),
            ("claude-sonnet-4.5", 200_000, 64_000),
            ("claude-opus-4-0", 200_000, 32_000),
            ("claude-opus-4-20250514", 200_000, 32_000),
            ("claude-mythos-preview", 1_000_000, 128_000),
            ("claude-opus-4-6[1m]", 1_000_000, 128_000),
        ],
    )
    def test_names_that_are_in_use(self, name: str, window: int, output: int) -> None:
        info = model_info(name)
        assert (info.context_window, info.max_output_tokens, info.assumed) == (window, output, False)

    @pytest.mark.parametrize(
        "name", ["claude-3-9-sonnet", "claude-haiku-4-9", "claude-haiku-4", "claude-2.1", "claude-opus-45"]
    )
    def test_names_that_nobody_knows(self, name: str) -> None:
        assert model_info(name).assumed

    def test_what_the_provider_told_is_found_however_a_version_is_written(self) -> None:
        told = {"claude-opus-4-9": (900_000, 99_000), "gpt-5.4": (400_000, 9_000)}
        for name in ("claude-opus-4-9", "anthropic/claude-opus-4.9", "claude-opus-4-9-20270101"):
            assert limits(model=name, told=told).context_window == 900_000
        assert limits(model="gpt-5.4", told=told).context_window == 400_000
        assert limits(model="gpt-5", told=told).assumed


class TestPlausible:
    @pytest.mark.parametrize("window", [None, 0, -1, 999, 10_000_001, True, 200_000.0, "200000", [], float("nan")])
    def test_a_window_beyond_reason_was_not_told(self, window: object) -> None:
        assert plausible(window=window, output=64_000) == (None, 64_000)

    @pytest.mark.parametrize("output", [None, 0, -5, True, "64000", 1e4])
    def test_an_output_beyond_reason_was_not_told(self, output: object) -> None:
        assert plausible(window=200_000, output=output) == (200_000, None)


class TestApiName:
    @pytest.mark.parametrize(
        ("name", "sent"),
        [
            ("claude-opus-4-6[1m]", "claude-opus-4-6"),
            ("X[1M]", "X"),
            ("vendor/claude-opus-4-6", "vendor/claude-opus-4-6"),
        ],
    )
    def test_it_works(self, name: str, sent: str) -> None:
        assert api_name(name) == sent
