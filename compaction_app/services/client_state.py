"""What a client tells of its state: kept whole, the newest only."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from compaction_app.models import ClientState
from sessions_app.models import Session


def put_state(*, session: Session, state: Mapping[str, Any], now: datetime) -> ClientState:
    """Keep `state` (checked by the caller) in the place of what was told before. The same again changes nothing but
    the time."""
    row, _ = ClientState.objects.update_or_create(session=session, defaults={"state": dict(state), "updated_at": now})
    return row
