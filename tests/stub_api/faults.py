"""How the API can fail: each row of the product's facts about errors that a caller without streaming can meet."""

from __future__ import annotations

import json
from dataclasses import dataclass


def error_body(*, kind: str, message: str) -> bytes:
    """The API's one shape of error."""
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_stub"}).encode()


@dataclass(frozen=True, slots=True)
class Fault:
    """An answer in place of the right one. `silent`: none at all until the server stops; `hangs_up`: none, ever."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    silent: bool = False
    hangs_up: bool = False


def _error(status: int, kind: str, message: str, **headers: str) -> Fault:
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Fault(status=status, body=error_body(kind=kind, message=message), headers=named)


FAULTS: dict[str, Fault] = {
    "400-too-long": _error(400, "invalid_request_error", "prompt is too long: 204123 tokens > 200000 maximum"),
    "400": _error(400, "invalid_request_error", "messages.0.SECRET-CONTENT: bad"),
    "401": _error(401, "authentication_error", "invalid key SECRET-KEY"),
    "403": _error(403, "permission_error", "not allowed"),
    "404": _error(404, "not_found_error", "model: no such model"),
    "413-html": Fault(status=413, body=b"<html><h1>413</h1></html>", content_type="text/html"),
    "429": _error(429, "rate_limit_error", "slow down", retry_after="3600"),
    "500": _error(500, "api_error", "internal error", x_should_retry="true"),
    "529": _error(529, "overloaded_error", "overloaded"),
    "garbage": Fault(body=b'{"data": [{"id": "claude-'),
    "list": Fault(body=b"[1, 2]"),
    "number": Fault(body=b"7"),
    "null-parts": Fault(body=b'{"data": null, "has_more": true, "last_id": "x", "input_tokens": null}'),
    "text-parts": Fault(body=b'{"data": "x", "has_more": false, "input_tokens": "many"}'),
    "html": Fault(body=b"<html>a proxy's page</html>", content_type="text/html"),
    "empty": Fault(body=b""),
    "silent": Fault(silent=True),
    "hangs-up": Fault(hangs_up=True),
}
