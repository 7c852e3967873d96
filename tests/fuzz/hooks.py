"""What generated calls must not do: make everybody wait."""

from __future__ import annotations

from typing import Any

import schemathesis

from sessions_app.figures import LONGEST_RULE

SHORT = 0.2  # seconds


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """A `wait` that is a good one is a short one."""
    wait = body.get("wait") if isinstance(body, dict) else None
    if isinstance(wait, (int, float)) and not isinstance(wait, bool) and SHORT < wait <= 60:
        body["wait"] = SHORT
    return body


# What no schema can say: whether a row is there, what a file holds, which fields go together.
OF_MEANING = {
    "already_compacted",
    "auto_compact_disabled",
    "does_not_exist",
    "foreign_session",
    "import_refused",
    "missing_sections",
    "no_messages",
    "not_on_live_path",
    "nothing_on_that_side",
    "nothing_to_compact",
    "nothing_to_export",
    "reactive_compact_disabled",
    "signed_block",
    "unknown_uuid",
    # Text that no column of PostgreSQL takes.
    "null_characters_not_allowed",
    "surrogate_characters_not_allowed",
    "duplicate",
}
# The same, told by the general code: fields that a hook of another event has not, a command that is mistyped, fields
# that exclude one another, a cursor that no page gave.
INVALID_BY_MEANING = {
    "can_block",
    "required",
    "url",
    "command",
    "up_to",
    "from",
    "mode",
    "error",
    "instructions",
    "cursor",
}
# Figures whose value is an object under names of the client's.
NAMED = {"policy_overrides.compactable_tools", "policy_overrides.prices"}


@schemathesis.hook
def filter_failure(context: Any, failure: Any, case: Any, response: Any) -> bool:
    """Of bodies that keep to the schema, those are refused rightly whose meaning is wrong, by one of these codes."""
    if type(failure).__name__ != "RejectedPositiveData" or response.status_code != 400:
        return True
    return not all(_is_of_meaning(item) or _is_a_name(item, case.body) for item in response.json()["errors"])


def _is_a_name(item: dict[str, Any], body: Any) -> bool:
    """OpenAPI 3.0 can't bound the names of an object: those of tools and of models are short and can be read."""
    if item["code"] != "invalid" or item["attr"] not in NAMED or not isinstance(body, dict):
        return False
    figures = body.get("policy_overrides")
    named = figures.get(str(item["attr"]).rpartition(".")[2]) if isinstance(figures, dict) else None
    return isinstance(named, dict) and any(
        not 0 < len(name) <= LONGEST_RULE or not name.isprintable() for name in named
    )


def _is_of_meaning(item: dict[str, Any]) -> bool:
    if (item["code"], item["attr"]) == ("empty", "file"):  # of bytes the document can't say how many they are
        return True
    return item["code"] in OF_MEANING or (item["code"] == "invalid" and item["attr"] in INVALID_BY_MEANING)
