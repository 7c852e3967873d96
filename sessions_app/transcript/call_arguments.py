"""Arguments of a tool's call: a JSON text for OpenAI, an object for Anthropic. What is none stands under RAW."""

from __future__ import annotations

import json
from typing import Any

from sessions_app.transcript.json_values import DEEPEST, Unreadable, whole_value

RAW = "_raw"  # facts: transcript formats, section 9
DEEPEST_INPUT = DEEPEST - 10  # they come to stand some levels down in a content


def input_of(*, arguments: object) -> dict[str, Any]:
    """The object that the arguments are; a text that is none, whole under RAW. No arguments are an empty object."""
    if isinstance(arguments, dict):
        return arguments
    if arguments is None or arguments == "":
        return {}
    if not isinstance(arguments, str):
        return {RAW: json.dumps(arguments, separators=(",", ":"))}
    try:
        value = whole_value(text=arguments, deepest=DEEPEST_INPUT)
    except Unreadable:
        return {RAW: arguments}
    return value if isinstance(value, dict) else {RAW: arguments}


def arguments_of(*, input: object) -> str:
    """The text that `input_of` reads as this object."""
    given = input if isinstance(input, dict) else {}
    raw = given.get(RAW) if len(given) == 1 else None
    if isinstance(raw, str) and input_of(arguments=raw) == given:
        return raw
    return json.dumps(given, ensure_ascii=False, separators=(",", ":"))
