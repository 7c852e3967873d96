"""The cast: Alice owns a team and has a key that writes and one that reads; Charlie is of another team and must see
nothing of hers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.test import Client
from django.utils import timezone

from sessions_app.models import ApiKey, Team
from sessions_app.services.teams import create_api_key
from tests.factories import make_team

BASE = "/api/v1/"


class Api(Client):
    """A client that speaks JSON with one key. Paths are relative to /api/v1/; errors of the server are answers."""

    def __init__(self, key: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        super().__init__(headers=headers, raise_request_exception=False)

    def call(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """`body`: a value that is sent as JSON, or bytes that are sent as they are."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        more = {"content_type": "application/json", **more}
        return self.generic(method, path if path.startswith("/") else BASE + path, data, **more)

    def read(self, path: str, **params: Any) -> Any:
        return self.get(path if path.startswith(("/", "http")) else BASE + path, params or None)

    def send(self, path: str, body: Any = None, **more: Any) -> Any:
        return self.call("POST", path, body, **more)

    def change(self, path: str, body: Any = None) -> Any:
        return self.call("PATCH", path, body)


@dataclass(frozen=True)
class Cast:
    alices_team: Team
    alices_key: ApiKey
    alice: Api
    reader: Api  # Alice's key that may only read
    charlies_team: Team
    charlie: Api
    nobody: Api  # without a key
    ended: dict[str, Api]  # Alice's keys that hold no more, by what ended them


def keys_that_ended(team: Team) -> dict[str, Api]:
    now = timezone.now()
    revoked, revoked_key = create_api_key(team=team, name="lost")
    ApiKey.objects.filter(pk=revoked.pk).update(revoked_at=now)
    _, expired_key = create_api_key(team=team, name="trial", expires_at=now - timedelta(seconds=1))
    return {"revoked": Api(revoked_key), "expired": Api(expired_key)}


def make_cast() -> Cast:
    alices, charlies = make_team("alice"), make_team("charlie")
    row, key = create_api_key(team=alices, name="agent")
    _, read_key = create_api_key(team=alices, name="dashboard", scope=ApiKey.Scope.READ)
    _, charlies_key = create_api_key(team=charlies)
    ApiKey.objects.update(last_used_at=timezone.now())  # a first use is noted, which costs a query once a minute
    return Cast(
        alices_team=alices,
        alices_key=row,
        alice=Api(key),
        reader=Api(read_key),
        charlies_team=charlies,
        charlie=Api(charlies_key),
        nobody=Api(),
        ended=keys_that_ended(alices),
    )


def errors(answer: Any) -> list[tuple[str, str | None]]:
    """(code, attr) of each error; checks the one shape on the way."""
    body = answer.json()
    assert set(body) - {"run", "uuids"} == {"type", "errors"}, body
    assert body["type"] in {"validation_error", "client_error", "server_error"}
    assert body["errors"]
    for item in body["errors"]:
        assert set(item) == {"code", "detail", "attr"}
        assert item["code"]
        assert item["detail"]
    return [(item["code"], item["attr"]) for item in body["errors"]]


def is_uuid(text: str) -> bool:
    return str(UUID(text)) == text
