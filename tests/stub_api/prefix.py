"""A request as the API caches it: blocks in the order tools, system, messages, each with its hash and its tokens.

The hash of a block covers all before it, the model, and what else has to be equal for a read (facts, section 12).
`cache_control` is no part of it. The order of a block's own keys does not matter; inside `input` or `input_schema` it
does, as there the text that the model reads changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

CHARACTERS_PER_TOKEN = 4
IMAGE_TOKENS, DOCUMENT_TOKENS = 1_500, 3_000


@dataclass(frozen=True, slots=True)
class Prompt:
    """`hashes[i]`: of all blocks up to i; `tokens[i]`: of the same; `marks`: (block, seconds that it is kept)."""

    hashes: tuple[str, ...]
    tokens: tuple[int, ...]
    marks: tuple[tuple[int, int], ...]


def count_body(body: Mapping[str, Any]) -> int:
    """Tokens of the prompt: characters of all texts by four, a fixed number for each image and document."""
    return sum(block_tokens(block) for _, block in blocks_of(body))


def read_prompt(*, body: Mapping[str, Any], total: int) -> Prompt:
    """`total`: what the whole prompt counts; blocks get their share of it."""
    blocks = list(blocks_of(body))
    sizes = [block_tokens(block) for _, block in blocks]
    whole = sum(sizes) or 1
    seed = json.dumps([body.get("model"), body.get("thinking")], sort_keys=True)
    before = hashlib.sha256(seed.encode()).hexdigest()
    hashes, tokens, marks, so_far, place = [], [], [], 0, ""
    for number, (where, block) in enumerate(blocks):
        if where not in ("tools", "system") and place in ("", "tools", "system"):
            before = hashlib.sha256(
                f"{before} {json.dumps(body.get('tool_choice'), sort_keys=True)}".encode()
            ).hexdigest()
        place = where
        before = hashlib.sha256(f"{before} {where} {_plain(block)}".encode()).hexdigest()
        so_far += sizes[number]
        hashes.append(before)
        tokens.append(total * so_far // whole)
        found = marker(block)
        if found is None and number == len(blocks) - 1:
            found = body.get("cache_control")
        if found is not None:
            marks.append((number, kept_seconds(found)))
    return Prompt(tuple(hashes), tuple(tokens), tuple(marks))


def blocks_of(body: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(tools | system | role of the message, block) in the order of the cache."""
    for tool in body.get("tools") or ():
        yield "tools", tool
    for block in _as_blocks(body.get("system")):
        yield "system", block
    for message in body.get("messages") or ():
        for block in _as_blocks(message.get("content")):
            yield str(message.get("role")), block


def marker(block: Mapping[str, Any]) -> Any:
    """The block's cache_control; one on a part of a tool_result counts as the block's."""
    found = block.get("cache_control")
    for part in result_parts(block):
        found = found or part.get("cache_control")
    return found


def kept_seconds(cache_control: Mapping[str, Any]) -> int:
    return 3_600 if cache_control.get("ttl") == "1h" else 300


def result_parts(block: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = block.get("content") if block.get("type") == "tool_result" else None
    return [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []


def block_tokens(block: Mapping[str, Any]) -> int:
    """At least 1."""
    kind = block.get("type")
    if kind == "image":
        return IMAGE_TOKENS
    if kind == "document":
        return DOCUMENT_TOKENS
    if kind == "tool_result" and isinstance(block.get("content"), list):
        return 1 + sum(block_tokens(part) for part in result_parts(block))
    if kind == "text":
        text = str(block.get("text"))
    elif kind == "tool_result":
        text = str(block.get("content") or "")
    else:
        text = json.dumps({k: v for k, v in block.items() if k not in ("cache_control", "type")}, ensure_ascii=False)
    return max(1, -(-len(text) // CHARACTERS_PER_TOKEN))


def _as_blocks(content: Any) -> list[Mapping[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []


def _plain(block: Mapping[str, Any]) -> str:
    parts = {key: block[key] for key in sorted(block) if key != "cache_control"}
    if parts.get("type") == "tool_result" and isinstance(parts.get("content"), list):
        parts["content"] = [
            {key: part[key] for key in sorted(part) if key != "cache_control"} for part in result_parts(block)
        ]
    return json.dumps(parts, ensure_ascii=False)
