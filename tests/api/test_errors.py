"""One error shape everywhere, and never a 500 for what a client sends."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIRequest
from django.db import OperationalError
from rest_framework.exceptions import Throttled

from compaction_app import selectors
from compaction_app.api import base
from compaction_app.api.codec import DEEPEST, JsonRenderer
from compaction_app.api.messages import MessagesView
from sessions_app.models import Session
from tests.cast import Api, Cast, errors


def messages(session: Session) -> str:
    return f"sessions/{session.uuid}/messages/"


def nested(levels: int) -> bytes:
    return b'{"role":"user","content":[{"type":"x","v":' + b"[" * levels + b"]" * levels + b"}]}"


class TestBody:
    def test_it_works(self, api: Api, session: Session) -> None:
        body = b'\xef\xbb\xbf{"role": "user", "content": "with a byte order mark"}'
        assert api.send(messages(session), body).status_code == 201

    @pytest.mark.parametrize(
        "body",
        [
            b"{",
            b"{'a': 1}",
            b"\xff\xfe",
            b'"\xed\xa0\x80"',
            b"NaN",
            b'{"role": "user", "content": [{"type": "x", "v": NaN}]}',
            b'{"role": "user", "content": [{"type": "x", "v": -Infinity}]}',
            b'{"role": "user", "content": [{"type": "x", "v": 1e999}]}',
            b'{"role": "user", "content": [{"type": "x", "v": ' + b"9" * 5_000 + b"}]}",
            b"[" * 100_000,
            b"[" * 100_000 + b"]" * 100_000,
            b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
            nested(DEEPEST),
            b'{"role": "user", "role": "user", "content": "x"}',
            b'{"role": "user", "content": [{"type": "x", "v": {"a": 1, "\\u0061": 2}}]}',
        ],
        ids=range(15),
    )
    def test_what_is_no_json_is_400(self, api: Api, session: Session, body: bytes) -> None:
        for path in (messages(session), "sessions/"):
            answer = api.send(path, body)
            assert (answer.status_code, errors(answer)) == (400, [("parse_error", None)])
        assert not session.messages.exists()

    def test_the_deepest_that_is_taken_goes_all_the_way(self, api: Api, session: Session) -> None:
        assert api.send(messages(session), nested(DEEPEST - 4)).status_code == 201
        assert api.read(messages(session)).status_code == 200
        assert api.read(f"sessions/{session.uuid}/context/").status_code == 200

    @pytest.mark.parametrize(
        "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "x", ""]
    )
    def test_another_content_type_is_415(self, api: Api, session: Session, kind: str) -> None:
        answer = api.send(messages(session), b"a=1", content_type=kind)
        assert (answer.status_code, errors(answer)) == (415, [("unsupported_media_type", None)])

    @pytest.mark.parametrize("charset", ["utf-8", "latin-1", "nonsense", "hex", "utf-16"])
    def test_json_is_utf_8_whatever_is_said(self, api: Api, session: Session, charset: str) -> None:
        body = '{"role": "user", "content": "é"}'.encode()
        answer = api.send(messages(session), body, content_type=f"application/json; charset={charset}")
        assert answer.status_code == 201
        assert session.messages.get().content == "é"

    def test_too_large_a_body_is_413(self, api: Api, session: Session, settings: Any) -> None:
        settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1_000
        for path in (messages(session), f"sessions/{session.uuid}/compact/", "sessions/"):
            answer = api.send(path, b'{"content": "' + b"x" * 1_000 + b'"}')
            assert (answer.status_code, errors(answer)) == (413, [("body_too_large", None)])
        assert "1,000 bytes" in answer.json()["errors"][0]["detail"]

    @pytest.mark.parametrize(("size", "status"), [(10, 201), (2_000, 413)])
    def test_a_body_in_chunks(self, api: Api, session: Session, settings: Any, size: int, status: int) -> None:
        """Over ASGI, as the service is served; such a request names no length."""
        settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1_000
        headers = {
            "authorization": api.defaults["HTTP_AUTHORIZATION"],
            "content-type": "application/json",
            "transfer-encoding": "chunked",
        }
        scope = {
            "type": "http",
            "method": "POST",
            "path": f"/api/v1/{messages(session)}",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        body = b'{"role": "user", "content": "' + b"x" * size + b'"}'
        request = ASGIRequest(scope, io.BytesIO(body))
        answer = MessagesView.as_view()(request, session_id=session.uuid)
        assert answer.status_code == status


class TestAddress:
    @pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"])
    @pytest.mark.parametrize(
        "path", ["/api/v1/nothing/", "/api/v2/sessions/", "/api/", "/api/v1/sessions", "/api/x/%00%ff"]
    )
    def test_an_unknown_one_is_404(self, cast: Cast, method: str, path: str) -> None:
        for someone in (cast.alice, cast.nobody):
            answer = someone.call(method, path, {})
            assert (answer.status_code, errors(answer)) == (404, [("not_found", None)])

    def test_a_missing_slash_is_explained(self, api: Api) -> None:
        assert "end in a slash" in api.read("sessions").json()["errors"][0]["detail"]

    @pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE"])
    def test_a_method_that_is_not_there_is_405(self, api: Api, method: str) -> None:
        answer = api.call(method, "sessions/")
        assert (answer.status_code, errors(answer)) == (405, [("method_not_allowed", None)])
        assert answer.headers["Allow"] == "GET, HEAD, POST"

    def test_a_head_is_a_get_without_body(self, api: Api) -> None:
        answer = api.call("HEAD", "sessions/")
        assert (answer.status_code, answer.content) == (200, b"")

    def test_another_answer_than_json_can_not_be_had(self, api: Api) -> None:
        answer = api.call("GET", "sessions/", headers={"Accept": "text/csv"})
        assert (answer.status_code, errors(answer)) == (406, [("not_acceptable", None)])


class TestServer:
    @pytest.mark.parametrize("debug", [False, True])
    def test_a_bug_is_500_without_details(
        self, api: Api, session: Session, monkeypatch: pytest.MonkeyPatch, settings: Any, debug: bool
    ) -> None:
        def boom(**_: Any) -> None:
            raise ZeroDivisionError("secret text")

        settings.DEBUG = debug
        monkeypatch.setattr(selectors, "token_state", boom)
        answer = api.read(f"sessions/{session.uuid}/token-state/")
        assert (answer.status_code, errors(answer)) == (500, [("error", None)])
        assert b"secret" not in answer.content
        assert b"Zero" not in answer.content

    def test_a_database_that_is_locked_is_503_and_may_be_tried_again(
        self, api: Api, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def locked(**_: Any) -> None:
            raise OperationalError("database is locked")

        monkeypatch.setattr(selectors, "token_state", locked)
        answer = api.read(f"sessions/{session.uuid}/token-state/")
        assert (answer.status_code, errors(answer)) == (503, [("busy", None)])
        assert answer.headers["Retry-After"] == "5"

    def test_a_bug_outside_a_view_has_the_same_shape(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        def boom(*_: Any) -> None:
            raise ZeroDivisionError("secret text")

        monkeypatch.setattr(JsonRenderer, "render", boom)
        answer = api.read("sessions/")
        assert (answer.status_code, errors(answer)) == (500, [("error", None)])

    def test_a_host_that_is_not_served_is_400(self, api: Api) -> None:
        answer = api.get("/api/v1/sessions/", headers={"Host": "evil.example"})
        assert (answer.status_code, errors(answer)) == (400, [("bad_request", None)])
        assert api.get("/admin/", headers={"Host": "evil.example"}).headers["Content-Type"].startswith("text/html")

    def test_too_many_requests_is_429(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        def slow_down(*_: Any) -> None:
            raise Throttled(wait=7)

        monkeypatch.setattr(base.ApiView, "check_throttles", slow_down)
        answer = api.read("sessions/")
        assert (answer.status_code, errors(answer)) == (429, [("throttled", None)])
        assert answer.headers["Retry-After"] == "7"
