"""The figures of the policy table as the OpenAPI document tells them: by name, kind and bounds."""

from __future__ import annotations

from typing import Any

from sessions_app.figures import LARGEST, MOST_PRICE, MOST_RULES
from sessions_app.policy import FIGURES

# Of a name or a pattern nothing is asked but its length and that it can be read.
_RULES = {"minProperties": 0, "maxProperties": MOST_RULES}
_PRICE = {"type": "number", "minimum": 0, "maximum": MOST_PRICE}


def figure_schema(*, name: str) -> dict[str, Any]:
    """What the figure takes from a team or a session; null clears it. Raises KeyError."""
    told = FIGURES[name].metadata
    return {**_by_kind(told), "nullable": True, "description": f"{told['meaning']} ({told['unit']})"}


def _by_kind(told: Any) -> dict[str, Any]:
    kind = told["kind"]
    if kind == "switch":
        return {"type": "boolean"}
    if kind == "choice":
        return {"type": "string", "enum": [*told["choices"], None]}
    if kind == "tools":
        return {"type": "object", "additionalProperties": {"type": "boolean"}, **_RULES}
    if kind == "prices":
        pair = {"type": "array", "items": _PRICE, "minItems": 2, "maxItems": 2}
        return {"type": "object", "additionalProperties": pair, **_RULES}
    bounds = {"minimum": told["low"], "maximum": LARGEST if told["high"] is None else told["high"]}
    found = {key: bound for key, bound in bounds.items() if bound is not None}
    return {"type": "integer" if kind == "whole" else "number", **found}


def all_figures() -> dict[str, Any]:
    """An object of those that a team or a session may set."""
    names = [name for name, figure in FIGURES.items() if not figure.metadata["service"]]
    properties = {name: figure_schema(name=name) for name in names}
    return {"type": "object", "properties": properties, "additionalProperties": False}
