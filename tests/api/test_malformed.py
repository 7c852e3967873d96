"""Bodies that no honest client sends, at every address that takes one: refused in the one shape, nothing stored."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from django.test.client import BOUNDARY, MULTIPART_CONTENT

from tests.api.routes import CALLS, Route
from tests.api.test_isolation import stored
from tests.api.test_openapi import document, ids_for, operation
from tests.api.test_query_budgets import compacted, example, make_hook
from tests.cast import Cast, errors
from tests.transcript_lines import file_of, human

__all__ = ["document"]
FORM = "imports/"  # takes a form
FILE = b'file; filename="a.jsonl"'
WRITING = [(r, m) for r, m in CALLS if m in ("POST", "PUT", "PATCH") and r.pattern != FORM]
every_writing = pytest.mark.parametrize(("route", "method"), WRITING, ids=[f"{m} {r.pattern}" for r, m in WRITING])
BOM = b"\xef\xbb\xbf"
NOT_JSON = {
    "nan": b'{"title": NaN}',
    "infinity": b'{"title": -Infinity}',
    "overflow": b'{"title": 1e400}',
    "1e5000": b'{"title": 1e5000}',
    "huge whole number": b'{"title": ' + b"9" * 10_000 + b"}",
    "a name twice": b'{"title": "a", "title": "b"}',
    "a name twice within": b'{"metadata": {"a": [{"b": 1, "b": 1}]}}',
    "not utf-8": b'{"title": "\xff"}',
    "cut": b'{"title": "a',
    "two values": b"{} {}",
    "deep list": b"[" * 10_000,
    "deep object": b'{"a":' * 10_000,
    "deep and closed": b"[" * 10_000 + b"]" * 10_000,
    "nothing but a bom": BOM,
    "two boms": BOM + BOM + b"{}",
    "utf-16": '{"title": "a"}'.encode("utf-16"),
    "blank": b" \n",
    "single quotes": b"{'title': 1}",
}
OTHER_KINDS = [None, 1, "text", True, [1], [[]], [None]]
ODD = ["a\x00b", "a\ud800b", "\udfff"]
LONG = "x" * 100_000
LONGEST_REFUSAL = 5_000  # bytes


@pytest.fixture
def path(cast: Cast, route: Route) -> str:
    run = compacted(cast.alices_team)
    return route.path(**ids_for(route, run.session, run, make_hook(cast.alices_team)))


@every_writing
@pytest.mark.django_db
class TestEveryAddress:
    @pytest.mark.thorough
    def test_what_is_no_body_for_it(
        self, cast: Cast, document: dict[str, Any], path: str, route: Route, method: str
    ) -> None:
        self.what_is_no_json(cast, path, route, method)
        self.another_kind_of_value(cast, path, route, method)
        self.another_media_type(cast, path, route, method)
        body, _ = example(operation(document, route, method))
        self.ten_million_characters(cast, path, method, body)
        self.a_mark_of_the_byte_order_is_no_part_of_it(cast, path, method, body)

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
            "",
        ):
            answer = cast.alice.call(method, path, b"{}", content_type=kind)
            assert (answer.status_code, errors(answer)) == (415, [("unsupported_media_type", None)]), kind
        assert stored() == before

    def ten_million_characters(self, cast: Cast, path: str, method: str, example: Any) -> None:
        before = stored()
        long = "x" * 10_000_000
        for body in ({"no_such_field": long}, {long[:1_000_000]: 1}, *islice(with_text(example, long), 1)):
            answer = cast.alice.call(method, path, body)
            assert answer.status_code in (400, 413)
            assert len(answer.content) < LONGEST_REFUSAL
        assert stored() == before

    def a_mark_of_the_byte_order_is_no_part_of_it(self, cast: Cast, path: str, method: str, example: Any) -> None:
        answer = cast.alice.call(method, path, BOM + json.dumps(example).encode())
        assert answer.status_code < 300, answer.content

    @pytest.mark.thorough
    def test_texts_that_are_odd_or_not_there(
        self, cast: Cast, document: dict[str, Any], path: str, route: Route, method: str
    ) -> None:
        self.odd_characters_in_every_text(cast, document, path, route, method)
        self.an_empty_body_is_an_empty_object(cast, document, path, route, method)

    def odd_characters_in_every_text(
        self, cast: Cast, document: dict[str, Any], path: str, route: Route, method: str
    ) -> None:
        taken = operation(document, route, method)["requestBody"]["content"]["application/json"]
        values = [example["value"] for example in taken["examples"].values()]
        before = stored()
        for changed in (changed for value in values for text in (*ODD, LONG) for changed in with_text(value, text)):
            if isinstance(changed, dict):
                changed.pop("wait", None)
            answer = cast.alice.call(method, path, changed)
            assert answer.status_code < 500, (changed, answer.content)
            if answer.status_code < 300:
                before = stored()
                continue
            assert errors(answer)
            assert len(answer.content) < LONGEST_REFUSAL
            assert stored() == before

    def an_empty_body_is_an_empty_object(
        self, cast: Cast, document: dict[str, Any], path: str, route: Route, method: str
    ) -> None:
        """What needs fields says so."""
        before, is_needed = stored(), operation(document, route, method)["requestBody"].get("required", False)
        answer = cast.alice.call(method, path, b"")
        assert (answer.status_code == 400) is is_needed, answer.content
        assert answer.status_code < 300 or {code for code, _ in errors(answer)} == {"required"}
        assert not is_needed or stored() == before


@pytest.mark.django_db
class TestForms:
    """What is no form, and a file that is no transcript: tests/api/test_imports.py."""

    @pytest.fixture(autouse=True)
    def own_folder(self, settings: Any, tmp_path: Any) -> None:
        settings.MEDIA_ROOT = settings.FILE_UPLOAD_TEMP_DIR = str(tmp_path)

    def post(self, cast: Cast, *parts: tuple[bytes, bytes]) -> Any:
        """Parts of a form, each as it is named and what it holds."""
        edge = b"--" + BOUNDARY.encode()
        body = b"".join(
            edge + b"\r\nContent-Disposition: form-data; name=" + name + b"\r\n\r\n" + value + b"\r\n"
            for name, value in parts
        )
        return cast.alice.call("POST", "imports/", body + edge + b"--\r\n", content_type=MULTIPART_CONTENT)

    @pytest.mark.parametrize(
        ("more", "expected"),
        [
            ([(b"f%d" % n, b"1") for n in range(1_500)], ("parse_error", None)),
            ([(b'f%d; filename="a"' % n, b"1") for n in range(150)], ("parse_error", None)),
            ([(b"x" * 100_000, b"1")], ("parse_error", None)),
            ([(b"fo\x00rmat", b"1")], ("unknown_field", "fo\x00rmat")),
            ([(b"format", b"a\x00b")], ("invalid_choice", "format")),
            ([(b"format", b"\xff")], ("invalid_choice", "format")),
            ([(b"format", b"x" * 10_000_000)], ("invalid_choice", "format")),
        ],
        ids=["fields", "files", "long name", "nul in a name", "nul", "not utf-8", "long"],
    )
    def test_one_with_too_much_or_odd_parts_is_refused(
        self, cast: Cast, tmp_path: Any, more: list[tuple[bytes, bytes]], expected: tuple[str, str | None]
    ) -> None:
        before = stored()
        answer = self.post(cast, (FILE, file_of(human("u1", None, "Hello")).getvalue()), *more)
        assert (answer.status_code, errors(answer)) == (400, [expected])
        assert len(answer.content) < LONGEST_REFUSAL
        assert stored() == before
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []

    @pytest.mark.parametrize(
        ("given", "name"),
        [
            (b'"a\x00b.jsonl"', "ab.jsonl"),
            (b'"../../etc/a.jsonl"', "a.jsonl"),
            (b'"<b>.jsonl"', "<b>.jsonl"),
            (b'"&#xD800;.jsonl"', "\ufffd.jsonl"),
        ],
    )
    def test_a_files_odd_name(self, cast: Cast, given: bytes, name: str) -> None:
        file = file_of(human("u1", None, "Hello")).getvalue()
        answer = self.post(cast, (b"file; filename=" + given, file))
        assert (answer.status_code, answer.json()["name"]) == (201, name)


def test_too_many_parameters_of_an_address(db: None, cast: Cast) -> None:
    answer = cast.alice.read("sessions/?" + "&".join(["page_size=1"] * 1_500))
    assert (answer.status_code, errors(answer)) == (400, [("parse_error", None)])


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
    def test_ten_million_characters_come_back(self, cast: Cast) -> None:
        session = cast.alice.send("sessions/").json()["id"]
        long = "\x00字" + "x" * 10_000_000
        assert cast.alice.send(f"sessions/{session}/messages/", {"role": "user", "content": long}).status_code == 201
        [message] = cast.alice.read(f"sessions/{session}/messages/").json()["results"]
        assert message["content"] == long
        exported = b"".join(cast.alice.read(f"sessions/{session}/export/").streaming_content)
        assert json.loads(exported.splitlines()[0])["message"]["content"] == long

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
