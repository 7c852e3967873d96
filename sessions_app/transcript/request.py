"""From a context view to what the Messages API takes: `system`, `tools`, `messages` of role and content."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sessions_app.transcript.messages import Role, content_blocks, tool_results
from sessions_app.transcript.pairing import Block, Repair, Turn, ensure_pairing
from sessions_app.transcript.view import CLEARED_RESULT, ContextView, ViewItem

LEADING_MARKER = "[The conversation before this point is not shown.]"

THINKING = frozenset({"thinking", "redacted_thinking"})
# What the API takes in a user and in an assistant message (facts: Anthropic API, sections 5 to 7). Another type
# becomes text, so that an unknown block can't make a session unusable.
USER_BLOCKS = frozenset({"text", "image", "document", "search_result", "tool_result", "container_upload"})
ASSISTANT_BLOCKS = frozenset({"text", "tool_use", "compaction", "server_tool_use", "mcp_tool_use"}) | THINKING
# Results of server tools stand in the assistant message itself, next to their call.
SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
ID_KEYS = ("id", "tool_use_id")


@dataclass(frozen=True, slots=True)
class MessagesRequest:
    """The parts of a Messages API request that the context decides. `repairs`: what had to be mended."""

    system: Any
    tools: Any
    messages: list[dict[str, Any]]
    cleared_tool_results: int
    repairs: tuple[Repair, ...]


def build_request(*, view: ContextView, system: Any = None, tools: Any = None) -> MessagesRequest:
    """The request that shows the model exactly the view.

    Roles alternate, the first message is the user's, pairs are complete and adjacent, texts are not blank,
    thinking is whole and verifiable or gone. Nothing stored is changed.
    """
    turns = [turn for turn in _turns(view) if turn.blocks]
    paired, repairs = ensure_pairing(_merge(turns))
    finished = _merge([turn for turn in map(_finish, paired) if turn.blocks])
    if finished and finished[0].role != Role.USER and not _leads_with_compaction(finished[0]):
        finished.insert(0, Turn(role=Role.USER, blocks=[{"type": "text", "text": LEADING_MARKER}]))
    return MessagesRequest(
        system=system,
        tools=tools,
        messages=[{"role": turn.role.value, "content": turn.blocks} for turn in finished],
        cleared_tool_results=_count_cleared(view),
        repairs=tuple(repairs),
    )


def _turns(view: ContextView) -> list[Turn]:
    """One turn an item; the assistant entries of one response joined, what stood between them moved behind."""
    turns: list[Turn] = []
    response: Turn | None = None
    last_id: str | None = None
    for item in view.items:
        blocks = _clean(item, view.cleared_tool_use_ids)
        if item.role != Role.ASSISTANT:
            turns.append(Turn(role=item.role, blocks=blocks))
        elif response is not None and item.message_id is not None and item.message_id == last_id:
            response.blocks.extend(_not_yet_there(response.blocks, blocks))
        else:
            response, last_id = Turn(role=Role.ASSISTANT, blocks=blocks), item.message_id
            turns.append(response)
    return turns


def _not_yet_there(blocks: Sequence[Block], added: Sequence[Block]) -> list[Block]:
    """Some clients write a block of a response twice: a call with the same id is the same block."""
    ids = {b.get("id") for b in blocks if b.get("type") == "tool_use"}
    return [b for b in added if not (b.get("type") == "tool_use" and b.get("id") in ids)]


def _clean(item: ViewItem, cleared: frozenset[str]) -> list[Block]:
    found = []
    for block in content_blocks(item.content):
        if not isinstance(block, Mapping):
            continue
        cleaned = _clean_block(block, item, cleared)
        if cleaned is not None:
            found.append(cleaned)
    return found


def _clean_block(block: Mapping[str, Any], item: ViewItem, cleared: frozenset[str]) -> Block | None:
    kind = block.get("type")
    if kind == "text":
        text = block.get("text")
        return _plain(block) if isinstance(text, str) and text.strip() else None
    if kind in THINKING:
        verifiable = bool(block.get("signature") if kind == "thinking" else block.get("data"))
        return dict(block) if verifiable and not item.stale_thinking and item.role == Role.ASSISTANT else None
    if kind == "tool_result" and item.role == Role.USER:
        return _result(block, cleared)
    if kind == "tool_use" and item.role == Role.ASSISTANT:
        return _call(block)
    if _known(kind, item.role):
        return _plain(block)
    return {"type": "text", "text": f"[{kind} block]\n{json.dumps(block, ensure_ascii=False, default=str)}"}


def _known(kind: object, role: Role) -> bool:
    if role == Role.USER:
        return kind in USER_BLOCKS
    if role == Role.ASSISTANT:
        return kind in ASSISTANT_BLOCKS or (isinstance(kind, str) and kind.endswith("_tool_result"))
    return False


def _plain(block: Mapping[str, Any]) -> Block:
    """Stored cache markers would pile up past the API's four; whoever sends the request places its own.

    An id that is no string (a client's mistake) becomes one, so that ids can be compared from here on.
    """
    return {key: _id(value) if key in ID_KEYS else value for key, value in block.items() if key != "cache_control"}


def _id(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _call(block: Mapping[str, Any]) -> Block | None:
    if not isinstance(block.get("id"), str) or not isinstance(block.get("name"), str) or not block["name"]:
        return {"type": "text", "text": f"[malformed tool_use]\n{json.dumps(block, ensure_ascii=False, default=str)}"}
    arguments = block.get("input")
    return {**_plain(block), "input": arguments if isinstance(arguments, dict) else {"value": arguments}}


def _result(block: Mapping[str, Any], cleared: frozenset[str]) -> Block:
    found = _plain(block)
    if found.get("tool_use_id") in cleared:
        return {**found, "content": CLEARED_RESULT}
    content = found.get("content")
    if isinstance(content, str) or content is None:
        return found
    if not isinstance(content, list):
        return {**found, "content": json.dumps(content, ensure_ascii=False, default=str)}
    parts = [_plain(part) for part in content if isinstance(part, Mapping)]
    kept = [part for part in parts if part.get("type") != "text" or str(part.get("text") or "").strip()]
    return {**found, "content": kept}


def _merge(turns: Sequence[Turn]) -> list[Turn]:
    """Consecutive turns of one role become one."""
    merged: list[Turn] = []
    for turn in turns:
        if merged and merged[-1].role == turn.role:
            merged[-1].blocks.extend(turn.blocks)
        else:
            merged.append(Turn(role=turn.role, blocks=list(turn.blocks)))
    return merged


def _finish(turn: Turn) -> Turn:
    """An assistant message may not end in thinking, nor hold a server call without its result: whole or gone."""
    if turn.role != Role.ASSISTANT:
        return turn
    answered = {b.get("tool_use_id") for b in turn.blocks if b.get("type") not in THINKING}
    blocks = [b for b in turn.blocks if b.get("type") not in SERVER_CALLS or b.get("id") in answered]
    if blocks and blocks[-1].get("type") in THINKING:
        blocks = [b for b in blocks if b.get("type") not in THINKING]
    return Turn(role=turn.role, blocks=blocks)


def _leads_with_compaction(turn: Turn) -> bool:
    return bool(turn.blocks) and turn.blocks[0].get("type") == "compaction"


def _count_cleared(view: ContextView) -> int:
    if not view.cleared_tool_use_ids:
        return 0
    return sum(
        block["tool_use_id"] in view.cleared_tool_use_ids
        for item in view.items
        if item.role == Role.USER
        for block in tool_results(item.content)
    )
