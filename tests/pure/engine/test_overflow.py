"""How a provider says "too long" (known failure T30)."""

from __future__ import annotations

import time

import pytest

from compaction_app.engine.overflow import OverflowKind, read_overflow

TOKENS, OUTPUT, BYTES = OverflowKind.TOKENS, OverflowKind.OUTPUT, OverflowKind.BYTES
INVALID = "invalid_request_error"
SIGNALS = [
    (400, INVALID, "prompt is too long: 204123 tokens > 200000 maximum", TOKENS, 4_123),
    (200, INVALID, "prompt is too long: 204123 tokens > 200000 maximum", TOKENS, 4_123),
    (400, INVALID, "prompt is too long: 1,204,123 tokens > 1,000,000 maximum", TOKENS, 204_123),
    (400, INVALID, "prompt is too long: 1_204_123 tokens > 1 000 000 maximum", TOKENS, 204_123),
    (400, INVALID, "prompt is too long: 1.204.123 tokens > 1'000'000 maximum", TOKENS, 204_123),
    (400, INVALID, "prompt is too long: 1\u202f204\u202f123 tokens > 1\xa0000\xa0000 maximum", TOKENS, 204_123),
    (400, "", "litellm: Error code: 400 - prompt is too long: 204123 tokens > 200000 maximum", TOKENS, 4_123),
    (400, INVALID, "Prompt is too long", TOKENS, None),
    (400, INVALID, "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", OUTPUT, 10_000),
    (400, INVALID, "input length and max_tokens exceed context limit: 190000 + 20000 > 200000", OUTPUT, 10_000),
    (200, INVALID, "input length and `max_tokens` exceed context limit: 190,000 + 20,000 > 200,000", OUTPUT, 10_000),
    (400, "", "Input is too long for requested model.", TOKENS, None),
    (400, "", "", TOKENS, None),
    (400, "prompt_too_long", "no", TOKENS, None),
    (400, "", '{"code":"prompt_too_long"}', TOKENS, None),
    (400, "", "This model's maximum context length is 8192 tokens", TOKENS, None),
    (413, "request_too_large", "Request exceeds the maximum size", BYTES, None),
    (413, "", "<html>413</html>", BYTES, None),
    (413, "", "", BYTES, None),
    # Figures that can't be true count as not named.
    (400, INVALID, "prompt is too long: 100 tokens > 200000 maximum", TOKENS, None),
    (400, INVALID, "prompt is too long: 999999999999 tokens > 200000 maximum", TOKENS, None),
    (400, INVALID, "prompt is too long: 5 tokens > 0 maximum", TOKENS, None),
    (400, INVALID, "prompt is too long: 200000 tokens > 200000 maximum", TOKENS, None),
    (400, INVALID, "prompt is too long: 200000001 tokens > 200000 maximum", TOKENS, None),
    (400, INVALID, f"prompt is too long: {'9' * 900} tokens > 200000 maximum", TOKENS, None),
    (400, INVALID, "prompt is too long: NaN tokens > -1 maximum", TOKENS, None),
    (400, INVALID, "input length and `max_tokens` exceed context limit: 0 + 20000 > 10000", TOKENS, None),
    (400, INVALID, "input length and `max_tokens` exceed context limit: 20000 + 0 > 10000", TOKENS, None),
    (400, INVALID, "input length and `max_tokens` exceed context limit: 1 + 2 > 10000", TOKENS, None),
]


@pytest.mark.parametrize(("status", "kind", "message", "expected", "gap"), SIGNALS)
def test_every_signal(status: int, kind: str, message: str, expected: OverflowKind, gap: int | None) -> None:
    found = read_overflow(status=status, kind=kind, message=message)
    assert found is not None
    assert (found.kind, found.gap_tokens) == (expected, gap)


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (429, "rate_limit_error", "prompt is too long: 204123 tokens > 200000 maximum"),
        (529, "overloaded_error", "Overloaded"),
        (200, "overloaded_error", "prompt_too_long"),
        (529, "", "Input is too long for requested model."),
        (429, "", ""),
        (400, INVALID, "messages.0: bad"),
        (400, INVALID, "messages.3.content.0: unexpected text 'prompt is too long: 204123 tokens > 200000 maximum'"),
        (400, INVALID, ""),
        (404, "", ""),
        (500, "api_error", "Internal error"),
        (401, "authentication_error", "invalid key"),
        (404, "not_found_error", "model: x"),
    ],
)
def test_anything_else_is_none(status: int, kind: str, message: str) -> None:
    assert read_overflow(status=status, kind=kind, message=message) is None


def test_room_for_output() -> None:
    message = "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"
    found = read_overflow(status=400, kind=INVALID, message=message)
    assert found is not None
    assert found.output_room_tokens == 10_000


HOSTILE = (
    "prompt is too long: " * 50_000,
    "prompt is too long: " + "1," * 500_000,
    "prompt is too long: " + "1 " * 500_000 + "tokens > ",
    "input length and `max_tokens` exceed context limit: " + "1 + " * 300_000,
    "1 " * 500_000,
    " " * 1_000_000,
    "\x00\ud800" * 500_000,
)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_takes_no_time(text: str) -> None:
    began = time.perf_counter()
    read_overflow(status=400, kind=INVALID, message=text)
    assert time.perf_counter() - began < 0.2
