"""JSON as transcripts hold it. Read strictly: no NaN, no number that is too large, nothing nested without end. Written
so that any reader of lines takes it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

# Nesting beyond it is refused: writing such a value again would exhaust the stack. A line holds a content of the API's
# own limit (200) a few levels down.
DEEPEST = 210
# Lone surrogates have no UTF-8; the others end a line for readers that split by more than the newline.
_ESCAPED = re.compile("[\ud800-\udfff\x85\u2028\u2029]")


class Unreadable(ValueError):
    """No JSON value stands there; the message says why, for a person, without quoting it."""


def finite(digits: str) -> float:
    """For a decoder's `parse_float`. Raises ValueError for a number that no float holds."""
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"the number {digits[:20]} is too large")
    return value


def no_constant(name: str) -> NoReturn:
    """For a decoder's `parse_constant`: NaN and the infinities are no JSON. Raises ValueError."""
    raise ValueError(f"{name} is not JSON")


def first_value(*, text: str) -> tuple[Any, int]:
    """The value with which the text begins, and where it ends. Raises Unreadable."""
    try:
        return _DECODER.raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(_why_unreadable(text, error)) from None


def whole_value(*, text: str, deepest: int = DEEPEST) -> Any:
    """The one value that the text is, but for white space around it. Raises Unreadable."""
    text = text.strip("\ufeff \t\r\n")
    value, end = first_value(text=text)
    if end < len(text):
        raise Unreadable("not JSON: more than one value")
    if is_too_deep(value=value, text=text, deepest=deepest):
        raise Unreadable("nested too deeply")
    return value


def is_too_deep(*, value: object, text: str, deepest: int = DEEPEST) -> bool:
    """Whether lists and objects are nested beyond the limit; without recursion, and only paid for by odd texts.

    `text`: what the value was read from.
    """
    if text.count("[") + text.count("{") <= deepest:
        return False
    level: list[object] = [value]
    for _ in range(deepest):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ())
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return True


def dump_line(*, value: Mapping[str, Any]) -> bytes:
    """The object as one line, its end included. Decodes to the same value, whatever stands in it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    if _ESCAPED.search(text):
        text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.encode() + b"\n"


def _why_unreadable(text: str, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, json.JSONDecodeError) and error.pos >= len(text) - 1:
        return "cut in the middle (the file ends inside a JSON object)"
    if isinstance(error, json.JSONDecodeError) and error.msg.startswith("Unterminated string"):
        return "cut in the middle of a string"
    reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
    return f"not JSON: {reason}"


_DECODER = json.JSONDecoder(parse_constant=no_constant, parse_float=finite)
