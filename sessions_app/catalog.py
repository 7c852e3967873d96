"""Which model has which window: model id -> context window, longest output, tokenizer family.

Local table; figures from the Models API as probed in 2026 (facts: Anthropic API, section 11). An id that is not
here gets `ASSUMED`, and says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class TokenizerFamily(StrEnum):
    """Claude models share a tokenizer within a family; the newer one gives about 30% more tokens for a text."""

    UNTIL_OPUS_4_6 = "until-opus-4-6"
    FROM_OPUS_4_7 = "from-opus-4-7"


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Limits of one model, in tokens. `assumed` when the id was not in the table."""

    context_window: int
    max_output_tokens: int
    family: TokenizerFamily
    assumed: bool = False


_OLD, _NEW = TokenizerFamily.UNTIL_OPUS_4_6, TokenizerFamily.FROM_OPUS_4_7

# Longest prefix wins; a date or a suffix after the prefix does not matter.
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
    "claude-opus-4": ModelInfo(200_000, 32_000, _OLD),
    "claude-sonnet-4": ModelInfo(200_000, 64_000, _OLD),
    "claude-3-7-sonnet": ModelInfo(200_000, 64_000, _OLD),
    "claude-3-5": ModelInfo(200_000, 8_192, _OLD),
    "claude-3": ModelInfo(200_000, 4_096, _OLD),
}
ASSUMED = ModelInfo(200_000, 64_000, _OLD, assumed=True)

_BRACKET = re.compile(r"\[1m\]$")


def model_info(model: str | None) -> ModelInfo:
    """Limits of `model`; `ASSUMED` for an id that the table does not know.

    A vendor prefix ("anthropic/claude-…", "us.anthropic.claude-…") is ignored; the suffix "[1m]" that Claude Code
    writes means the 1,000,000-token window.
    """
    name = (model or "").lower()
    start = name.find("claude-")
    if start < 0:
        return ASSUMED
    name = name[start:]
    prefixes = [prefix for prefix in CATALOG if name.startswith(prefix)]
    if not prefixes:
        return ASSUMED
    info = CATALOG[max(prefixes, key=len)]
    if _BRACKET.search(name):
        return ModelInfo(1_000_000, info.max_output_tokens, info.family)
    return info


def tokenizer_family(model: str | None) -> TokenizerFamily:
    return model_info(model).family
