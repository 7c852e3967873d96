"""What the API refuses about system, tools, messages and what goes with them (facts, sections 5, 8 and 12)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from sessions_app.transcript.request import THINKING, TOOL_NAME
from sessions_app.transcript.validation import MOST_CACHE_MARKERS, validate_messages
from tests.stub_api.checks_edits import check_edits, is_whole
from tests.stub_api.compaction import check_replay
from tests.stub_api.prefix import kept_seconds, result_parts
from tests.stub_api.state import Json, State, invalid

TTLS = ("5m", "1h")
THINKING_TYPES = ("adaptive", "enabled", "disabled", "between_tools")
LEAST_THINKING = 1_024


def check_context(state: State, body: Json, betas: set[str]) -> None:
    """System, tools, messages and what goes with them: shared with count_tokens."""
    if not isinstance(body.get("messages"), list) or not all(isinstance(m, dict) for m in body["messages"]):
        raise invalid("messages: Field required")
    check_replay(state.signed_blocks, body, betas)
    problems = validate_messages(messages=body["messages"])
    if problems:
        raise invalid(problems[0])
    _system(body.get("system"), given="system" in body)
    _tools(body)
    _sources(body)
    _thinking(body)
    _markers(body)
    if "context_management" in body:
        check_edits(body["context_management"], betas)


def _system(system: Any, *, given: bool) -> None:
    if not given or isinstance(system, str):
        return
    if not isinstance(system, list):
        raise invalid("system: Input should be a valid string or list")
    for number, block in enumerate(system):
        if not isinstance(block, dict) or block.get("type") != "text" or not isinstance(block.get("text"), str):
            raise invalid(f"system.{number}: Input should be a text block")
        if set(block) - {"type", "text", "cache_control", "citations"}:
            raise invalid(f"system.{number}: Extra inputs are not permitted")
        if not block["text"].strip():
            raise invalid(f"system.{number}: text content blocks must contain non-whitespace text")


def _tools(body: Json) -> None:
    tools = body.get("tools")
    if "tools" in body and not isinstance(tools, list):
        raise invalid("tools: Input should be a valid list")
    names: list[str] = []
    for number, tool in enumerate(tools or ()):
        _tool(number, tool)
        names.append(tool.get("name", tool.get("type")))
    if len(set(names)) < len(names):
        raise invalid("tools: Tool names must be unique.")
    choice = body.get("tool_choice")
    if "tool_choice" not in body:
        return
    if not isinstance(choice, dict) or choice.get("type") not in ("auto", "any", "tool", "none"):
        raise invalid("tool_choice: Input should be auto, any, tool or none")
    if set(choice) - {"type", "name", "disable_parallel_tool_use"}:
        raise invalid("tool_choice: Extra inputs are not permitted")
    if not tools:
        raise invalid("tool_choice: may only be specified while providing tools")
    if choice["type"] == "tool" and choice.get("name") not in names:
        raise invalid("tool_choice: Tool not found in provided tools")


TOOL_KEYS = frozenset({"name", "description", "input_schema", "type", "cache_control"}) | {
    *("strict", "defer_loading", "allowed_callers", "input_examples", "eager_input_streaming")
}


def _tool(number: int, tool: Any) -> None:
    place = f"tools.{number}"
    if not isinstance(tool, dict):
        raise invalid(f"{place}: Input should be a valid dictionary")
    if tool.get("type") not in (None, "custom"):
        return  # a server tool has its own shape
    if not isinstance(tool.get("name"), str) or not TOOL_NAME.match(tool["name"]):
        raise invalid(f"{place}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        raise invalid(f"{place}.custom.input_schema: Field required")
    if schema.get("type") != "object":
        raise invalid(f"{place}.custom.input_schema.type: Input should be 'object'")
    if not isinstance(tool.get("description", ""), str):
        raise invalid(f"{place}.custom.description: Input should be a valid string")
    if set(tool) - TOOL_KEYS:
        raise invalid(f"{place}.custom.{min(set(tool) - TOOL_KEYS)}: Extra inputs are not permitted")


SOURCES: dict[str, dict[str, tuple[str, ...]]] = {
    "image": {"base64": ("media_type", "data"), "url": ("url",), "file": ("file_id",)},
    "document": {
        "base64": ("media_type", "data"),
        "text": ("media_type", "data"),
        "url": ("url",),
        "file": ("file_id",),
        "content": ("content",),
    },
}
IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def _sources(body: Json) -> None:
    for place, block in _placed(body):
        for part in (block, *result_parts(block)):
            kinds = SOURCES.get(str(part.get("type")))
            if kinds is None:
                continue
            source = part["source"] if isinstance(part.get("source"), dict) else {}
            needed = kinds.get(str(source.get("type")))
            if needed is None or set(source) != {"type", *needed} or not all(source[key] for key in needed):
                raise invalid(f"{place}.{part['type']}.source: Input should be a valid source")
            if part["type"] == "image" and source.get("media_type", IMAGE_TYPES[0]) not in IMAGE_TYPES:
                raise invalid(f"{place}.image.source.media_type: Input should be one of {', '.join(IMAGE_TYPES)}")


def _thinking(body: Json) -> None:
    thinking = body.get("thinking")
    if "thinking" not in body:
        return
    if not isinstance(thinking, dict) or thinking.get("type") not in THINKING_TYPES:
        raise invalid("thinking: Input should be adaptive, enabled, disabled or between_tools")
    if set(thinking) - {"type", "budget_tokens", "display", "block_binding"}:
        raise invalid("thinking: Extra inputs are not permitted")
    if thinking["type"] == "enabled":
        budget = thinking.get("budget_tokens")
        if not is_whole(budget) or budget < LEAST_THINKING:
            raise invalid(f"thinking.enabled.budget_tokens: Input should be greater than or equal to {LEAST_THINKING}")
        if budget >= body.get("max_tokens", budget + 1):
            raise invalid("`max_tokens` must be greater than `thinking.budget_tokens`")
        if (body.get("tool_choice") or {}).get("type") in ("any", "tool"):
            raise invalid("Thinking may not be enabled when tool_choice forces tool use.")
    elif "budget_tokens" in thinking:
        raise invalid("thinking.budget_tokens: Extra inputs are not permitted")


def _markers(body: Json) -> None:
    found: list[tuple[str, Mapping[str, Any]]] = []
    for place, block in _placed(body):
        for part in (block, *result_parts(block)):
            if part.get("cache_control") is None:
                continue
            if part.get("type") in THINKING:
                raise invalid(f"{place}.{part['type']}.cache_control: Extra inputs are not permitted")
            found.append((place, part["cache_control"]))
    if body.get("cache_control") is not None:
        found.append(("", body["cache_control"]))
    for place, given in found:
        _marker(f"{place}.cache_control".lstrip("."), given)
    if len(found) > MOST_CACHE_MARKERS:
        raise invalid(
            f"A maximum of {MOST_CACHE_MARKERS} blocks with cache_control may be provided. Found {len(found)}."
        )
    seconds = [kept_seconds(given) for _, given in found]
    if any(later > earlier for earlier, later in itertools.pairwise(seconds)):
        raise invalid("a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block")


def _marker(place: str, given: Any) -> None:
    if not isinstance(given, dict) or given.get("type") != "ephemeral":
        raise invalid(f"{place}: Input tag should be 'ephemeral'")
    if set(given) - {"type", "ttl"}:
        raise invalid(f"{place}.ephemeral.{min(set(given) - {'type', 'ttl'})}: Extra inputs are not permitted")
    if given.get("ttl", "5m") not in TTLS:
        raise invalid(f"{place}.ephemeral.ttl: Input should be '5m' or '1h'")


def _placed(body: Json) -> list[tuple[str, Mapping[str, Any]]]:
    """Every block that may carry a marker, with its place, in the order of the cache."""
    found: list[tuple[str, Mapping[str, Any]]] = []
    found += [(f"tools.{n}", tool) for n, tool in enumerate(body.get("tools") or ())]
    system = body.get("system")
    found += [(f"system.{n}", block) for n, block in enumerate(system if isinstance(system, list) else ())]
    for index, message in enumerate(body["messages"]):
        content = message["content"]
        blocks = content if isinstance(content, list) else ()
        found += [(f"messages.{index}.content.{n}", block) for n, block in enumerate(blocks)]
    return found
