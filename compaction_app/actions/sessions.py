"""Sessions, what their clients tell of them, and transcripts that come in and go out."""

from __future__ import annotations

from datetime import datetime
from typing import IO, Any

from compaction_app.models import ClientState
from compaction_app.services import breaker, client_state, erasures
from compaction_app.services.approvals import Decider
from sessions_app import selectors
from sessions_app.models import Session, Team
from sessions_app.services import exports, sessions, transcripts
from sessions_app.services.exports import Export
from sessions_app.services.transcripts import ImportReport


def create_session(*, team: Team, values: dict[str, Any]) -> tuple[Session, bool]:
    """The session, and whether it is new: an external_id that is there gives back what exists."""
    return sessions.create_session(team=team, values=values)


def update_session(*, session: Session, values: dict[str, Any]) -> Session:
    return sessions.update_session(session=session, values=values)


def erase_session(*, session: Session, by: Decider, now: datetime) -> None:
    """Delete the session and all that was made of it, for good; an audit row stays. Raises Session.DoesNotExist."""
    erasures.erase_session(session=session, by=by.name, now=now)


def put_state(*, session: Session, state: dict[str, Any], now: datetime) -> ClientState:
    """Keep what the client tells of its state, in the place of what it told before."""
    return client_state.put_state(session=session, state=state, now=now)


def reset_breaker(*, session: Session, now: datetime, by: Any = None) -> bool:
    """Close the breaker and forget what was counted; whether it was open. `by`: the user who asks, if one does."""
    return breaker.reset(session=session, now=now, by=by)


def import_file(
    *, team: Team, stream: IO[bytes], name: str, format_name: str, now: datetime, progress: Any = None
) -> ImportReport:
    """Import a transcript file. Raises ImportRefused."""
    policy = selectors.effective_policy(team=team).policy
    return transcripts.import_transcript(
        team=team, stream=stream, name=name, format_name=format_name, policy=policy, now=now, progress=progress
    )


def export_session(*, session: Session, format_name: str) -> Export:
    """The session as a transcript, read as it is asked for. `session`: with its team loaded. Raises ExportRefused."""
    policy = selectors.effective_policy(team=session.team, session=session).policy
    return exports.export_session(session=session, format_name=format_name, policy=policy)
