"""What a pre_compact hook's answer says: instructions, a refusal, or nothing that can be understood."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

REASON_CHARS = 500  # of a refusal's reason; for people, beside a run
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Said:
    """`refusal`: the reason, None where nothing is refused. `problem`: why the answer is not understood, else ""."""

    instructions: str = ""
    refusal: str | None = None
    problem: str = ""


def read_answer(*, body: bytes, is_cut: bool, most_bytes: int, most_chars: int) -> Said:
    """Read the body of a 2xx. An empty one says nothing, and is understood.

    Taken are `{"instructions": "…"}`, `{"refuse": "reason"}` and `{"decision": "block", "reason": "…"}`.
    """
    if is_cut:
        return Said(problem=f"its answer is longer than {most_bytes:,} bytes")
    if not body.strip():
        return Said()
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return Said(problem="its answer is no JSON")
    if not isinstance(told, dict):
        return Said(problem="its answer is no JSON object")
    if problem := _problem(told):
        return Said(problem=problem)
    return Said(instructions=plain(told.get("instructions") or "", most=most_chars), refusal=_refusal(told))


def _problem(told: dict[str, Any]) -> str:
    for name in ("instructions", "decision", "reason"):
        if told.get(name) is not None and not isinstance(told[name], str):
            return f'"{name}" of its answer is no string'
    if told.get("refuse") is not None and not isinstance(told["refuse"], str | bool):
        return '"refuse" of its answer is neither a string nor true or false'
    return ""


def _refusal(told: dict[str, Any]) -> str | None:
    refuse = told.get("refuse")
    if refuse:
        return plain(refuse if isinstance(refuse, str) else told.get("reason") or "", most=REASON_CHARS)
    if told.get("decision") == "block":
        return plain(told.get("reason") or "", most=REASON_CHARS)
    return None


def plain(text: str, *, most: int) -> str:
    """Text without control characters other than tab and newline, and without what turns its direction; bounded."""
    return _CONTROL.sub("", text.replace("\r\n", "\n")).strip()[:most].rstrip()
