"""What happens around a call of the model: messages are appended after it, and the context is prepared before it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from compaction_app.actions.handing_out import hand_out_on_commit
from compaction_app.actions.memory import extract_when_due
from compaction_app.engine.decision import Outcome, switched_off
from compaction_app.models import CompactionRun, Decision
from compaction_app.selectors import PreparedContext, prepared_context
from compaction_app.services import clearing, decisions, runs
from compaction_app.services.clearing import Applied
from sessions_app import selectors
from sessions_app.models import Message, Session
from sessions_app.services.append import append_messages
from sessions_app.services.incoming import IncomingMessage

logger = logging.getLogger(__name__)


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


def append_turn(*, session: Session, incoming: Sequence[IncomingMessage], now: datetime) -> Turn:
    """Store messages, all or none; then decide whether a compaction starts by itself (S8). Raises UuidConflict.

    Nothing is compacted here: a run is queued. What goes wrong with the decision takes nothing from the append.
    """
    session, appended = append_messages(session_id=session.pk, incoming=incoming, now=now)
    run = _decide(session=session, stored=appended.stored, now=now) if appended.stored else None
    if appended.stored:
        extract_when_due(session=session, now=now)
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
