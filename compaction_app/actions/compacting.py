"""Asking for a compaction: queued for the worker, or done in this process."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from compaction_app import tasks
from compaction_app.actions import handing_out
from compaction_app.engine.command import CompactCommand, Scope, parse_command, parse_typed
from compaction_app.engine.decision import switched_off
from compaction_app.engine.overflow import read_overflow
from compaction_app.engine.values import Reported
from compaction_app.models import CompactionRun, RunStatus
from compaction_app.services import idempotency, partial, runs
from compaction_app.services.idempotency import HeldCall
from compaction_app.services.partial import PartialRefused
from compaction_app.services.runs import ActiveRun, ProgressListener
from sessions_app import selectors
from sessions_app.models import CompactBoundary, Session
from sessions_app.transcript.boundary import BoundaryKind


class NothingToCompact(Exception):
    """There is plainly nothing that a compaction could do; the message says why."""


class ReactiveRefused(Exception):
    """A reactive compaction is not wanted here; `code` says what stands against it, the message what can be done."""

    def __init__(self, *, code: str, detail: str) -> None:
        self.code = code
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody asks for. `scope`, `scope_uuid`: a part of the session, by a message (S7). `summarizer`: in place
    of the one that the settings name, "" for that one. `reported`: what the provider told of a request that it refused
    as too long; None for any other compaction."""

    instructions: str = ""
    scope: Scope = Scope.WHOLE
    scope_uuid: str = ""
    summarizer: str = ""
    reported: Reported | None = None

    @classmethod
    def from_command(cls, text: str, *, summarizer: str = "") -> Wanted:
        """What `/compact …` asks for. Raises CommandError."""
        return cls._of(parse_command(text), summarizer=summarizer)

    @classmethod
    def from_typed(cls, text: str) -> Wanted:
        """The same, typed where nothing but a compaction can be asked for: `/compact` may be left out. Raises
        CommandError."""
        return cls._of(parse_typed(text), summarizer="")

    @classmethod
    def _of(cls, command: CompactCommand, *, summarizer: str) -> Wanted:
        return cls(
            instructions=command.instructions, scope=command.scope, scope_uuid=command.uuid, summarizer=summarizer
        )

    @property
    def trigger(self) -> str:
        return CompactBoundary.Trigger.MANUAL if self.reported is None else CompactBoundary.Trigger.REACTIVE


def reported(*, error: str) -> Reported:
    """What a provider's message of a request that was too long tells; nothing where it names no figures."""
    told = read_overflow(status=400, kind="", message=error)
    if told is None:
        return Reported()
    return Reported(tokens=told.prompt_tokens, limit=told.limit_tokens, output=told.max_tokens)


def request_compaction(
    *,
    session: Session,
    wanted: Wanted,
    now: datetime,
    requested_by: Any = None,
    source: str = "",
    retry_of: CompactionRun | None = None,
    call: HeldCall | None = None,
) -> CompactionRun:
    """Queue a run and hand it to the worker. Raises ActiveRun, PartialRefused, ReactiveRefused, and NothingToCompact
    where that is plain.

    `session`: with its team loaded. `source`: who asks (CompactionRun.Source). `retry_of`: the run that is tried again.
    `call`: the call with a key that this is, which keeps what it has made.
    """
    check_wanted(session=session, wanted=wanted)
    values = _values(session=session, wanted=wanted, source=source, now=now)
    values |= {"requested_by": requested_by, "retry_of": retry_of}
    with transaction.atomic():
        run = _queue(session=session, wanted=wanted, now=now, values=values)
        if call is not None:
            idempotency.note(call=call, subject=run.uuid)
        handing_out.hand_out_on_commit(run_id=run.pk)
    return run


def _queue(*, session: Session, wanted: Wanted, now: datetime, values: dict[str, Any]) -> CompactionRun:
    try:
        return runs.queue_run(session=session, now=now, **values)
    except ActiveRun as active:
        if not _gives_way(active.run, to=wanted):
            raise
        return runs.queue_instead(of=active.run, now=now, **values)


def _gives_way(run: CompactionRun, *, to: Wanted) -> bool:
    """Whether an active run is given up for what is wanted: nobody works on it, and a client can't go on without."""
    waits = run.status == RunStatus.QUEUED and run.trigger == CompactBoundary.Trigger.AUTO
    return to.reported is not None and (waits or run.status == RunStatus.AWAITING_APPROVAL)


def check_wanted(*, session: Session, wanted: Wanted) -> None:
    """Raises what `request_compaction` does, but for PartialRefused, where nothing can come of it."""
    if wanted.reported is not None:
        check_reactive(session=session)
    active = CompactionRun.objects.filter(session=session).active().first()
    if active is not None and not _gives_way(active, to=wanted):
        raise ActiveRun(run=active)
    if not session.last_position:
        raise NothingToCompact("The session has no messages.")
    head = selectors.head_boundary(session=session)
    # What a part or a memory has kept may be of any size, so there may be something to do at once.
    keeps_much = head is not None and BoundaryKind(head.kind).keeps_what_may_go
    is_new = head is None or keeps_much or session.leaf_position > head.committed_at_position
    if wanted.scope is Scope.WHOLE and wanted.reported is None and not is_new:
        raise NothingToCompact("Nothing was added since the last compaction.")


def check_reactive(*, session: Session) -> None:
    """Raises ReactiveRefused. `session`: with its team loaded."""
    resolved = selectors.effective_policy(team=session.team, session=session)
    if not resolved.policy.reactive_compact:
        raise ReactiveRefused(
            code="reactive_compact_disabled",
            detail="Reactive compaction is switched off (REACTIVE_COMPACT, or the figure reactive_compact of a team or "
            "a session). Ask for a compaction without mode, or send less.",
        )
    if off := switched_off(resolved=resolved, automatic=True):
        raise ReactiveRefused(
            code="auto_compact_disabled",
            detail=f"{off[:1].upper()}{off[1:]}, and a reactive compaction is one that nobody asked for by hand. "
            "Switch it on, ask for a compaction without mode, or send less.",
        )


def _values(*, session: Session, wanted: Wanted, source: str, now: datetime) -> dict[str, Any]:
    """What a run is queued with. Raises PartialRefused."""
    values: dict[str, Any] = {
        "trigger": wanted.trigger,
        "instructions": wanted.instructions,
        "source": source,
        "summarizer": wanted.summarizer,
        "reported": wanted.reported,
    }
    if wanted.scope is Scope.WHOLE:
        return values
    try:
        cut = partial.find_cut(session=session, scope=wanted.scope, uuid=wanted.scope_uuid)
    except PartialRefused as refused:
        partial.tell_refused(session=session, refused=refused, source=source, now=now)
        raise
    return values | {"scope": wanted.scope, "scope_uuid": wanted.scope_uuid, "cut_uuid": cut.uuid}


def compact_now(*, session: Session, wanted: Wanted, now: datetime, listener: ProgressListener) -> CompactionRun:
    """Run a compaction in this process. Raises ActiveRun when another process works on one, and PartialRefused.

    A run that somebody has queued but that nobody works on is done here, with its own instructions; this one takes the
    place of a run that had started by itself. Stopped by the keyboard, the run is cancelled: nobody waits for it any
    more.
    """
    run = _run_by_hand(session=session, wanted=wanted, now=now)
    try:
        done = runs.execute(run_id=run.pk, listener=listener)
    except KeyboardInterrupt:
        runs.cancel_queued(run=run, now=now)
        raise
    if done is None:
        raise ActiveRun(run=run)
    tasks.count_exact_after(run=done)
    return done


def _run_by_hand(*, session: Session, wanted: Wanted, now: datetime) -> CompactionRun:
    """A queued run that somebody wants: one that waits already, or a new one. Raises ActiveRun, PartialRefused."""
    values = _values(session=session, wanted=wanted, source=CompactionRun.Source.COMMAND, now=now)
    try:
        return runs.queue_run(session=session, now=now, **values)
    except ActiveRun as active:
        if active.run.trigger != CompactBoundary.Trigger.AUTO:
            return active.run
        return runs.queue_instead(of=active.run, now=now, **values)
