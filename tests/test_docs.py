"""The pages keep up with the code: every code, reason, variable, link and address that a reader may meet is told."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import get_commands
from rest_framework import exceptions, serializers

from compaction_app.api import urls
from compaction_app.engine.links.partial import PARTIAL
from compaction_app.engine.outcome import FailureReason
from compaction_app.engine.plan import PART, PLANS
from sessions_app.policy import FIGURES

ROOT = Path(__file__).resolve().parent.parent
# Where a code of an error's answer may be made: not the admin, which has none, and not what speaks with a provider.
MAKE_CODES = ("compaction_app/api", "compaction_app/actions", "compaction_app/services", "sessions_app/services")
# What takes the code as its first argument, besides what is called with `code=…`.
HELPERS = {"refused", "fail"}


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    """From the heading to the next one of its level or above."""
    level = len(heading) - len(heading.lstrip("#"))
    begin = text.index(f"\n{heading}\n") + 1
    end = re.search(rf"^#{{1,{level}}} ", text[begin + len(heading) :], re.MULTILINE)
    return text[begin : begin + len(heading) + end.start()] if end else text[begin:]


def rows(text: str) -> list[list[str]]:
    """The cells of a page's tables, without the lines under their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def quoted(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def _code(node: ast.expr) -> str | None:
    """A code that stands there as text or as a failure reason; None for what is passed on from elsewhere."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    named = re.fullmatch(r"FailureReason\.([A-Z_]+)(?:\.value)?", ast.unparse(node))
    return FailureReason[named[1]].value if named else None


def _made_in(tree: ast.AST) -> Iterator[str | None]:
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "code":
            yield _code(node.value)
        elif isinstance(node, ast.Call) and node.args and _called(node.func) in HELPERS:
            yield _code(node.args[0])
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if node.targets[0].id == "default_code":
                yield _code(node.value)
            elif node.targets[0].id == "refused":  # fields by name: (code, reason)
                yield from (_code(one.elts[0]) for one in ast.walk(node.value) if _is_refusal(one))  # type: ignore[attr-defined]


def _called(func: ast.expr) -> str:
    return func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""


def _is_refusal(node: ast.AST) -> bool:
    return isinstance(node, ast.Tuple) and len(node.elts) == 2 and " " in ast.unparse(node.elts[1])


def codes() -> dict[str, str]:
    """Each code that is made, with one file that makes it."""
    found: dict[str, str] = {}
    for folder in MAKE_CODES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for code in _made_in(ast.parse(path.read_text(encoding="utf-8"))):
                if code is not None:
                    found.setdefault(code, str(path.relative_to(ROOT)))
    return found


CODES = codes()
ERRORS = section(page("docs/api.md"), "## Errors")
TOLD = {code for row in rows(ERRORS)[1:] for code in quoted(row[1])}


class TestErrorCodes:
    def test_they_are_found(self) -> None:
        """One of each way to make a code: if one were overlooked, the tests below would be worth nothing."""
        ways = {
            "unknown_uuid",  # by a helper
            "not_newest",  # code=
            "invalid_context",  # a failure reason
            "busy",  # default_code
            "immutable",  # a field that is known and refused
            "block",  # a field's own message
        }
        assert ways <= set(CODES)
        assert len(CODES) > 35

    @pytest.mark.parametrize("code", sorted(CODES))
    def test_each_is_told(self, code: str) -> None:
        assert code in TOLD, f"{code} ({CODES[code]}) is not in the table of docs/api.md"

    def test_nothing_is_told_that_is_not_there(self) -> None:
        assert TOLD - set(CODES) <= frameworks_own()


def subclasses(found: type[Any]) -> Iterator[type[Any]]:
    for one in found.__subclasses__():
        yield one
        yield from subclasses(one)


def frameworks_own() -> set[str]:
    """What REST framework and its fields make."""
    errors = {one.default_code for one in subclasses(exceptions.APIException) if isinstance(one.default_code, str)}
    fields = {code for one in subclasses(serializers.Field) for code in getattr(one, "default_error_messages", {})}
    # Of Django's validators, which fields of text and of numbers carry.
    return errors | fields | {"null_characters_not_allowed", "surrogate_characters_not_allowed"}


@pytest.mark.parametrize("reason", list(FailureReason))
def test_each_reason_of_a_failure_is_told(reason: FailureReason) -> None:
    told = rows(section(page("docs/compaction.md"), "## When it is accepted"))
    assert reason.value in {name for row in told for name in quoted(row[0])}


def variables() -> set[str]:
    """What the settings read by name, and what the policy table reads."""
    tree = ast.parse(page("compaction_site/settings.py"))
    read = {
        node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "name" and isinstance(node.value, ast.Constant)
    }
    keys = set(re.findall(r'"(ANTHROPIC_[A-Z_]+)"', page("compaction_site/settings.py")))
    return {str(name) for name in read} | keys | {row.metadata["env"].lstrip("!") for row in FIGURES.values()} - {""}


@pytest.mark.parametrize("name", sorted(variables()))
def test_each_variable_is_told(name: str) -> None:
    told = rows(section(page("docs/running.md"), "## Variables"))
    assert name in {one for row in told for one in quoted(row[0])}


def test_variables_are_found() -> None:
    assert {"DATA_DIR", "REDIS_URL", "ANTHROPIC_AUTH_TOKEN", "REACTIVE_COMPACT", "DISABLE_COMPACT"} <= variables()


def test_chains_are_told_in_their_order() -> None:
    told = {
        name: re.findall(r"`([^`]+)`", row[1])
        for row in rows(section(page("docs/pressure.md"), "## The chain"))[1:]
        for name in quoted(row[0])
    }
    for trigger, plan in PLANS.items():
        links = [link.name for link in plan.links] + ([plan.last_resort.name] if plan.last_resort else [])
        assert told.pop(trigger.value) == links
    assert told == {"up_to": [PARTIAL.name], "from": [PARTIAL.name]}
    assert [link.name for link in PART.links] == [PARTIAL.name]


PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("name", PAGES)
def test_links_between_pages_lead_somewhere(name: str) -> None:
    text, folder = page(name), (ROOT / name).parent
    for target in re.findall(r"\]\(([^)#\s]*)(?:#[^)]*)?\)", text):
        if target and "://" not in target:
            assert (folder / target).exists(), f"{name} links to {target}"
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)]*)\)", text):
        other = (folder / target).read_text(encoding="utf-8") if target else text
        heads = {re.sub(r"[^\w\- ]", "", head).strip().lower().replace(" ", "-") for head in _headings(other)}
        assert anchor in heads, f"{name} links to {target}#{anchor}"


def _headings(text: str) -> list[str]:
    return re.findall(r"^#+ (.+)$", text, re.MULTILINE)


@pytest.mark.parametrize("name", PAGES)
def test_commands_that_are_told_exist(name: str) -> None:
    told = set(re.findall(r"manage\.py ([a-z_]+)", page(name))) - {"means"}
    assert told <= set(get_commands())


@pytest.mark.parametrize("name", PAGES)
def test_examples_of_calls_have_an_address_and_a_body_that_can_be_read(name: str) -> None:
    """`call … $API/sessions/$ID/compact/ -d '{…}'`: an address that there is, and JSON."""
    known = [re.sub(r"<uuid:\w+>", "ID", str(entry.pattern)) for entry in urls.v1]
    for line in re.findall(r"^call .*(?:\n  .*)*", page(name), re.MULTILINE):
        [address] = re.findall(r"\$API/([^\s\"?]*)", line)
        assert re.sub(r"\$[A-Z]+", "ID", address) in known, line
        for body in re.findall(r"-d '([^']*)'", line):
            json.loads(body)
