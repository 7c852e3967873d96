"""A compaction taken back, or brought back: what that changes, told before it is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpRequest
from django.utils import timezone

from compaction_app import actions, selectors
from compaction_app.admin.rendering.text import one_line
from sessions_app.models import CompactBoundary
from sessions_app.transcript.messages import text_of
from sessions_app.transcript.view import ViewItem

MOST_ITEMS, TEXT_CHARS = 50, 160  # of each part of the page


def parts_of(boundary: CompactBoundary) -> list[dict[str, Any]]:
    """What the boundary put in, and what it put that in the place of."""
    found = selectors.boundary_diff(boundary=boundary)
    return [
        _part("What stands there with it", found.came, found.tokens_came),
        _part("What it hides", found.went, found.tokens_went),
    ]


def _part(title: str, items: Sequence[ViewItem], tokens: int) -> dict[str, Any]:
    rows = [
        {
            "place": f"#{item.position}" if item.position else "",
            "role": item.role.value,
            "tokens": item.tokens,
            "begins": one_line(text_of(item.content), limit=TEXT_CHARS),
        }
        for item in items[:MOST_ITEMS]
    ]
    return {
        "title": title,
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
