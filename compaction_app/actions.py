"""What one can do, a function per verb. API, admin and commands call these; nothing else enqueues."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import IO, Any

from django.db import transaction
from django.db.models import QuerySet
from kombu.exceptions import OperationalError

from compaction_app import tasks
from compaction_app.engine.command import CommandError, Scope, parse_command
from compaction_app.engine.decision import Outcome, switched_off
from compaction_app.models import ClientState, CompactionRun, Decision, Hook
from compaction_app.selectors import PreparedContext, prepared_context
from compaction_app.services import breaker, catalog, clearing, client_state, decisions, hook_setup, runs
from compaction_app.services.clearing import Applied
from compaction_app.services.hook_setup import BadHook
from compaction_app.services.runs import ActiveRun, ProgressListener
from sessions_app import selectors
from sessions_app.models import ApiKey, CompactBoundary, Message, Session, Team
from sessions_app.services import sessions, teams, transcripts
from sessions_app.services.append import UuidConflict, append_messages
from sessions_app.services.incoming import IncomingMessage
from sessions_app.services.transcripts import ImportRefused, ImportReport

__all__ = [
    "ActiveRun",
    "Applied",
    "BadHook",
    "CommandError",
    "ImportRefused",
    "IncomingMessage",
    "NotSupportedYet",
    "NothingToCompact",
    "Prepared",
    "Turn",
    "UuidConflict",
    "append_turn",
    "authenticate",
    "command_now",
    "compact_now",
    "create_api_key",
    "create_hook",
    "create_session",
    "delete_hook",
    "hand_out_on_commit",
    "has_room_for_hook",
    "hook_problems",
    "import_file",
    "prepare",
    "put_state",
    "recover_runs",
    "refresh_catalog",
    "request_command",
    "request_compaction",
    "reset_breaker",
    "revoke_api_keys",
    "rotate_hook_secret",
    "update_hook",
    "update_session",
]


logger = logging.getLogger(__name__)


class NothingToCompact(Exception):
    """There is plainly nothing that a compaction could do; the message says why."""


class NotSupportedYet(Exception):
    """What is asked for comes with a later version; the message says what that is."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What an append did: stored rows, uuids that were known, and the session as it is now.

    `run`: the automatic compaction that it started; None where it started none.
    """

    session: Session
    messages: tuple[Message, ...]
    duplicates: tuple[str, ...]
    run: CompactionRun | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the light links did, in their order, and what to send to the model now."""

    applied: tuple[Applied, ...]
    context: PreparedContext


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
    """Store messages, all or none; then decide whether a compaction starts by itself (S8). Raises UuidConflict.

    Nothing is compacted here: a run is queued. What goes wrong with the decision takes nothing from the append.
    """
    session, appended = append_messages(session_id=session.pk, incoming=incoming, now=now)
    run = _decide(session=session, stored=appended.stored, now=now) if appended.stored else None
    return Turn(session=session, messages=tuple(appended.stored), duplicates=tuple(appended.duplicates), run=run)


def _decide(*, session: Session, stored: Sequence[Message], now: datetime) -> CompactionRun | None:
    """The run that was queued and handed out. An error is logged and kept; the next append decides again."""
    try:
        answered = any(decisions.is_response(message=row) for row in stored)
        run = decisions.decide(session=session, moment=Decision.Moment.APPEND, now=now, answered=answered)
        if run is not None:
            hand_out_on_commit(run_id=run.pk)
        return run
    except Exception as error:
        told = runs.describe(error=error)
        logger.error("deciding for session %s met an unexpected %s", session.uuid, told)
        with contextlib.suppress(Exception):  # what stopped the decision may stop this too
            decisions.record_error(session=session, error=told, now=now)
        return None


def put_state(*, session: Session, state: dict[str, Any], now: datetime) -> ClientState:
    """Keep what the client tells of its state, in the place of what it told before."""
    return client_state.put_state(session=session, state=state, now=now)


def reset_breaker(*, session: Session, now: datetime, by: Any = None) -> bool:
    """Close the breaker and forget what was counted; whether it was open. `by`: the user who asks, if one does."""
    return breaker.reset(session=session, now=now, by=by)


def prepare(*, session: Session, now: datetime) -> Prepared:
    """Run the light links as of now, before a call of the model: what each did, or why it passed, and what to send.

    `session` (with its team loaded) is refreshed by what was done. No model is called. While a run is active nothing is
    cleared: it would change what the run is reading (decision 8).
    """
    resolved = selectors.effective_policy(team=session.team, session=session)
    active = CompactionRun.objects.filter(session=session).active().first()
    if off := switched_off(resolved=resolved, automatic=False):
        outcome, links = Outcome.COMPACTION_DISABLED, clearing.skip_light_links(why=off)
    elif active is not None:
        why = f"run {active.uuid} is {active.status}: its links decide"
        outcome, links = Outcome.ACTIVE_RUN, clearing.skip_light_links(why=why)
    else:
        links = clearing.apply_light_links(session=session, now=now)
        outcome = Outcome.APPLIED if any(step.ran for step in links.applied) else Outcome.NOTHING_TO_CLEAR
    decisions.record(
        session=session,
        moment=Decision.Moment.PREPARE,
        outcome=outcome,
        why="; ".join(f"{step.link}: {step.why}" for step in links.applied),
        now=now,
        applied=links.applied,
    )
    clearing.note_prepared(session=session)
    return Prepared(applied=links.applied, context=prepared_context(session=session, view=links.view))


def import_file(
    *, team: Team, stream: IO[bytes], name: str, format_name: str, now: datetime, progress: Any = None
) -> ImportReport:
    """Import a transcript file. Raises ImportRefused."""
    policy = selectors.effective_policy(team=team).policy
    return transcripts.import_transcript(
        team=team, stream=stream, name=name, format_name=format_name, policy=policy, now=now, progress=progress
    )


def request_compaction(
    *,
    session: Session,
    instructions: str,
    now: datetime,
    requested_by: Any = None,
    source: str = "",
    summarizer: str = "",
) -> CompactionRun:
    """Queue a run by hand and hand it to the worker. Raises ActiveRun, and NothingToCompact where that is plain.

    `source`: who asks (CompactionRun.Source). `summarizer`: in place of the one that the settings name.
    """
    active = CompactionRun.objects.filter(session=session).active().first()
    if active is not None:
        raise ActiveRun(run=active)
    head = selectors.head_boundary(session=session)
    if not session.last_position:
        raise NothingToCompact("The session has no messages.")
    if head is not None and session.leaf_position <= head.committed_at_position:
        raise NothingToCompact("Nothing was added since the last compaction.")
    run = runs.queue_run(
        session=session,
        trigger=CompactBoundary.Trigger.MANUAL,
        instructions=instructions,
        now=now,
        requested_by=requested_by,
        source=source,
        summarizer=summarizer,
    )
    hand_out_on_commit(run_id=run.pk)
    return run


def request_command(
    *, session: Session, text: str, now: datetime, requested_by: Any = None, source: str = ""
) -> CompactionRun:
    """`request_compaction` as `/compact …` asks for it. Raises CommandError and NotSupportedYet too."""
    instructions = _instructions_of(text)
    return request_compaction(
        session=session, instructions=instructions, now=now, requested_by=requested_by, source=source
    )


def command_now(*, session: Session, text: str, now: datetime, listener: ProgressListener) -> CompactionRun:
    """`compact_now` as `/compact …` asks for it. Raises CommandError and NotSupportedYet too."""
    return compact_now(session=session, instructions=_instructions_of(text), now=now, listener=listener)


def _instructions_of(text: str) -> str:
    command = parse_command(text)
    if command.scope is not Scope.WHOLE:
        raise NotSupportedYet(f"Compacting a part of the session ({command.scope.value}:) comes with a later version.")
    return command.instructions


def hand_out_on_commit(*, run_id: int) -> None:
    """Give the run to the queue once it is there for everybody."""
    transaction.on_commit(functools.partial(tasks.hand_out, run_id=run_id))


def compact_now(*, session: Session, instructions: str, now: datetime, listener: ProgressListener) -> CompactionRun:
    """Run a compaction in this process. Raises ActiveRun when another process works on one.

    A run that somebody has queued but that nobody works on is done here, with its own instructions; this one takes the
    place of a run that had started by itself. Stopped by the keyboard, the run is cancelled: nobody waits for it any
    more.
    """
    run = _run_by_hand(session=session, instructions=instructions, now=now)
    try:
        done = runs.execute(run_id=run.pk, listener=listener)
    except KeyboardInterrupt:
        runs.cancel_queued(run=run, now=now)
        raise
    if done is None:
        raise ActiveRun(run=run)
    tasks.count_exact_after(run=done)
    return done


def _run_by_hand(*, session: Session, instructions: str, now: datetime) -> CompactionRun:
    """A queued run that somebody wants: one that waits already, or a new one. Raises ActiveRun."""
    trigger, source = CompactBoundary.Trigger.MANUAL, CompactionRun.Source.COMMAND
    try:
        return runs.queue_run(session=session, trigger=trigger, instructions=instructions, now=now, source=source)
    except ActiveRun as active:
        if active.run.trigger != CompactBoundary.Trigger.AUTO:
            return active.run
        return runs.queue_instead(of=active.run, instructions=instructions, now=now, source=source)


def hook_problems(*, event: str, values: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with these values of a hook for `event`: field to reason. What is not given is not judged."""
    return hook_setup.hook_problems(event=event, values=values)


def has_room_for_hook(*, team: Team) -> bool:
    return hook_setup.has_room(team=team)


def create_hook(*, team: Team, event: str, values: Mapping[str, Any]) -> Hook:
    """A new hook. Its secret, which signs its requests, is to be shown once. Raises BadHook."""
    return hook_setup.create_hook(team=team, event=event, values=values)


def update_hook(*, hook: Hook, values: Mapping[str, Any]) -> Hook:
    """Change what is given. Raises BadHook."""
    return hook_setup.update_hook(hook=hook, values=values)


def rotate_hook_secret(*, hook: Hook) -> Hook:
    """Give it another secret, which is to be shown once."""
    return hook_setup.rotate_secret(hook=hook)


def delete_hook(*, hook: Hook) -> None:
    """Delete it with its log, and with what still waits for it."""
    hook_setup.delete_hook(hook=hook)


def recover_runs(*, now: datetime, broker_is_new: bool = False) -> int:
    """Hand every run that was left behind to the worker, then runs for appends that nobody has decided about
    (decision 21); gives back how many."""
    return tasks.hand_out_left_behind(now=now, broker_is_new=broker_is_new)


def refresh_catalog(*, now: datetime) -> None:
    """Have the worker ask the provider for the windows of its models, where that is due."""
    if not catalog.due(now=now):
        return
    try:
        tasks.refresh_catalog.delay()
    except OperationalError:
        logger.warning("the queue does not answer; the provider is asked for its models later")
