"""Taking a compaction back, and bringing it back, with what is told of it. Not while a run works on the session."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction

from compaction_app import telemetry
from compaction_app.models import CompactionRun
from compaction_app.services.runs import ActiveRun
from sessions_app.models import CompactBoundary, Session
from sessions_app.services import reverts
from sessions_app.services.append import lock_session


def revert(*, boundary: CompactBoundary, now: datetime, by: Any = None) -> Session:
    """See sessions_app/services/reverts.py. Raises ActiveRun too. `by`: the user who asks, where there is one."""
    with transaction.atomic():
        before = _idle(boundary=boundary).context_tokens
        session = reverts.revert(boundary=boundary, now=now, by=by)
        _tell(telemetry.BOUNDARY_REVERTED, session=session, boundary=boundary, before=before, by=by, now=now)
    return session


def restore(*, boundary: CompactBoundary, now: datetime, by: Any = None) -> CompactBoundary:
    """See sessions_app/services/reverts.py. Raises ActiveRun too."""
    with transaction.atomic():
        before = _idle(boundary=boundary).context_tokens
        brought = reverts.restore(boundary=boundary, now=now)
        session = Session.objects.get(pk=boundary.session_id)
        _tell(telemetry.BOUNDARY_RESTORED, session=session, boundary=brought, before=before, by=by, now=now)
    return brought


def _idle(*, boundary: CompactBoundary) -> Session:
    """The session, locked, with no run that is not finished."""
    session = lock_session(session_id=boundary.session_id)
    active = CompactionRun.objects.filter(session=session).active().first()
    if active is not None:
        raise ActiveRun(run=active)
    return session


def _tell(name: str, *, session: Session, boundary: CompactBoundary, before: int, by: Any, now: datetime) -> None:
    payload = {
        "boundary": str(boundary.uuid),
        "kind": boundary.kind,
        "restores": str(boundary.restores.uuid) if boundary.restores else None,
        "tokens_before": before,
        "tokens_after": session.context_tokens,
        "by": by.pk if by else None,
    }
    telemetry.emit_of_session(name=name, session=session, payload=payload, now=now)
