"""From a context view to what the Messages API takes: `system`, `tools`, `messages` of role and content."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sessions_app.transcript.messages import Role, content_blocks
from sessions_app.transcript.native import COMPACTION, betas_for, is_signed, leads, readable
from sessions_app.transcript.pairing import FURTHER, Block, Repair, Turn, ensure_pairing
from sessions_app.transcript.rounds import ResponseCalls
from sessions_app.transcript.view import CLEARED_RESULT, ContextView, ViewItem

# Where the assistant speaks first, because what was before is not shown, or because nothing was.
LEADING_MARKER = "[The conversation before this point is not shown.]"
BEGINNING_MARKER = "[The conversation begins here.]"

THINKING = frozenset({"thinking", "redacted_thinking"})
# What the API takes in a user and in an assistant message (facts: Anthropic API, sections 5 to 7). Another type
# becomes text, so that an unknown block can't make a session unusable.
USER_BLOCKS = frozenset({"text", "image", "document", "search_result", "tool_result", "container_upload"})
ASSISTANT_BLOCKS = frozenset({"text", "tool_use", COMPACTION, "server_tool_use", "mcp_tool_use"}) | THINKING
RESULT_PARTS = frozenset({"text", "image", "document", "search_result", "tool_reference"})
# Results of server tools stand in the assistant message itself, next to their call.
SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
# Keys that the API knows, for the blocks whose clients add their own; any other is refused as an extra input.
BLOCK_KEYS: dict[str, frozenset[str]] = {
    "text": frozenset({"type", "text", "citations", "cache_control"}),
    "tool_use": frozenset({"type", "id", "name", "input", "caller", "cache_control"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"}),
    "image": frozenset({"type", "source", "cache_control"}),
}
ID_KEYS = ("id", "tool_use_id")
TOOL_NAME = re.compile(r"^[A-Za-z0-9_-]{1,128}$")
EDITED = "_edited"  # marks a block until the request is whole; ids may be renamed on the way
LONGEST_AS_TEXT = 2_000  # characters of an unknown block that are shown as JSON; the block itself stays in the history


@dataclass(frozen=True, slots=True)
class MessagesRequest:
    """The parts of a Messages API request that the context decides.

    `cleared_tool_results`: how many the model does not see, as placeholders or by edits on the API's side;
    `edited`: tool_use ids, as they stand in `messages`, of the results that the API is to clear. `repairs`: what had to
    be mended.
    """

    system: Any
    tools: Any
    messages: list[dict[str, Any]]
    cleared_tool_results: int
    repairs: tuple[Repair, ...]
    edited: tuple[str, ...] = ()

    @property
    def betas(self) -> tuple[str, ...]:
        """Beta names that the request must carry for its messages."""
        return betas_for(self.messages)


def build_request(*, view: ContextView, system: Any = None, tools: Any = None) -> MessagesRequest:
    """The request that shows the model exactly the view.

    Roles alternate, the first message is the user's, pairs are complete and adjacent, texts are not blank,
    thinking is whole and verifiable or gone. Nothing stored is changed.
    """
    turns = [turn for turn in _turns(view) if turn.blocks]
    paired, repairs = ensure_pairing(_merge(turns))
    finished = _only_leading_compaction(_merge([turn for turn in map(_finish, paired) if turn.blocks]))
    if finished and finished[0].role != Role.USER and not leads(finished[0].blocks):
        marker = BEGINNING_MARKER if view.items[0].position == 1 else LEADING_MARKER
        finished.insert(0, Turn(role=Role.USER, blocks=[{"type": "text", "text": marker}]))
    edited = [block["tool_use_id"] for turn in finished for block in turn.blocks if block.pop(EDITED, False)]
    return MessagesRequest(
        system=system,
        tools=tools,
        messages=[{"role": turn.role.value, "content": turn.blocks} for turn in finished],
        cleared_tool_results=sum(len(item.cleared | item.edited) for item in view.items),
        repairs=tuple(repairs),
        edited=tuple(edited),
    )


def _turns(view: ContextView) -> list[Turn]:
    """One turn an item; the assistant entries of one response joined, the results between them moved behind.

    Where something else was said in between, the response is not joined over it: order would change.
    """
    turns: list[Turn] = []
    response: Turn | None = None
    last_id: str | None = None
    calls = ResponseCalls()
    for item in view.items:
        blocks = _clean(item)
        if item.role != Role.ASSISTANT:
            turns.append(Turn(role=item.role, blocks=blocks))
            response = response if all(block["type"] == "tool_result" for block in blocks) else None
            continue
        if response is None or item.message_id is None or item.message_id != last_id:
            response, last_id, calls = Turn(role=Role.ASSISTANT), item.message_id, ResponseCalls()
            turns.append(response)
        response.blocks.extend(_each_once(blocks, calls))
    return turns


def _each_once(blocks: Sequence[Block], calls: ResponseCalls) -> Iterator[Block]:
    for block in blocks:
        number = calls.number(block) if block["type"] == "tool_use" else 0
        if number is not None:
            yield {**block, FURTHER: True} if number else block


def _clean(item: ViewItem) -> list[Block]:
    cleaned = (_clean_block(block, item) for block in content_blocks(item.content) if isinstance(block, Mapping))
    return [block for block in cleaned if block is not None]


def _clean_block(block: Mapping[str, Any], item: ViewItem) -> Block | None:
    kind = block.get("type")
    if kind == "text":
        return _text(block, item.role)
    if kind in THINKING:
        shown = item.role == Role.ASSISTANT and not item.stale_thinking and _is_verifiable(block)
        return dict(block) if shown else None
    if kind == "tool_result" and item.role == Role.USER:
        return _result(block, item)
    if kind == "tool_use" and item.role == Role.ASSISTANT:
        return _call(block)
    if kind == COMPACTION:
        signed = is_signed(block) and item.role == Role.ASSISTANT
        return {key: block[key] for key in block if key != "cache_control"} if signed else _compaction_as_text(block)
    if _known(block, item.role):
        return _plain(block)
    return {"type": "text", "text": described(block=block)}


def _is_verifiable(block: Mapping[str, Any]) -> bool:
    names = ("thinking", "signature") if block["type"] == "thinking" else ("data",)
    return all(isinstance(block.get(name), str) for name in names) and bool(block[names[-1]])


def _known(block: Mapping[str, Any], role: Role) -> bool:
    kind = block.get("type")
    if kind in ("image", "document") and not isinstance(block.get("source"), Mapping):
        return False
    if kind in SERVER_CALLS and not _is_whole_call(block):
        return False
    if role == Role.USER:
        return kind in USER_BLOCKS
    if role == Role.ASSISTANT:
        return kind in ASSISTANT_BLOCKS or (isinstance(kind, str) and kind.endswith("_tool_result"))
    return False


def _is_whole_call(block: Mapping[str, Any]) -> bool:
    """Whether a call of a server's tool can go as it is: it can't be mended, because its result is the server's."""
    name = block.get("name")
    return isinstance(name, str) and bool(name) and isinstance(block.get("input"), Mapping)


def described(*, block: Mapping[str, Any]) -> str:
    """A block that can't be sent as what it is, in words; what is too long for that stays in the history only."""
    told = json.dumps(block, ensure_ascii=False, default=str)
    more = f" [… {len(told) - LONGEST_AS_TEXT:,} more characters]" if len(told) > LONGEST_AS_TEXT else ""
    return f"[{block.get('type')} block]\n{told[:LONGEST_AS_TEXT]}{more}"


def _plain(block: Mapping[str, Any]) -> Block:
    """The block with the keys that the API knows, without cache markers.

    Stored markers would pile up past the API's four; whoever sends the request places its own. An id that is no string
    (a client's mistake) becomes one, so that ids can be compared from here on.
    """
    keys = BLOCK_KEYS.get(str(block.get("type")))
    return {
        key: _id(value) if key in ID_KEYS else value
        for key, value in block.items()
        if key != "cache_control" and (keys is None or key in keys)
    }


def _id(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _text(block: Mapping[str, Any], role: Role) -> Block | None:
    text = block.get("text")
    if not isinstance(text, str):
        # A client's mistake: whatever stands in the text's place is told.
        holds = any(value is not None for key, value in block.items() if key not in ("type", "cache_control"))
        return {"type": "text", "text": described(block=block)} if holds else None
    if not text.strip():
        return None
    plain = _plain(block)
    if role != Role.ASSISTANT:
        plain.pop("citations", None)  # the API refuses them on what the user says
    return plain


def _call(block: Mapping[str, Any]) -> Block:
    if not isinstance(block.get("id"), str) or not isinstance(block.get("name"), str) or not block["name"]:
        return {"type": "text", "text": described(block=block)}
    name, arguments = block["name"], block.get("input")
    if not isinstance(arguments, dict):
        arguments = {} if arguments is None else {"value": arguments}
    return {
        **_plain(block),
        "name": name if TOOL_NAME.match(name) else re.sub(r"[^A-Za-z0-9_-]", "_", name)[:128],
        "input": arguments,
    }


def _result(block: Mapping[str, Any], item: ViewItem) -> Block:
    found = _plain(block)
    found.pop(EDITED, None)
    if found.get("tool_use_id") in item.edited:
        found[EDITED] = True
    if "is_error" in found and not isinstance(found["is_error"], bool):
        found["is_error"] = bool(found["is_error"])
    if found.get("tool_use_id") in item.cleared:
        return {**found, "content": CLEARED_RESULT}
    content = found.get("content")
    if isinstance(content, str) or content is None:
        return found
    if not isinstance(content, list):
        return {**found, "content": json.dumps(content, ensure_ascii=False, default=str)}
    parts = (_part(part) for part in content)
    return {**found, "content": [part for part in parts if part is not None]}


def _part(part: object) -> Block | None:
    """One part of a result: as it is where the API takes it there, else described; blank text is left out."""
    if not isinstance(part, Mapping):
        return _text({"type": "text", "text": _id(part)}, Role.USER)
    kind = part.get("type")
    if kind == "text":
        return _text(part, Role.USER)
    sourced = kind not in ("image", "document") or isinstance(part.get("source"), Mapping)
    known = isinstance(kind, str) and kind in RESULT_PARTS
    return _plain(part) if known and sourced else {"type": "text", "text": described(block=part)}


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
    """An assistant message may not end in thinking, nor hold half of a server call and its result."""
    if turn.role != Role.ASSISTANT:
        return turn
    calls = {b.get("id") for b in turn.blocks if b.get("type") in SERVER_CALLS}
    answered = {b.get("tool_use_id") for b in turn.blocks if _is_server_result(b)}
    blocks = []
    for block in turn.blocks:
        whole = block.get("id") in answered if block.get("type") in SERVER_CALLS else True
        if _is_server_result(block) and block.get("tool_use_id") not in calls:
            blocks.append({"type": "text", "text": described(block=block)})
        elif whole:
            blocks.append(block)
    if blocks and blocks[-1].get("type") in THINKING:
        blocks = [b for b in blocks if b.get("type") not in THINKING]
    return Turn(role=turn.role, blocks=blocks)


def _is_server_result(block: Mapping[str, Any]) -> bool:
    kind = block.get("type")
    return isinstance(kind, str) and kind.endswith("_tool_result")


def _only_leading_compaction(turns: Sequence[Turn]) -> list[Turn]:
    """A provider's compaction block stands first in the request or nowhere; another one becomes its text."""
    fixed = []
    for number, turn in enumerate(turns):
        blocks = [
            _compaction_as_text(block) if block.get("type") == COMPACTION and (number or place) else block
            for place, block in enumerate(turn.blocks)
        ]
        fixed.append(Turn(role=turn.role, blocks=[block for block in blocks if block is not None]))
    return fixed


def _compaction_as_text(block: Mapping[str, Any]) -> Block | None:
    """What a block says that can't go as what it is; None for one that says nothing."""
    told = readable(block)
    return {"type": "text", "text": told} if told else None
