"""Every pattern of the code reads whatever text it is given in linear time: texts come from anybody.

Each module's patterns are found, not listed, and tried on runs of what patterns are made of. A text of this length
takes a linear pattern a few milliseconds, a quadratic one a hundred times that.
"""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

# Characters, and most seconds that a linear pattern takes for them: an exponential one shows at the first length, one
# that is quadratic must be tried at the last, and the one between tells which need not.
LENGTHS = ((24, 0.02), (1_000, 0.0005), (10_000, 0.06))
BEGINNINGS = ("", "- ", "# ", "<a", "<!--", "[", "(", "**", "`", "http://", "\x1b[", "cat ", "1. ")
RUNS = (
    *(
        " ",
        "\t",
        "\n",
        "a",
        "A",
        "1",
        "é",
        "决",
        "_",
        "-",
        "*",
        "/",
        ".",
        "<",
        "(",
        "[",
        "{",
        '"',
        "'",
        "`",
        "#",
        "\\",
        "@",
    ),
    *("<!--", "~~~", "```", "\x1b[", ": ", "a ", "a.", "a/", "a:", "1.", "- ", "$ ", "a=", "--a ", "\n ", "\n- ", "1;"),
    *("<a ", "a_", "C:\\a", "</", "Error:\n", "a/b.py ", "**a", "[a](", "[ ] ", "cat a\n", ";", "; "),
)
ENDS = ("x", "_ \x00")

# Used with match() alone, at one place of a text, so that they begin once; or on what was cut to a bound before.
AT_ONE_PLACE = {
    ("compaction_app.admin.rendering.images", "_BASE64"),
    ("sessions_app.transcript.messages", "_WRAPPED"),
}
BOUNDED = {("compaction_app.engine.extractive.names", "NAME"): 500}  # characters without a blank: without_blobs


def patterns() -> Iterator[tuple[str, str, re.Pattern[Any]]]:
    seen: set[int] = set()
    for package in ("sessions_app", "compaction_app", "compaction_site"):
        path = importlib.import_module(package).__path__
        for info in pkgutil.walk_packages(path, f"{package}."):
            if ".migrations" in info.name or info.name.endswith("asgi"):
                continue
            for name, value in vars(importlib.import_module(info.name)).items():
                for found in _within(value):
                    if id(found) not in seen:
                        seen.add(id(found))
                        yield info.name, name, found


def _within(value: object) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, Mapping):
        yield from _within(list(value.values()))
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _within(one)


def seconds(pattern: re.Pattern[Any], text: Any, *, at_one_place: bool) -> float:
    began = time.process_time()
    pattern.match(text)
    pattern.fullmatch(text)
    if not at_one_place:
        for _ in pattern.finditer(text):
            pass
    return time.process_time() - began


def slow_on(module: str, name: str, pattern: re.Pattern[Any]) -> Iterator[str]:
    source = pattern.pattern.decode("latin-1") if isinstance(pattern.pattern, bytes) else pattern.pattern
    own = tuple(dict.fromkeys(re.findall(r"<?/?[A-Za-z][A-Za-z-]{2,}>?", source)))[:4]
    longest = BOUNDED.get((module, name), LENGTHS[-1][0])
    alone = (module, name) in AT_ONE_PLACE
    for beginning, run, end in itertools.product((*BEGINNINGS, *own), (*RUNS, *own), ENDS):

        def is_slow(length: int, most: float, told: tuple[str, str, str] = (beginning, run, end)) -> bool:
            length = min(length, longest)
            text: Any = told[0] + (told[1] * length)[:length] + told[2]
            text = text.encode() if isinstance(pattern.pattern, bytes) else text
            # Up to three times: the machine may have been busy.
            return all(seconds(pattern, text, at_one_place=alone) > most for _ in range(3))

        if is_slow(*LENGTHS[0]) or (is_slow(*LENGTHS[1]) and is_slow(*LENGTHS[2])):
            yield f"{module}.{name}: {beginning!r} + {run!r} * n + {end!r}"
            return


@pytest.mark.thorough
def test_no_text_holds_a_pattern_up() -> None:
    found = [(module, name, pattern) for module, name, pattern in patterns() if "rest_framework" not in module]
    assert len(found) > 60
    slow = [told for one in found for told in itertools.islice(slow_on(*one), 1)]
    assert slow == []


@pytest.mark.parametrize("bad", [r"[a-z.]+@", r"^\s*#", r"(.+?)[ #]*$", r"\b[a-z]+(?:[A-Z][A-Za-z0-9]*)+\b"])
@pytest.mark.thorough
def test_the_test_finds_one(bad: str) -> None:
    assert list(slow_on("here", "x", re.compile(bad, re.MULTILINE | re.ASCII)))
