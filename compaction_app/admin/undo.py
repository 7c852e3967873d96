"""A compaction taken back, or brought back: what that changes, told before it is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpRequest
from django.utils import timezone

from compaction_app import actions, selectors
from compaction_app.admin import cells
from compaction_app.admin.rendering.text import one_line
from sessions_app import selectors as transcripts
from sessions_app.models import CompactBoundary
from sessions_app.transcript.diff import item_begins
from sessions_app.transcript.view import ViewItem

MOST_ITEMS, TEXT_CHARS = 50, 160  # of each part of the page


def change_of(boundary: CompactBoundary) -> dict[str, Any]:
    """What reverting the boundary, or restoring a reverted one, takes away and brings back."""
    found = selectors.boundary_diff(boundary=boundary)
    brings_back = boundary.reverted_at is not None
    inserted = _part(
        "Comes back" if brings_back else "Goes", "what it puts in", found.came, found.tokens_came, boundary
    )
    hidden = _part("Goes" if brings_back else "Comes back", "what it hides", found.went, found.tokens_went, boundary)
    freed = found.tokens_before - found.tokens_after
    return {"parts": [inserted, hidden], "tokens": abs(freed), "grows": (freed > 0) != brings_back}


def newer_url(boundary: CompactBoundary) -> str:
    """The page of a newer boundary that stands, which keeps this one from being reverted or restored; "" where none."""
    head = transcripts.head_boundary(session=boundary.session)
    return cells.boundary_url(head.pk) if head is not None and head.pk > boundary.pk else ""


def _part(title: str, what: str, items: Sequence[ViewItem], tokens: int, boundary: CompactBoundary) -> dict[str, Any]:
    rows = [
        {
            "place": f"#{item.position}" if item.position else "",
            "url": cells.place_url(session_id=boundary.session_id, position=item.position) if item.position else "",
            "role": item.role.value,
            "tokens": item.tokens,
            "begins": one_line(item_begins(item=item, most=TEXT_CHARS + 1), limit=TEXT_CHARS),
        }
        for item in items[:MOST_ITEMS]
    ]
    return {
        "title": title,
        "what": what,
        "count": len(items),
        "tokens": tokens,
        "rows": rows,
        "more": max(len(items) - MOST_ITEMS, 0),
    }


def undo(request: HttpRequest, boundary: CompactBoundary) -> int:
    """Revert it, or restore it where it is reverted, and say what came of it; the key of the boundary to show."""
    now = timezone.now()
    try:
        if boundary.reverted_at is None:
            session = actions.revert_boundary(boundary=boundary, now=now, by=request.user)
            messages.success(request, f"Reverted: the context has about {session.context_tokens:,} tokens again.")
            return boundary.pk
        brought = actions.restore_boundary(boundary=boundary, now=now, by=request.user)
        messages.success(request, "Restored: this boundary says the same as the one that was reverted.")
        return brought.pk
    except actions.RevertRefused as refused:
        messages.error(request, f"Nothing was changed: {refused}")
    except actions.ActiveRun as active:
        messages.error(request, f"Nothing was changed: the session has a run that is {active.run.status}.")
    return boundary.pk
