"""Taking a compaction back, and bringing it back."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from compaction_app.services import reverts
from sessions_app.models import CompactBoundary, Session


def revert_boundary(*, boundary: CompactBoundary, now: datetime, by: Any = None) -> Session:
    """Take the newest summarising boundary back, with the clearings above it; the session as it is then. Raises
    RevertRefused, ActiveRun."""
    return reverts.revert(boundary=boundary, now=now, by=by)


def restore_boundary(*, boundary: CompactBoundary, now: datetime, by: Any = None) -> CompactBoundary:
    """Bring a reverted boundary back as a new one. Raises RevertRefused, ActiveRun."""
    return reverts.restore(boundary=boundary, now=now, by=by)
