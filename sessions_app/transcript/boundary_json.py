"""A proposed boundary as JSON and back, for one that waits before it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessions_app.transcript.boundary import (
    AttachmentValue,
    Boundary,
    BoundaryDraft,
    BoundaryKind,
    ClearedResult,
    Clearing,
    Placement,
    PreservedSegment,
)

# Fields that are JSON as they are.
PLAIN = (
    "covers_to",
    "summary",
    "summary_tokens",
    "summarizer",
    "instructions",
    "why",
    "generation",
    "model",
    "prompt_version",
    "response_id",
)


def draft_as_json(*, draft: BoundaryDraft) -> dict[str, Any]:
    """All of the draft. `base`: of the boundary below only its sequence; that one is stored itself."""
    kept = draft.preserved
    return {
        **{name: getattr(draft, name) for name in PLAIN},
        "kind": draft.kind.value,
        "preserved": {"first": kept.first, "last": kept.last, "placement": kept.placement.value} if kept else None,
        "attachments": [
            {"kind": one.kind, "text": one.text, "payload": dict(one.payload), "tokens": one.tokens}
            for one in draft.attachments
        ],
        "cleared_tool_use_ids": list(draft.cleared_tool_use_ids),
        "cleared_results": [one.as_json() for one in draft.cleared_results],
        "clearing": draft.clearing.value,
        "summary_blocks": [dict(block) for block in draft.summary_blocks],
        "base": base_of(draft=draft),
        "facts": dict(draft.facts),
        "usage": dict(draft.usage),
    }


def base_of(*, draft: BoundaryDraft) -> int | None:
    """Sequence of the boundary that a kept prefix is read through; None where there is none."""
    return draft.base.sequence if draft.base else None


def draft_from_json(*, stored: Mapping[str, Any], base: Boundary | None) -> BoundaryDraft:
    """The draft again. `base`: the boundary with the sequence that is stored; None where none is."""
    kept = stored["preserved"]
    return BoundaryDraft(
        **{name: stored[name] for name in PLAIN},
        kind=BoundaryKind(stored["kind"]),
        preserved=PreservedSegment(first=kept["first"], last=kept["last"], placement=Placement(kept["placement"]))
        if kept
        else None,
        attachments=tuple(AttachmentValue(**one) for one in stored["attachments"]),
        cleared_tool_use_ids=tuple(stored["cleared_tool_use_ids"]),
        cleared_results=tuple(ClearedResult(**one) for one in stored["cleared_results"]),
        clearing=Clearing(stored["clearing"]),
        summary_blocks=tuple(stored["summary_blocks"]),
        base=base,
        facts=stored["facts"],
        usage=stored["usage"],
    )
