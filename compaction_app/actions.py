"""What one can do, a function per verb. API, admin and commands call these; nothing else enqueues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import IO, Any

from django.db.models import QuerySet

from compaction_app import tasks
from compaction_app.models import CompactionRun
from compaction_app.services import runs
from compaction_app.services.runs import ActiveRun, ProgressListener
from sessions_app import selectors
from sessions_app.models import ApiKey, CompactBoundary, Message, Session, Team
from sessions_app.services import sessions, teams, transcripts
from sessions_app.services.append import UuidConflict, append_messages
from sessions_app.services.incoming import IncomingMessage
from sessions_app.services.transcripts import ImportRefused, ImportReport

__all__ = [
    "ActiveRun",
    "ImportRefused",
    "IncomingMessage",
    "Turn",
    "UuidConflict",
    "append_turn",
    "authenticate",
    "compact_now",
    "create_api_key",
    "create_session",
    "import_file",
    "recover_runs",
    "request_compaction",
    "revoke_api_keys",
    "update_session",
]


@dataclass(frozen=True, slots=True)
class Turn:
    """What an append did: stored rows, uuids that were known, and the session as it is now."""

    session: Session
    messages: tuple[Message, ...]
    duplicates: tuple[str, ...]


def authenticate(*, key: str, now: datetime) -> Any:
    """The API key's row with its team; None when unknown or revoked."""
    return teams.key_owner(key=key, now=now)


def create_api_key(*, team: Team, name: str = "", scope: str = ApiKey.Scope.WRITE) -> tuple[ApiKey, str]:
    """Make a key. The key itself is given back once and stored nowhere."""
    return teams.create_api_key(team=team, name=name, scope=scope)


def revoke_api_keys(*, keys: QuerySet[ApiKey], now: datetime) -> int:
    """End the keys; gives back how many were not revoked yet."""
    return teams.revoke_api_keys(keys=keys, now=now)


def create_session(*, team: Team, values: dict[str, Any]) -> tuple[Session, bool]:
    """The session, and whether it is new: an external_id that is there gives back what exists."""
    return sessions.create_session(team=team, values=values)


def update_session(*, session: Session, values: dict[str, Any]) -> Session:
    return sessions.update_session(session=session, values=values)


def append_turn(*, session: Session, incoming: Sequence[IncomingMessage], now: datetime) -> Turn:
    """Store messages, all or none. Raises UuidConflict."""
    session, appended = append_messages(session_id=session.pk, incoming=incoming, now=now)
    return Turn(session=session, messages=tuple(appended.stored), duplicates=tuple(appended.duplicates))


def import_file(
    *, team: Team, stream: IO[bytes], name: str, format_name: str, now: datetime, progress: Any = None
) -> ImportReport:
    """Import a transcript file. Raises ImportRefused."""
    policy = selectors.effective_policy(team=team).policy
    return transcripts.import_transcript(
        team=team, stream=stream, name=name, format_name=format_name, policy=policy, now=now, progress=progress
    )


def request_compaction(
    *, session: Session, instructions: str, now: datetime, requested_by: Any = None
) -> CompactionRun:
    """Queue a run by hand and hand it to the worker. Raises ActiveRun."""
    run = runs.queue_run(
        session=session,
        trigger=CompactBoundary.Trigger.MANUAL,
        instructions=instructions,
        now=now,
        requested_by=requested_by,
    )
    tasks.compact_session.delay_on_commit(run_id=run.pk)
    return run


def compact_now(*, session: Session, instructions: str, now: datetime, listener: ProgressListener) -> CompactionRun:
    """Run a compaction in this process. Raises ActiveRun when another process works on one.

    A run that is queued but that nobody works on is done here, with its own instructions. Stopped by the keyboard,
    the run is cancelled: nobody waits for it any more.
    """
    try:
        run = runs.queue_run(
            session=session, trigger=CompactBoundary.Trigger.MANUAL, instructions=instructions, now=now
        )
    except ActiveRun as active:
        run = active.run
    try:
        done = runs.execute(run_id=run.pk, listener=listener)
    except KeyboardInterrupt:
        runs.cancel_queued(run=run, now=now)
        raise
    if done is None:
        raise ActiveRun(run=run)
    return done


def recover_runs(*, now: datetime, broker_is_new: bool = False) -> int:
    """Hand every run that was left behind to the worker; gives back how many."""
    ids = runs.recover(now=now, broker_is_new=broker_is_new)
    for run_id in ids:
        tasks.compact_session.delay(run_id=run_id)
    return len(ids)
