"""Figures that are tables: a row a line as a person types it, and the table in words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError

YES, NO = "yes", "no"
ANSWERS = ((YES, True), (NO, False))
KINDS = ("tools", "prices")  # of sessions_app/figures.py
SHOWN_CHARS = 80  # of a line that is refused
HINTS = {
    "tools": "A tool or pattern a line, such as “mcp__*: yes”, or a JSON object; laid over the rules beneath.",
    "prices": "A model's id, or how it begins, with the prices of a million input and output tokens in USD, a line: "
    "“claude-opus-5: 5 25”; or a JSON object; laid over the prices beneath.",
}
PLACEHOLDERS = {"tools": "mcp__*: yes", "prices": "claude-opus-5: 5 25"}
_ALLOWED = {
    "tools": "a tool or pattern, a colon, yes or no",
    "prices": "a model's id or how it begins, a colon, and two prices such as 5 25",
}
_BETWEEN_PRICES = re.compile(r"\s*/\s*|\s+")


def table_text(rows: Mapping[str, Any]) -> str:
    """A table in words: "yes: a, b; no: c", or "claude-opus-5: 5 in, 25 out", a model a line."""
    if any(isinstance(value, (list, tuple)) for value in rows.values()):
        return "\n".join(f"{name}: {_told(value)}" for name, value in rows.items())
    parts = ((word, [rule for rule, answer in rows.items() if answer is told]) for word, told in ANSWERS)
    return "; ".join(f"{word}: {', '.join(names)}" for word, names in parts if names) or "no rules"


def table_lines(rows: Mapping[str, Any]) -> str:
    """A stored table as its input takes it. Sorted: the databases do not all keep the order of an object's keys."""
    return "\n".join(f"{name}: {_typed(value)}" for name, value in sorted(rows.items()))


def read_table(*, name: str, text: str, kind: str) -> Any:
    """Rows a line, or an object in JSON. Raises ValidationError with each line that is no row."""
    if text.startswith("{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValidationError(f"{name}: this is no JSON object") from error
    rows: dict[str, Any] = {}
    problems = []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        key, _, given = (part.strip() for part in line.rpartition(":"))
        value = _answer(given) if kind == "tools" else _prices(given)
        if not key or value is None:
            problems.append(f"{name}: {line[:SHOWN_CHARS]!r}: allowed is {_ALLOWED[kind]}")
        elif rows.setdefault(key, value) != value:
            twice = "yes and no at once" if kind == "tools" else "two different prices"
            problems.append(f"{name}: {key[:SHOWN_CHARS]!r}: {twice}")
    if problems:
        raise ValidationError(problems)
    return rows


def _answer(given: str) -> bool | None:
    return dict(ANSWERS).get(given.lower())


def _prices(given: str) -> list[float] | None:
    """Two numbers; whether they may be prices is the table's to say. None for anything else."""
    try:
        found = [float(one) for one in _BETWEEN_PRICES.split(given)]
    except ValueError:
        return None
    return found if len(found) == len(("input", "output")) else None


def _told(value: Any) -> str:
    if isinstance(value, (list, tuple)) and len(value) == len(("input", "output")):
        return f"{_number(value[0])} in, {_number(value[1])} out"
    return str(value)


def _typed(value: Any) -> str:
    if isinstance(value, bool):
        return YES if value else NO
    if isinstance(value, (list, tuple)):
        return " ".join(_number(one) for one in value)
    return str(value)


def _number(value: Any) -> str:
    """Without a trailing ".0"; what is no number as it is."""
    return f"{value:.10g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
