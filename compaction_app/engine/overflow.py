"""How a provider says that a request is too long, and by how much (S16; facts: Anthropic API, section 4)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class OverflowKind(StrEnum):
    """TOKENS: the prompt; OUTPUT: prompt and `max_tokens` together; BYTES: the body."""

    TOKENS = "tokens"
    OUTPUT = "output"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Overflow:
    """`prompt_tokens`: size of the prompt; `limit_tokens`: what there is room for; `max_tokens`: of the request.

    None where the provider names no figure.
    """

    kind: OverflowKind
    prompt_tokens: int | None = None
    limit_tokens: int | None = None
    max_tokens: int | None = None

    @property
    def gap_tokens(self) -> int | None:
        """By how much the prompt is too long, with the output that was asked for; None where nobody told."""
        if self.prompt_tokens is None or self.limit_tokens is None:
            return None
        return max(self.prompt_tokens + (self.max_tokens or 0) - self.limit_tokens, 0)

    @property
    def output_room_tokens(self) -> int | None:
        """What is left for output beside the prompt; None where that was not told, or is no matter of output."""
        if self.kind is not OverflowKind.OUTPUT or self.prompt_tokens is None or self.limit_tokens is None:
            return None
        return max(self.limit_tokens - self.prompt_tokens, 0)


READ_CHARS = 2_000  # of an error's text; what names the figures stands at its begin
LARGEST_FIGURE = 100_000_000  # tokens; no window is anywhere near
TOO_LARGE = 413
NO_WORD = 400  # some gateways say no more than this status (known failure T30); the API itself always says why
# Never a matter of length, whatever their text says (known failure T30).
BUSY = frozenset({429, 529})
BUSY_TYPES = frozenset({"rate_limit_error", "overloaded_error", "api_error", "timeout_error"})
# Figures as people group them: 204,123 and 204.123, 204_123, 204'123 and with any space.
_NUMBER = r"(\d[\d,._'\s]{0,14})"
_PROMPT = re.compile(rf"prompt is too long: ?{_NUMBER} ?tokens? ?> ?{_NUMBER}", re.IGNORECASE)
_OUTPUT = re.compile(
    rf"input length and [`'\"]?max_tokens[`'\"]? exceed context limit: ?{_NUMBER} ?\+ ?{_NUMBER} ?> ?{_NUMBER}",
    re.IGNORECASE,
)
# About one part of the request, which such a message may quote: `messages.3.content.0: …`.
_ABOUT_A_PART = re.compile(r"(?:messages|system|tools)[.\[]\d")
# Wordings without figures: the Messages API's own, Bedrock's, gateways'.
_WORDINGS = (
    "prompt is too long",
    "input is too long",
    "prompt_too_long",
    "context_length_exceeded",
    "exceed context limit",
    "exceeds the context window",
    "exceeds the maximum context",
    "maximum context length",
)


def read_overflow(*, status: int, kind: str, message: str) -> Overflow | None:
    """What an error tells of a request that is too long; None for any other error.

    `status`: of HTTP, 200 for an error in a stream; `kind`: `error.type`, "" where there was none; `message`: its text.
    """
    if status in BUSY or kind in BUSY_TYPES:
        return None
    if status == TOO_LARGE or kind == "request_too_large":
        return Overflow(kind=OverflowKind.BYTES)
    text = message[:READ_CHARS].strip()
    if not text and not kind and status == NO_WORD:
        return Overflow(kind=OverflowKind.TOKENS)
    if _ABOUT_A_PART.match(text):
        return None
    if found := _OUTPUT.search(text):
        prompt, output, limit = (_figure(part) for part in found.groups())
        return _plausible(OverflowKind.OUTPUT, prompt=prompt, output=output, limit=limit)
    if found := _PROMPT.search(text):
        prompt, limit = (_figure(part) for part in found.groups())
        return _plausible(OverflowKind.TOKENS, prompt=prompt, output=0, limit=limit)
    told = text.casefold()
    if kind == "prompt_too_long" or any(wording in told for wording in _WORDINGS):
        return Overflow(kind=OverflowKind.TOKENS)
    return None


def _figure(text: str) -> int:
    return int("".join(letter for letter in text if letter.isdecimal()))


def _plausible(kind: OverflowKind, *, prompt: int, output: int, limit: int) -> Overflow:
    """Figures that can't be true count as not named."""
    asked = (prompt, output) if kind is OverflowKind.OUTPUT else (prompt,)
    if not 0 < limit < sum(asked) or min(asked) < 1 or max(*asked, limit) > LARGEST_FIGURE:
        return Overflow(kind=OverflowKind.TOKENS)
    return Overflow(kind=kind, prompt_tokens=prompt, limit_tokens=limit, max_tokens=output or None)
