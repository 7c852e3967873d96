"""What a client must stay within, told in the OpenAPI document: in words, and as `info.x-limits` for programs."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from compaction_app.api.codec import DEEPEST
from compaction_app.api.compact import LONGEST_WAIT
from compaction_app.api.filters import LONGEST_SEARCH
from compaction_app.api.idempotency import LONGEST_KEY
from compaction_app.api.messages import MOST_AT_ONCE
from compaction_app.api.pagination import NewestFirst
from compaction_app.api.state import MOST_BYTES
from sessions_app.policy import Policy

WORDS = {
    "body_bytes": "bytes of a body (413 `body_too_large`)",
    "state_bytes": "bytes of a `state/` (413)",
    "json_depth": "levels of nested JSON (400 `parse_error`)",
    "messages_per_call": "messages that one call appends (400 `max_length`)",
    "page_size": "rows of a page; more is answered with as many",
    "search_characters": "characters of a search (400 `max_length`)",
    "wait_seconds": "seconds of a `wait` (400 `max_value`)",
    "requests_per_minute": "requests of one key in any sixty seconds (429 `throttled`); a team may have another figure",
    "import_upload_bytes": "bytes of an imported file as it is sent (413)",
    "import_unpacked_bytes": "bytes that a gzip of it may unpack to",
    "idempotency_key_characters": "characters of an `Idempotency-Key` (400 `invalid`)",
    "idempotency_hours": "hours that the answer to one is kept",
}


def limits() -> dict[str, int]:
    """As this service is set; what teams may set differently, as it is without that."""
    policy = Policy(**settings.COMPACTION_POLICY)
    return {
        "body_bytes": settings.DATA_UPLOAD_MAX_MEMORY_SIZE,
        "state_bytes": MOST_BYTES,
        "json_depth": DEEPEST,
        "messages_per_call": MOST_AT_ONCE,
        "page_size": NewestFirst.max_page_size,
        "search_characters": LONGEST_SEARCH,
        "wait_seconds": LONGEST_WAIT,
        "requests_per_minute": policy.api_requests_per_minute,
        "import_upload_bytes": policy.import_upload_bytes,
        "import_unpacked_bytes": policy.import_unpacked_bytes,
        "idempotency_key_characters": LONGEST_KEY,
        "idempotency_hours": policy.idempotency_hours,
    }


def tell_list_bounds(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """A hook of the generator: that an append takes messages, and how many; the view knows it, the serializer not."""
    for form in result["components"]["schemas"]["NewMessagesRequest"]["oneOf"]:
        if form.get("type") == "array":
            form |= {"minItems": 1, "maxItems": MOST_AT_ONCE}
    result["paths"]["/api/v1/sessions/{session_id}/messages/"]["post"]["requestBody"]["required"] = True
    return result


def tell_limits(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """A hook of the generator: the document with its limits."""
    found = limits()
    lines = [f"- {found[name]:,} {words}" for name, words in WORDS.items()]
    result["info"]["description"] += "\n\nAt most:\n\n" + "\n".join(lines)
    result["info"]["x-limits"] = found
    return result
