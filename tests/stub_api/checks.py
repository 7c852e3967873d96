"""What the API refuses about a request for a message (facts, sections 1, 5 and 15). Its context: `checks_context`."""

from __future__ import annotations

from collections.abc import Iterable

from tests.stub_api.checks_context import check_context
from tests.stub_api.checks_edits import COMPACT_EDIT, COMPACTION, EDITING, is_whole
from tests.stub_api.compaction import check_request as check_compaction
from tests.stub_api.state import Call, Json, Refusal, State, invalid

COUNT_KEYS = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control"}
)
KEYS = (
    COUNT_KEYS
    | {"max_tokens", "stream", "stop_sequences", "metadata", "container", "diagnostics", "inference_geo"}
    | {"service_tier", "speed", "user_profile_id", "workspace_id"}
)
# Keys that only a beta header (any of these; empty: any at all) makes known.
BETA_KEYS: dict[str, frozenset[str]] = {
    "context_management": frozenset({EDITING, COMPACT_EDIT}),
    "compaction": frozenset({COMPACTION}),
    "thread": frozenset({"message-threads-2026-08-12"}),
    "mcp_servers": frozenset(),
    "billing_policy": frozenset(),
    "fallbacks": frozenset(),
    "fallback_credit_token": frozenset(),
}


def check_messages(state: State, call: Call) -> None:
    """Raises Refusal at the first problem."""
    body = call.body
    check_keys(body, KEYS, call.betas)
    check_model(state, body)
    most = state.most_output(body["model"])
    wanted = body.get("max_tokens")
    if not is_whole(wanted):
        raise invalid("max_tokens: Field required" if wanted is None else "max_tokens: Input should be a valid integer")
    if wanted > most:
        raise invalid(
            f"max_tokens: {wanted} > {most}, which is the maximum allowed number of output tokens for the model"
        )
    if not isinstance(body.get("stream", False), bool):
        raise invalid("stream: Input should be a valid boolean")
    check_compaction(body, call.betas)
    if body.get("compaction") is not None and body["model"] in state.without_compaction:
        raise invalid(f"compaction: {body['model']} does not support it")
    check_context(state, body, call.betas)
    if body.get("compaction") is None and body["messages"][-1]["role"] != "user":
        raise invalid(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
    _small_parts(body)


def check_keys(body: Json, allowed: Iterable[str], betas: set[str]) -> None:
    for key in sorted(set(body) - set(allowed)):
        if key not in BETA_KEYS or not (BETA_KEYS[key] & betas if BETA_KEYS[key] else betas):
            raise invalid(f"{key}: Extra inputs are not permitted")


def check_model(state: State, body: Json) -> None:
    name = body.get("model")
    if not isinstance(name, str) or not name:
        raise invalid("model: Field required")
    if state.row(name) is None:
        raise Refusal(404, "not_found_error", f"model: {name}")


def _small_parts(body: Json) -> None:
    stops = body.get("stop_sequences", [])
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop.strip() for stop in stops):
        raise invalid("stop_sequences: each stop sequence must contain non-whitespace")
    metadata = body.get("metadata", {})
    if not isinstance(metadata, dict) or set(metadata) - {"user_id"}:
        raise invalid("metadata: Extra inputs are not permitted")
    config = body.get("output_config", {})
    if not isinstance(config, dict) or set(config) - {"effort", "format", "task_budget"}:
        raise invalid("output_config: Extra inputs are not permitted")
