"""Which model has which window: model id -> context window, longest output, tokenizer family.

Local table; figures from the Models API as probed in 2026 (facts: Anthropic API, section 11). Where the provider was
asked, what it told goes before the table (`limits`). An id that neither knows gets `ASSUMED`, and says so; so does
another version of a model that is known, because its limits need not be the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


class TokenizerFamily(StrEnum):
    """Claude models share a tokenizer within a family; the newer one gives about 30% more tokens for a text."""

    UNTIL_OPUS_4_6 = "until-opus-4-6"
    FROM_OPUS_4_7 = "from-opus-4-7"


class WindowSource(StrEnum):
    """Where a context window comes from. OVERRIDE is the policy's own figure and never a model's."""

    OVERRIDE = "override"
    MODELS_API = "models_api"
    TABLE = "table"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Limits of one model, in tokens. `source`: where the context window comes from."""

    context_window: int
    max_output_tokens: int
    family: TokenizerFamily
    source: WindowSource = WindowSource.TABLE

    @property
    def assumed(self) -> bool:
        """Whether nobody knows the window: neither the provider nor the table has the id."""
        return self.source == WindowSource.ASSUMED


# What a Models API told of one model: context window and longest output, in tokens; None where it did not say.
ToldLimits = tuple[int | None, int | None]


_OLD, _NEW = TokenizerFamily.UNTIL_OPUS_4_6, TokenizerFamily.FROM_OPUS_4_7

# Longest prefix wins; a date or a word after it does not matter, a further number is another version.
CATALOG: dict[str, ModelInfo] = {
    "claude-fable-5": ModelInfo(1_000_000, 128_000, _NEW),
    "claude-mythos": ModelInfo(1_000_000, 128_000, _NEW),
    "claude-opus-5": ModelInfo(1_000_000, 128_000, _NEW),
    "claude-sonnet-5": ModelInfo(1_000_000, 128_000, _NEW),
    "claude-haiku-5": ModelInfo(1_000_000, 128_000, _NEW),
    "claude-opus-4-8": ModelInfo(1_000_000, 128_000, _NEW),
    "claude-opus-4-7": ModelInfo(1_000_000, 128_000, _NEW),
    "claude-opus-4-6": ModelInfo(1_000_000, 128_000, _OLD),
    "claude-sonnet-4-6": ModelInfo(1_000_000, 128_000, _OLD),
    "claude-opus-4-5": ModelInfo(200_000, 64_000, _OLD),
    "claude-sonnet-4-5": ModelInfo(200_000, 64_000, _OLD),
    "claude-haiku-4-5": ModelInfo(200_000, 64_000, _OLD),
    "claude-opus-4-1": ModelInfo(200_000, 32_000, _OLD),
    "claude-opus-4-0": ModelInfo(200_000, 32_000, _OLD),
    "claude-opus-4": ModelInfo(200_000, 32_000, _OLD),
    "claude-sonnet-4-0": ModelInfo(200_000, 64_000, _OLD),
    "claude-sonnet-4": ModelInfo(200_000, 64_000, _OLD),
    "claude-3-7-sonnet": ModelInfo(200_000, 64_000, _OLD),
    "claude-3-5": ModelInfo(200_000, 8_192, _OLD),
    "claude-3": ModelInfo(200_000, 4_096, _OLD),
}
# Every version of these has the same limits, as far as the provider names any (5, 5-1, 5-2, 5-5, preview).
ALL_VERSIONS = frozenset({"claude-fable-5", "claude-mythos", "claude-opus-5", "claude-sonnet-5", "claude-haiku-5"})
ASSUMED = ModelInfo(200_000, 64_000, _OLD, WindowSource.ASSUMED)

ONE_MILLION = 1_000_000
LEAST_WINDOW, MOST_WINDOW = 1_000, 10_000_000  # tokens; the bounds that an override has too (policy.py)
_LONG_WINDOW = "[1m]"
# What comes after the model's own name: a date ("-20250929", "@20250929"), "-latest", a vendor's version ("-v1:0").
_DATE = re.compile(r"[-@]20\d{6}$")
_VERSION = re.compile(r"(-v\d+)?(:[\w.-]*)?$|-latest$|@latest$")
# After a name of the table: a longer number ("4" in "45"), or one more of one to three digits ("-9"), which is no date.
_LONGER_NUMBER = re.compile(r"\d")
_FURTHER_NUMBER = re.compile(r"-\d{1,3}(?![^\W_])")
_DOTTED = re.compile(r"(?<=\d)\.(?=\d)")


def model_info(model: str | None) -> ModelInfo:
    """Limits of `model` by the table; `ASSUMED` for an id that the table does not know.

    A vendor prefix ("anthropic/claude-…", "us.anthropic.claude-…") is ignored; the suffix "[1m]" that Claude Code
    writes means the 1,000,000-token window. An unknown id that begins with "claude-" is counted with the newer
    tokenizer: what counts too little costs a refused request, what counts too much only an early compaction.
    """
    name, long_window = _bare(model)
    info = _in_table(name) or (replace(ASSUMED, family=_NEW) if name.startswith("claude-") else ASSUMED)
    return replace(info, context_window=ONE_MILLION) if long_window else info


def _in_table(name: str) -> ModelInfo | None:
    known = max((prefix for prefix in CATALOG if name.startswith(prefix)), key=len, default=None)
    if known is None:
        return None
    rest = name[len(known) :]
    is_other = _LONGER_NUMBER.match(rest) or (known not in ALL_VERSIONS and _FURTHER_NUMBER.match(rest))
    return None if is_other else CATALOG[known]


def limits(*, model: str | None, told: Mapping[str, ToldLimits]) -> ModelInfo:
    """Limits of `model`: each as the provider `told` it (model id -> limits), else as the table has it.

    An id is the same with and without vendor prefix and date. Another version of a model is always another model here:
    the provider lists what it has. The suffix "[1m]" asks for at least 1,000,000 tokens.
    """
    local = model_info(model)
    window, output = told_of(model=model, told=told)
    if window is None or (_bare(model)[1] and window < ONE_MILLION):
        return replace(local, max_output_tokens=output or local.max_output_tokens)
    return ModelInfo(window, output or local.max_output_tokens, local.family, WindowSource.MODELS_API)


def told_of(*, model: str | None, told: Mapping[str, ToldLimits]) -> ToldLimits:
    """What was told of `model`, (None, None) where nothing was. Of a model's dates: its own, else the newest."""
    name = _bare(model)[0]
    if name in told:
        return told[name]
    wanted = _undated(name)
    same = [known for known in told if wanted and _undated(_bare(known)[0]) == wanted]
    return told[max(same)] if same else (None, None)


def is_one_of(*, model: str, names: Iterable[str]) -> bool:
    """Whether `model` is one of the models `names`, whatever vendor prefix and date stand around either."""
    wanted = _undated(_bare(model)[0])
    return any(_undated(_bare(name)[0]) == wanted for name in names)


def api_name(model: str) -> str:
    """The id as the API takes it: "[1m]" is Claude Code's own."""
    return model[: -len(_LONG_WINDOW)] if model.lower().endswith(_LONG_WINDOW) else model


def plausible(*, window: object, output: object) -> ToldLimits:
    """What may be taken of a provider's answer: whole numbers within reason; anything else was not told."""
    return _whole(window, low=LEAST_WINDOW), _whole(output, low=1)


def _whole(value: object, *, low: int) -> int | None:
    taken = isinstance(value, int) and not isinstance(value, bool) and low <= value <= MOST_WINDOW
    return value if taken and isinstance(value, int) else None


def _bare(model: str | None) -> tuple[str, bool]:
    """The id in small letters without vendor prefix and without "[1m]", "4.5" written as "4-5"; and whether that suffix
    was there."""
    name = (model or "").lower()
    long_window = name.endswith(_LONG_WINDOW)
    name = name.removesuffix(_LONG_WINDOW)
    return _DOTTED.sub("-", name[max(name.find("claude-"), 0) :]), long_window


def _undated(name: str) -> str:
    return _DATE.sub("", _VERSION.sub("", name, count=1))


def tokenizer_family(model: str | None) -> TokenizerFamily:
    return model_info(model).family
