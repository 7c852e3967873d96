"""A request body of the Anthropic Messages API, for a request as `transcript/request.py` builds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

NAME = "anthropic"
MEDIA_TYPE = "application/json"
SUFFIX = ".json"


def document(*, model: str, system: Any, tools: Any, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The body, to the letter; what is empty is left out, but for the messages."""
    head = {"model": model, "system": system, "tools": tools}
    return {**{name: value for name, value in head.items() if value}, "messages": list(messages)}
