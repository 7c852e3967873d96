"""What a figure of the policy table is: its kind and bounds, and how a value for it is checked.

The table itself is `policy.py`. Kinds: whole number, number, switch, choice among words, a table of tools, and a
table of prices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any


class PolicyError(ValueError):
    """A value for a figure that is not allowed; the message names figure, value and what is allowed."""


# What is named to the letter; and the patterns, the one that wins first, each behind the letters that it begins with.
_Order = tuple[dict[str, bool], list[tuple[str, str, bool]]]
_LETTERS = re.compile(r"[^*?\[]*")
MOST_KNOWN = 1_000  # answers that a table keeps; a session has far fewer tools


@dataclass(frozen=True, slots=True)
class ToolTable:
    """Which tools' results may be cleared: (name or pattern, yes or no) pairs.

    A name to the letter wins over a pattern (`mcp__*`), a longer pattern over a shorter one, `no` over `yes` among
    equally long ones. A tool that nothing names is not compactable.
    """

    rules: tuple[tuple[str, bool], ...] = ()
    # Every result of a view is asked about by every link, so what was found out is kept with the table.
    _order: list[_Order] = field(default_factory=list, init=False, repr=False, compare=False)
    _known: dict[str, bool] = field(default_factory=dict, init=False, repr=False, compare=False)

    def allows(self, name: str) -> bool:
        """Whether results of the tool `name` may be cleared."""
        answer = self._known.get(name)
        if answer is None:
            answer = self._answer(name)
            if len(self._known) < MOST_KNOWN and len(name) <= LONGEST_RULE:
                self._known[name] = answer
        return answer

    def _answer(self, name: str) -> bool:
        if not self._order:
            self._order.append(_in_order(self.rules))
        exact, patterns = self._order[0]
        if name in exact:
            return exact[name]
        # What a pattern begins with is compared first: of many rules for many servers nearly all end there.
        hits = (allowed for head, rule, allowed in patterns if name.startswith(head) and fnmatchcase(name, rule))
        return next(hits, False)

    def overridden(self, changes: Mapping[str, bool]) -> ToolTable:
        """The table with the rules of `changes` laid over it."""
        return ToolTable(rules=tuple({**dict(self.rules), **changes}.items()))

    def as_json(self) -> dict[str, bool]:
        return dict(self.rules)


@dataclass(frozen=True, slots=True)
class PriceTable:
    """What models cost: (beginning of a model's id, USD a million input tokens, USD a million output tokens).

    The longest beginning wins. A model that nothing names has no price.
    """

    rows: tuple[tuple[str, float, float], ...] = ()

    def price_of(self, model: str) -> tuple[float, float] | None:
        """USD a million input and output tokens; None for a model that has no price. Vendor prefixes are ignored."""
        name = model.lower()
        name = name[max(name.find("claude-"), 0) :]
        known = [row for row in self.rows if name.startswith(row[0].lower())]
        found = max(known, key=lambda row: len(row[0]), default=None)
        return (found[1], found[2]) if found else None

    def overridden(self, changes: Mapping[str, Sequence[float]]) -> PriceTable:
        """The table with the prices of `changes` (beginning of an id -> input, output) laid over it."""
        prices = {name: (given, written) for name, given, written in self.rows}
        prices.update({name: (float(pair[0]), float(pair[1])) for name, pair in changes.items()})
        return PriceTable(rows=tuple((name, *pair) for name, pair in prices.items()))

    def as_json(self) -> dict[str, list[float]]:
        return {name: [given, written] for name, given, written in self.rows}


# Figures that are tables: an override adds to them row by row.
Tables = ToolTable | PriceTable


def _in_order(rules: Sequence[tuple[str, bool]]) -> _Order:
    heads = ((_LETTERS.match(rule), rule, allowed) for rule, allowed in rules)
    patterns = [(head[0], rule, allowed) for head, rule, allowed in heads if head and head[0] != rule]
    return dict(rules), sorted(patterns, key=lambda one: (-len(one[1]), one[2]))


def figure(
    default: Any,
    *,
    unit: str,
    meaning: str,
    low: float | None = None,
    high: float | None = None,
    env: str = "",
    choices: tuple[str, ...] = (),
    optional: bool = False,
    service: bool = False,
    off_is_final: bool = False,
) -> Any:
    """One line of the table.

    `env`: the variable that sets it; a leading "!" means that the variable switches it off. `optional`: a whole number
    that may be unset (None). `service`: holds for the whole service, no team or session may change it.
    `off_is_final`: what the environment has switched off, no team or session switches on.
    """
    metadata = {
        "unit": unit,
        "meaning": meaning,
        "low": low,
        "high": high,
        "env": env,
        "choices": choices,
        "optional": optional,
        "service": service,
        "off_is_final": off_is_final,
        "kind": _kind(default, choices=choices, optional=optional),
    }
    return field(default=default, metadata=metadata)


def _kind(default: object, *, choices: tuple[str, ...], optional: bool) -> str:
    if isinstance(default, ToolTable):
        return "tools"
    if isinstance(default, PriceTable):
        return "prices"
    if isinstance(default, bool):
        return "switch"
    if choices:
        return "choice"
    return "whole" if optional or isinstance(default, int) else "number"


MOST_RULES, LONGEST_RULE = 500, 200
LARGEST = 1_000_000_000  # where the table names no upper bound; sums of figures must fit the columns that hold them


def checked(*, name: str, value: object, metadata: Mapping[str, Any]) -> Any:
    """`value` as the figure takes it. Raises PolicyError naming the figure, the value and what is allowed."""
    kind = metadata["kind"]
    if kind == "switch":
        if not isinstance(value, bool):
            raise _refused(name, value, "true or false")
        return value
    if kind == "choice":
        if value not in metadata["choices"]:
            raise _refused(name, value, f"one of {', '.join(metadata['choices'])}")
        return value
    if kind == "tools":
        return _checked_tools(name, value)
    if kind == "prices":
        return _checked_prices(name, value)
    return _checked_number(name, value, metadata)


def _checked_number(name: str, value: object, metadata: Mapping[str, Any]) -> Any:
    whole = metadata["kind"] == "whole"
    low, high = metadata["low"], metadata["high"] if metadata["high"] is not None else LARGEST
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        raise PolicyError(f"{name}={_shown(value)}: {'a whole number' if whole else 'a number'} is needed")
    # Not `low <= value <= high` alone: a NaN is neither below nor above.
    if value != value or (low is not None and value < low) or value > high:
        raise PolicyError(f"{name}={_shown(value)}: allowed is {bounds(metadata)}")
    return value


def _checked_tools(name: str, value: object) -> dict[str, bool]:
    allowed = 'an object of tool names or patterns, each true or false, such as {"mcp__*": true}'
    if not isinstance(value, Mapping) or len(value) > MOST_RULES:
        raise _refused(name, value, allowed)
    for rule, answer in value.items():
        if not _is_rule(rule) or not isinstance(answer, bool):
            raise _refused(f"{name}.{rule}", answer, allowed)
    return dict(value)


MOST_PRICE = 10_000  # USD a million tokens


def _checked_prices(name: str, value: object) -> dict[str, list[float]]:
    allowed = 'an object of model ids or their beginnings, each with two prices, such as {"claude-opus-5": [5, 25]}'
    if not isinstance(value, Mapping) or len(value) > MOST_RULES:
        raise _refused(name, value, allowed)
    for model, pair in value.items():
        if not _is_rule(model) or not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise _refused(f"{name}.{model}", pair, allowed)
        for price in pair:
            number = isinstance(price, (int, float)) and not isinstance(price, bool)
            if not number or not 0 <= price <= MOST_PRICE:
                raise _refused(f"{name}.{model}", price, f"0 to {MOST_PRICE} USD a million tokens")
    return {model: [float(pair[0]), float(pair[1])] for model, pair in value.items()}


def _is_rule(rule: object) -> bool:
    """What no tool's name holds, PostgreSQL refuses to keep: control characters and lone surrogates."""
    return isinstance(rule, str) and 0 < len(rule) <= LONGEST_RULE and rule.isprintable()


def _refused(name: str, value: object, allowed: str) -> PolicyError:
    return PolicyError(f"{name}={_shown(value)}: allowed is {allowed}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def bounds(metadata: Mapping[str, Any]) -> str:
    """What a figure takes, in words: "1 to 100", "0 or more", "true or false"."""
    kind, low, high = metadata["kind"], metadata["low"], metadata["high"]
    if kind == "switch":
        return "true or false"
    if kind == "choice":
        return ", ".join(metadata["choices"])
    if kind == "tools":
        return "tool names or patterns, each true or false"
    if kind == "prices":
        return "model ids or their beginnings, each with USD a million input and output tokens"
    return f"{low} to {LARGEST if high is None else high}"
