"""What the stub serves: (method, path pattern) -> function of the server's state and the request."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sessions_app.transcript.validation import validate_messages

Json = dict[str, Any]


class Refusal(Exception):
    """The API's own no."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        self.status, self.kind, self.message = status, kind, message
        super().__init__(message)


def invalid(message: str) -> Refusal:
    return Refusal(400, "invalid_request_error", message)


def model(name: str, window: int | None = 200_000, output: int | None = 64_000) -> Json:
    """A model as the Models API lists it. `window` and `output` in tokens."""
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": "2026-01-01T00:00:00Z",
        "lifecycle": "active",
        "deprecated_at": None,
        "retires_at": None,
        "line": None,
        "max_input_tokens": window,
        "max_tokens": output,
        "capabilities": None,
    }


@dataclass
class State:
    """What the stub knows. `page_models`: a page holds no more, whatever is asked for. `count`: body -> tokens."""

    models: list[Json] = field(default_factory=list)
    page_models: int = 1_000
    count: Callable[[Json], int] = lambda body: len(repr(body)) // 4

    def has(self, name: str) -> bool:
        """A name without its date is an alias of the newest that has one."""
        return any(row["id"] == name or re.fullmatch(re.escape(name) + r"-\d{8}", row["id"]) for row in self.models)


@dataclass(frozen=True)
class Call:
    """One request, read. `names`: what the path's pattern matched; `query` and `body` as sent."""

    names: dict[str, str]
    query: dict[str, str]
    body: Json


def list_models(state: State, call: Call) -> Json:
    _only(call.query, {"limit", "after_id", "before_id", "lifecycle", "beta"})
    limit = call.query.get("limit", "20")
    if not limit.isdigit() or not 1 <= int(limit) <= 1_000:
        raise invalid("limit: allowed is 1 to 1000")
    names = [row["id"] for row in state.models]
    after = call.query.get("after_id")
    if after is not None and after not in names:
        raise invalid("after_id: no such model")
    start = names.index(after) + 1 if after is not None else 0
    end = start + min(int(limit), state.page_models)
    rows = state.models[start:end]
    return {
        "data": rows,
        "has_more": end < len(names),
        "first_id": rows[0]["id"] if rows else None,
        "last_id": rows[-1]["id"] if rows else None,
    }


def show_model(state: State, call: Call) -> Json:
    for row in state.models:
        if row["id"] == call.names["name"]:
            return row
    raise Refusal(404, "not_found_error", f"model: {call.names['name']}")


COUNT_KEYS = {"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control"}
BETA_COUNT_KEYS = {"context_management", "compaction", "mcp_servers"}


def count_tokens(state: State, call: Call) -> Json:
    body = call.body
    _only(body, COUNT_KEYS | BETA_COUNT_KEYS)
    _check_model(state, body)
    _check_context(body)
    return {"input_tokens": state.count(body)}


def _only(given: Json, allowed: set[str]) -> None:
    extra = sorted(set(given) - allowed)
    if extra:
        raise invalid(f"{extra[0]}: Extra inputs are not permitted")


def _check_model(state: State, body: Json) -> None:
    name = body.get("model")
    if not isinstance(name, str) or not name:
        raise invalid("model: Field required")
    if not state.has(name):
        raise Refusal(404, "not_found_error", f"model: {name}")


def _check_context(body: Json) -> None:
    """System, tools and messages, as strictly as the service's own reader of requests."""
    if not isinstance(body.get("messages"), list):
        raise invalid("messages: Field required")
    problems = validate_messages(messages=body["messages"])
    if problems:
        raise invalid(problems[0])
    if "system" in body and not isinstance(body["system"], (str, list)):
        raise invalid("system: Input should be a valid string or list")
    if "tools" in body and not isinstance(body["tools"], list):
        raise invalid("tools: Input should be a valid list")


Handler = Callable[[State, Call], Json]
ROUTES: list[tuple[str, re.Pattern[str], Handler]] = [
    ("GET", re.compile(r"/v1/models"), list_models),
    ("GET", re.compile(r"/v1/models/(?P<name>[^/]+)"), show_model),
    ("POST", re.compile(r"/v1/messages/count_tokens"), count_tokens),
]
