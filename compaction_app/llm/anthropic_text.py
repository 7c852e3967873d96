"""Texts on their way out and in: what UTF-8 can't say is not sent, what a database refuses is not handed on."""

from __future__ import annotations

import re
from typing import Any

_NOT_PRINTABLE = re.compile(r"[^\x20-\x7e]")
_NUL = "\x00"
_REPLACEMENT = "\ufffd"


def storable_name(value: object, *, most: int) -> str:
    """A name that the provider gave, as a column takes it: printable ASCII, at most so many characters."""
    return _NOT_PRINTABLE.sub("", value)[:most] if isinstance(value, str) else ""


def storable_text(value: str) -> str:
    """What a model wrote, as a column takes it: NUL and lone surrogates become U+FFFD."""
    return _whole(value).replace(_NUL, _REPLACEMENT)


def sendable(part: Any) -> Any:
    """The part of a request without lone surrogates: a transcript may hold them, and the SDK can't encode them."""
    if isinstance(part, str):
        return _whole(part)
    if isinstance(part, dict):
        return {sendable(name): sendable(value) for name, value in part.items()}
    if isinstance(part, list | tuple):
        return [sendable(value) for value in part]
    return part


def _whole(text: str) -> str:
    """Two halves of one character that came apart, as escapes in two events do, are put together again."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
