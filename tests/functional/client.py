"""A client of a served product, with nothing but the standard library."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from tests.factories import turns
from tests.functional.processes import Served


class Client:
    """What a client does over HTTP with one key."""

    def __init__(self, served: Served, key: str) -> None:
        self.served, self.key = served, key

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, Any]:
        """Status, body, headers."""
        request = urllib.request.Request(
            f"{self.served.address}/api/v1/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.key}", "Content-Type": "application/json", **headers},
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            return error.code, error.read(), error.headers

    def json(self, method: str, path: str, body: Any = None) -> Any:
        status, found, _ = self.call(method, path, body)
        assert status < 300, found
        return json.loads(found)

    def session(self, **values: Any) -> str:
        """The id of a session that there is something to compact of."""
        session: str = self.json("POST", "sessions/", {"model": "claude-sonnet-4-5", **values})["id"]
        batch = [{"role": m.role, "content": m.content, "uuid": m.uuid} for m in turns(40)]
        self.json("POST", f"sessions/{session}/messages/", batch)
        return session

    def waiting_run(self) -> str:
        """The id of a run that waits for approval."""
        session = self.session(policy_overrides={"approve_compactions": True})
        run = self.json("POST", f"sessions/{session}/compact/", {"wait": 20})
        assert run["status"] == "awaiting_approval"
        return str(run["id"])
