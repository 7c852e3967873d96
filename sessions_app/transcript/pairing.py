"""Repair of tool_use / tool_result pairs, applied when a request is built and never to what is stored.

The Messages API wants every tool_use answered by a tool_result in the very next message, and no result without its
use. Real histories break that: sessions that died in a call, late or interleaved results, one id used twice.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sessions_app.transcript.messages import Role, result_text

Block = dict[str, Any]

MISSING_RESULT = "[No result was recorded for this call.]"
ORPHAN_RESULT = "[Result of an earlier tool call that is no longer shown]\n"
_VALID_ID = re.compile(r"^[A-Za-z0-9_-]{1,64}$")


@dataclass(slots=True)
class Turn:
    """A message of a request in the making: a role and blocks that may be changed freely (copies)."""

    role: Role
    blocks: list[Block] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that pairing had to mend: `closed_call`, `orphan_result` or `renamed_id`, and the id."""

    kind: str
    tool_use_id: str


def dangling_tool_uses(turns: Sequence[Turn]) -> list[str]:
    """Ids of calls that no result answers, in order."""
    answers = _answers(turns)
    return [block["id"] for turn in turns for block in _uses(turn) if id(block) not in answers]


def ensure_pairing(turns: Sequence[Turn]) -> tuple[list[Turn], list[Repair]]:
    """The turns with every call answered in the next turn, results first and in the order of the calls.

    A missing result becomes a marked synthetic one; an orphan result becomes text, so that nothing is lost; the second
    use of an id gets an id of its own.
    """
    answers = _answers(turns)
    taken = {id(block) for block in answers.values()}
    fixed: list[Turn] = []
    repairs: list[Repair] = []
    seen: set[str] = set()
    for turn in turns:
        if turn.role == Role.ASSISTANT:
            blocks, results = _pair_one(turn, answers, seen, repairs)
            fixed.append(Turn(role=turn.role, blocks=blocks))
            if results:
                fixed.append(Turn(role=Role.USER, blocks=results))
        else:
            blocks = _without_results(turn, taken, repairs)
            if blocks:
                fixed.append(Turn(role=turn.role, blocks=blocks))
    return fixed, repairs


def _answers(turns: Sequence[Turn]) -> dict[int, Block]:
    """id() of each use block -> its result block, by the same rule as rounds.call_spans: the newest use of the id that
    has none, else the next use (a client may write a result before its use)."""
    pending: dict[str, Block] = {}
    early: dict[str, Block] = {}
    found: dict[int, Block] = {}
    for turn in turns:
        for use in _uses(turn):
            use_id = str(use.get("id", ""))
            if use_id in early:
                found[id(use)] = early.pop(use_id)
            else:
                pending[use_id] = use
        for result in _results(turn):
            use_id = str(result.get("tool_use_id", ""))
            if use_id in pending:
                found[id(pending.pop(use_id))] = result
            else:
                early.setdefault(use_id, result)
    return found


def _pair_one(
    turn: Turn, answers: Mapping[int, Block], seen: set[str], repairs: list[Repair]
) -> tuple[list[Block], list[Block]]:
    """The turn's blocks with unique ids, and the results that must follow."""
    blocks, results = [], []
    for block in turn.blocks:
        if block.get("type") != "tool_use":
            blocks.append(block)
            continue
        old_id = str(block.get("id", ""))
        new_id = _fresh_id(old_id, seen)
        seen.add(new_id)
        if new_id != old_id:
            repairs.append(Repair("renamed_id", old_id))
        blocks.append({**block, "id": new_id})
        answer = answers.get(id(block))
        if answer is None:
            repairs.append(Repair("closed_call", old_id))
        results.append({**answer, "tool_use_id": new_id} if answer else _synthetic(new_id))
    return blocks, results


def _without_results(turn: Turn, taken: set[int], repairs: list[Repair]) -> list[Block]:
    blocks = []
    for block in turn.blocks:
        if block.get("type") != "tool_result":
            blocks.append(block)
        elif id(block) not in taken:
            repairs.append(Repair("orphan_result", str(block.get("tool_use_id", ""))))
            blocks.extend(_as_text(block))
    return blocks


def _as_text(block: Block) -> list[Block]:
    text = result_text(block)
    kept = [b for b in block["content"] if b.get("type") in ("image", "document")] if _is_list(block) else []
    return [{"type": "text", "text": ORPHAN_RESULT + text}, *kept] if text.strip() or kept else []


def _is_list(block: Block) -> bool:
    content = block.get("content")
    return isinstance(content, list) and all(isinstance(item, Mapping) for item in content)


def _uses(turn: Turn) -> list[Block]:
    return [b for b in turn.blocks if b.get("type") == "tool_use"] if turn.role == Role.ASSISTANT else []


def _results(turn: Turn) -> list[Block]:
    return [b for b in turn.blocks if b.get("type") == "tool_result"] if turn.role == Role.USER else []


def _fresh_id(use_id: str, seen: set[str]) -> str:
    """The id itself, or one derived from it where it was used before or the API would not take it."""
    base = (
        use_id
        if _VALID_ID.match(use_id)
        else "toolu_" + hashlib.sha256(use_id.encode("utf-8", "replace")).hexdigest()[:24]
    )
    name, number = base, 2
    while name in seen:
        name, number = f"{base[:58]}_{number}", number + 1
    return name


def _synthetic(use_id: str) -> Block:
    return {"type": "tool_result", "tool_use_id": use_id, "content": MISSING_RESULT, "is_error": True}
