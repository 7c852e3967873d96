"""What a boundary keeps of its revert, whoever takes it back."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sessions_app.models import CompactBoundary, Session


def reverted_values(
    *, session: Session, now: datetime, position: int, by: CompactBoundary | None = None
) -> dict[str, Any]:
    """Columns that say when it was taken back, also in positions of the history and among the session's boundaries, so
    that every context before and after that can be told exactly.

    `position`: the session's last one then; `by`: the boundary that was taken back, itself or the one below; None for a
    rewind. The caller holds the session's lock.
    """
    newest = CompactBoundary.objects.filter(session=session).order_by("-id").values_list("pk", flat=True).first()
    return {"reverted_at": now, "reverted_position": position, "reverted_after": newest, "reverted_with": by}
