"""Compaction on demand (facts, section 7a): what is refused, what is answered, which blocks were signed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from tests.stub_api.answers import Answer, texts_of
from tests.stub_api.checks_edits import COMPACT_EDIT, COMPACTION
from tests.stub_api.signatures import SignedBlocks
from tests.stub_api.state import Json, Refusal, invalid

MOST_INSTRUCTIONS = 16_384  # characters
NO_USAGE = {"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
# What can't stand beside `compaction`: the words of the refusal -> whether the body has it.
EXCLUDED: dict[str, Callable[[Json], bool]] = {
    "context_management": lambda body: "context_management" in body,
    "stop_sequences": lambda body: bool(body.get("stop_sequences")),
    "output_config.format": lambda body: "format" in (body.get("output_config") or {}),
    "output_config.task_budget.remaining": lambda body: (
        "remaining" in ((body.get("output_config") or {}).get("task_budget") or {})
    ),
    "tool_choice": lambda body: (body.get("tool_choice") or {}).get("type") in ("any", "tool"),
    "max_tokens: 0": lambda body: body.get("max_tokens") == 0,
}
_numbers = itertools.count(1)


def refused(code: str, message: str) -> Refusal:
    return Refusal(400, "invalid_request_error", message, code=f"compaction_{code}")


def check_replay(signed: SignedBlocks, body: Json, betas: set[str]) -> None:
    """Raises Refusal for a block that does not come back first, alone, and as it was given out."""
    found = [(i, n, block) for i, m in enumerate(body["messages"]) for n, block in enumerate(_blocks(m)) if _is(block)]
    if not found:
        return
    index, number, block = found[0]
    place = f"messages.{index}.content.{number}"
    if (COMPACTION if block.get("signature") else COMPACT_EDIT) not in betas:
        raise invalid(f"{place}: Input tag 'compaction' found using 'type' does not match any of the expected tags")
    if len(found) > 1:
        raise refused("block_ambiguous", "messages: more than one compaction block")
    if not block.get("signature"):
        return
    if index or number:
        raise refused("block_misplaced", f"{place}: a compaction block must come first")
    known = signed.blocks.get(str(block["signature"]))
    if known is None:
        raise refused("signature_invalid", f"{place}: the signature is not valid")
    sent = {key: value for key, value in block.items() if key != "cache_control"}
    if set(sent) - set(known):
        raise invalid(f"{place}.compaction.{min(set(sent) - set(known))}: Extra inputs are not permitted")
    if sent != known:  # the SDK itself gives back keys in an order of its own
        raise refused("content_mismatch", f"{place}: the content is not what was signed")
    if "remaining" in ((body.get("output_config") or {}).get("task_budget") or {}):
        raise invalid("output_config.task_budget.remaining: not allowed with a compaction block")


def check_request(body: Json, betas: set[str]) -> None:
    """Raises Refusal for a request for a compaction that the API does not take. Before the messages are looked at."""
    given = body.get("compaction")
    if given is None:
        return
    if COMPACTION not in betas:
        raise invalid(f"compaction: requires anthropic-beta: {COMPACTION}")
    if not isinstance(given, dict) or given.get("type") != "summarize":
        raise invalid("compaction.type: Input should be 'summarize'")
    if set(given) - {"type", "instructions"}:
        raise invalid(f"compaction.{min(set(given) - {'type', 'instructions'})}: Extra inputs are not permitted")
    instructions = given.get("instructions")
    if not isinstance(instructions, str | None) or len(instructions or "") > MOST_INSTRUCTIONS:
        raise invalid(f"compaction.instructions: String should have at most {MOST_INSTRUCTIONS} characters")
    for name, is_there in EXCLUDED.items():
        if is_there(body):
            raise invalid(f"{name}: can't be combined with compaction")
    messages = body.get("messages")
    if not messages or not any(_blocks(m) or isinstance(m.get("content"), str) for m in messages):
        raise refused("nothing_to_summarize", "messages: there is nothing to summarize")
    if messages[-1]["role"] == "assistant" and any(b.get("type") == "tool_use" for b in _blocks(messages[-1])):
        raise refused("incomplete_turn", "messages: the last assistant turn waits for a tool's result")


def compacted(body: Json) -> Answer:
    """The block for a request that was taken. Its text tells of the request."""
    told = f"<summary>\n{len(body['messages'])} messages. The last: {texts_of(body)[-1][:200]}\n</summary>"
    return Answer(blocks=(signed_block(told),), stop_reason="compaction")


def signed_block(content: str | None, **more: Any) -> Json:
    return {
        "type": "compaction",
        "content": content,
        "signature": f"c2ln{next(_numbers):08d}==",
        "tool_changes": [],
    } | more


def as_iteration(usage: Mapping[str, Any]) -> Json:
    """The bill of a compaction stands in `iterations`; nothing in the totals."""
    kept = {key: value for key, value in usage.items() if key != "service_tier"}
    return {**NO_USAGE, "service_tier": "standard", "iterations": [{"type": "compaction", **kept}]}


def _is(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "compaction"


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []
