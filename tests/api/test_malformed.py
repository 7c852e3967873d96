"""Bodies that no honest client sends, at every address that takes one: refused in the one shape, nothing stored."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.routes import CALLS, Route
from tests.api.test_isolation import stored
from tests.api.test_openapi import document, ids_for, operation
from tests.api.test_query_budgets import compacted, make_hook
from tests.cast import Cast, errors

__all__ = ["document"]
FORM = "imports/"  # takes a form: tests/api/test_imports.py
WRITING = [(r, m) for r, m in CALLS if m in ("POST", "PUT", "PATCH") and r.pattern != FORM]
every_writing = pytest.mark.parametrize(("route", "method"), WRITING, ids=[f"{m} {r.pattern}" for r, m in WRITING])
NOT_JSON = {
    "nan": b'{"title": NaN}',
    "infinity": b'{"title": -Infinity}',
    "overflow": b'{"title": 1e400}',
    "huge whole number": b'{"title": ' + b"9" * 10_000 + b"}",
    "a name twice": b'{"title": "a", "title": "b"}',
    "not utf-8": b'{"title": "\xff"}',
    "cut": b'{"title": "a',
    "two values": b"{} {}",
    "deep list": b"[" * 10_000,
    "deep object": b'{"a":' * 10_000,
    "deep and closed": b"[" * 10_000 + b"]" * 10_000,
    "nothing but a bom": b"\xef\xbb\xbf",
    "single quotes": b"{'title': 1}",
}
OTHER_KINDS = [None, 1, "text", True, [1], [[]], [None]]
ODD = ["a\x00b", "a\ud800b", "\udfff"]


@pytest.fixture
def path(cast: Cast, route: Route) -> str:
    run = compacted(cast.alices_team)
    return route.path(**ids_for(route, run.session, run, make_hook(cast.alices_team)))


@every_writing
@pytest.mark.django_db
class TestEveryAddress:
    def test_what_is_no_body_for_it(self, cast: Cast, path: str, route: Route, method: str) -> None:
        self.what_is_no_json(cast, path, route, method)
        self.another_kind_of_value(cast, path, route, method)
        self.another_media_type(cast, path, route, method)
        self.ten_million_characters(cast, path, route, method)

    def what_is_no_json(self, cast: Cast, path: str, route: Route, method: str) -> None:
        before = stored()
        for name, body in NOT_JSON.items():
            answer = cast.alice.call(method, path, body)
            assert (answer.status_code, errors(answer)) == (400, [("parse_error", None)]), name
        assert stored() == before

    def another_kind_of_value(self, cast: Cast, path: str, route: Route, method: str) -> None:
        before = stored()
        for body in OTHER_KINDS:
            answer = cast.alice.call(method, path, json.dumps(body).encode())
            assert answer.status_code == 400, (body, answer.content)
            assert errors(answer)
        assert stored() == before

    def another_media_type(self, cast: Cast, path: str, route: Route, method: str) -> None:
        before = stored()
        for kind in (
            "text/plain",
            "application/xml",
            "multipart/form-data; boundary=x",
            "application/jsonl",
            "nonsense",
        ):
            answer = cast.alice.call(method, path, b"{}", content_type=kind)
            assert (answer.status_code, errors(answer)) == (415, [("unsupported_media_type", None)]), kind
        assert stored() == before

    def ten_million_characters(self, cast: Cast, path: str, route: Route, method: str) -> None:
        before = stored()
        long = "x" * 10_000_000
        for body in ({"no_such_field": long}, {long[:1_000_000]: 1}):
            answer = cast.alice.call(method, path, body)
            assert answer.status_code in (400, 413)
            assert len(answer.content) < 1_000
        assert stored() == before

    def test_odd_characters_in_every_text(
        self, cast: Cast, document: dict[str, Any], path: str, route: Route, method: str
    ) -> None:
        taken = operation(document, route, method)["requestBody"]["content"]["application/json"]
        for example in taken["examples"].values():
            for odd in ODD:
                for changed in with_text(example["value"], odd):
                    if isinstance(changed, dict):
                        changed.pop("wait", None)
                    before = stored()
                    answer = cast.alice.call(method, path, changed)
                    assert answer.status_code < 500, (changed, answer.content)
                    if answer.status_code >= 400:
                        assert errors(answer)
                        assert stored() == before


def with_text(value: Any, text: str) -> Iterator[Any]:
    """The value with `text` in the place of each of its texts, one at a time."""
    for place in places(value):
        changed = copy.deepcopy(value)
        inner = changed
        for key in place[:-1]:
            inner = inner[key]
        if place:
            inner[place[-1]] = text
            yield changed


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, str):
        yield at
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from places(part, (*at, key))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from places(part, (*at, number))


@pytest.mark.django_db
class TestContents:
    @pytest.mark.parametrize("odd", ODD)
    def test_what_a_tool_put_out_comes_back_everywhere(self, cast: Cast, odd: str) -> None:
        session = cast.alice.send("sessions/", {"system": f"s{odd}"}).json()["id"]
        call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": odd}}
        result = {"type": "tool_result", "tool_use_id": "t1", "content": odd}
        given = [
            {"role": "user", "content": odd},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]
        assert cast.alice.send(f"sessions/{session}/messages/", given).status_code == 201
        listed = cast.alice.read(f"sessions/{session}/messages/").json()["results"]
        assert [message["content"] for message in listed] == [message["content"] for message in given]
        context = cast.alice.read(f"sessions/{session}/context/").json()
        assert context["system"] == f"s{odd}"
        told = json.dumps(context["messages"])
        assert told.count(json.dumps(odd)[1:-1]) == 3
        for name in ("claude-code", "anthropic", "openai"):
            answer = cast.alice.read(f"sessions/{session}/export/", format=name)
            out = b"".join(answer.streaming_content).decode()
            assert json.dumps(odd)[1:-1] in out, name
        answer = cast.alice.send("sessions/", {"title": odd})
        assert answer.status_code == 400
