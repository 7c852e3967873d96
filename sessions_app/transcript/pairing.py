"""Repair of tool_use / tool_result pairs, applied when a request is built and never to what is stored.

The Messages API wants every tool_use answered by a tool_result in the very next message, and no result without its
use. Real histories break that: sessions that died in a call, late or interleaved results, one id used twice.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sessions_app.transcript.messages import Role, result_text
from sessions_app.transcript.rounds import CallPairs

Block = dict[str, Any]

FURTHER = "_further"  # marks a call that shares its id with another one of its response, until it gets its own
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


def ensure_pairing(turns: Sequence[Turn]) -> tuple[list[Turn], list[Repair]]:
    """The turns with every call answered in the next turn, results first and in the order of the calls.

    A missing result becomes a marked synthetic one; an orphan result becomes text, so that nothing is lost; the second
    use of an id gets an id of its own.
    """
    answers = _answers(turns)
    taken = {id(block) for block in answers.values()}
    fixed: list[Turn] = []
    repairs: list[Repair] = []
    names = _Names()
    for turn in turns:
        if turn.role == Role.ASSISTANT:
            blocks, results = _pair_one(turn, answers, names, repairs)
            fixed.append(Turn(role=turn.role, blocks=blocks))
            if results:
                fixed.append(Turn(role=Role.USER, blocks=results))
        else:
            blocks = _without_results(turn, taken, repairs)
            if blocks:
                fixed.append(Turn(role=turn.role, blocks=blocks))
    return fixed, repairs


def _answers(turns: Sequence[Turn]) -> dict[int, Block]:
    """id() of each use block -> its result block, by the one rule of `CallPairs`."""
    pairs = CallPairs()
    blocks: dict[int, Block] = {}
    for turn in turns:
        for use in _uses(turn):
            pairs.use(str(use.get("id", "")), id(use), is_further=FURTHER in use)
        for result in _results(turn):
            blocks[id(result)] = result
            pairs.result(str(result.get("tool_use_id", "")), id(result))
    return {use: blocks[result] for use, result in pairs.found.items()}


def _pair_one(
    turn: Turn, answers: Mapping[int, Block], names: _Names, repairs: list[Repair]
) -> tuple[list[Block], list[Block]]:
    """The turn's blocks with unique ids, and the results that must follow."""
    blocks, results = [], []
    for block in turn.blocks:
        if block.get("type") != "tool_use":
            blocks.append(block)
            continue
        old_id = str(block.get("id", ""))
        new_id = names.fresh(old_id)
        if new_id != old_id:
            repairs.append(Repair("renamed_id", old_id))
        blocks.append({key: value for key, value in {**block, "id": new_id}.items() if key != FURTHER})
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
    """An orphan's content as blocks of their own: its text, its pictures, and anything else as JSON."""
    content = block.get("content")
    parts = [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
    media = [dict(part) for part in parts if part.get("type") in ("image", "document")]
    other = [part for part in parts if part.get("type") not in ("text", "image", "document")]
    texts = [result_text(block), *(json.dumps(part, ensure_ascii=False, default=str) for part in other)]
    text = "\n".join(text for text in texts if text.strip())
    return [{"type": "text", "text": ORPHAN_RESULT + text}, *media] if text or media else []


def _uses(turn: Turn) -> list[Block]:
    return [b for b in turn.blocks if b.get("type") == "tool_use"] if turn.role == Role.ASSISTANT else []


def _results(turn: Turn) -> list[Block]:
    return [b for b in turn.blocks if b.get("type") == "tool_result"] if turn.role == Role.USER else []


class _Names:
    """Ids that the API takes, each once: the client's own, or one derived from it."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._uses: dict[str, int] = {}

    def fresh(self, use_id: str) -> str:
        base = use_id if _VALID_ID.match(use_id) else _derived_id(use_id)
        number = self._uses.get(base, 0) + 1
        name = base if number == 1 else f"{base[:54]}_{number}"
        while name in self._taken:
            number += 1
            name = f"{base[:54]}_{number}"
        self._uses[base] = number
        self._taken.add(name)
        return name


def _derived_id(use_id: str) -> str:
    return "toolu_" + hashlib.sha256(use_id.encode("utf-8", "replace")).hexdigest()[:24]


def _synthetic(use_id: str) -> Block:
    return {"type": "tool_result", "tool_use_id": use_id, "content": MISSING_RESULT, "is_error": True}
