"""What the stub serves beside POST /v1/messages: (method, path pattern) -> function of state and call."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.stub_api.checks import COUNT_KEYS, check_context, check_keys, check_model
from tests.stub_api.edits import apply_edits
from tests.stub_api.state import Call, Json, Refusal, State, invalid


def list_models(state: State, call: Call) -> Json:
    check_query(call.query, {"limit", "after_id", "before_id", "lifecycle", "beta"})
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


def count_tokens(state: State, call: Call) -> Json:
    body = call.body
    check_keys(body, COUNT_KEYS, call.betas)
    check_model(state, body)
    check_context(state, body, call.betas)
    seen, edits = apply_edits(body=body, count=state.count)
    answer: Json = {"input_tokens": state.count(seen)}
    if edits is not None:
        answer["context_management"] = {"original_input_tokens": state.count(body)}
    return answer


def check_query(given: dict[str, str], allowed: set[str]) -> None:
    extra = sorted(set(given) - allowed)
    if extra:
        raise invalid(f"{extra[0]}: Extra inputs are not permitted")


Handler = Callable[[State, Call], Json]
ROUTES: list[tuple[str, re.Pattern[str], Handler]] = [
    ("GET", re.compile(r"/v1/models"), list_models),
    ("GET", re.compile(r"/v1/models/(?P<name>[^/]+)"), show_model),
    ("POST", re.compile(r"/v1/messages/count_tokens"), count_tokens),
]
