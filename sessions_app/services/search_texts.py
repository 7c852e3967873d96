"""Search texts: written beside what they are of, in the same transaction."""

from __future__ import annotations

from collections.abc import Sequence

from sessions_app.models import CompactBoundary, Message, SearchText, Session
from sessions_app.transcript.search_text import fold, search_text


def record_messages(*, session: Session, rows: Sequence[Message]) -> None:
    """One insert for all of them. The rows are stored, so they have their keys."""
    SearchText.objects.bulk_create(
        SearchText(
            team_id=session.team_id, session=session, message=row, text=fold(text=search_text(content=row.content))
        )
        for row in rows
    )


def record_boundary(*, boundary: CompactBoundary) -> None:
    """One insert; none for a clearing, which has no summary."""
    if boundary.summary is None:
        return
    session = boundary.session
    SearchText.objects.create(
        team_id=session.team_id, session=session, boundary=boundary, text=fold(text=boundary.summary)
    )
