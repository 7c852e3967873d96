"""Celery tasks: thin, by id, safe to deliver twice. Unknown arguments are ignored: an old worker survives a deploy."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from celery import shared_task
from django.conf import settings
from django.db import transaction
from django.utils import timezone
from kombu.exceptions import OperationalError

from compaction_app.models import CompactionRun
from compaction_app.services import catalog, counts, decisions, hooks, idempotency, imports, memory, runs, uploads
from sessions_app.models import Session

logger = logging.getLogger(__name__)


@shared_task
def compact_session(*, run_id: int, **_: Any) -> None:
    """Bring one run to its end; where there is a key, its result is counted by another task; then hooks are told."""
    try:
        count_exact_after(run=runs.execute(run_id=run_id))
    finally:
        hand_out_due(now=timezone.now())


@shared_task
def recover_runs(**_: Any) -> None:
    """Take up what was left behind."""
    hand_out_left_behind(now=timezone.now())


@shared_task
def refresh_catalog(**_: Any) -> None:
    """Ask the provider for the windows of its models, where that is due."""
    catalog.refresh(now=timezone.now())


@shared_task
def count_exact_tokens(*, boundary_id: int, **_: Any) -> None:
    """Have the provider count the context that a compaction left."""
    counts.count_exact(boundary_id=boundary_id)


@shared_task
def deliver_hook(*, delivery_id: int, **_: Any) -> None:
    """Try once to send an event to a hook, where that is due."""
    hooks.deliver(delivery_id=delivery_id, now=timezone.now())


@shared_task
def extract_session_memory(*, session_id: int, **_: Any) -> None:
    """Write the memory of a session from what it has so far."""
    try:
        memory.extract(session_id=session_id, now=timezone.now())
    except Session.DoesNotExist:
        logger.info("a session was erased before its memory was written")


@shared_task
def import_transcript_file(*, import_id: int, **_: Any) -> None:
    """Bring one import to its end."""
    imports.execute(import_id=import_id)


def hand_out_import(*, import_id: int) -> bool:
    """Give the import to the queue; whether that took it. Else the next sweep tries again."""
    try:
        import_transcript_file.delay(import_id=import_id)
    except Exception as error:
        logger.warning("the queue does not take import %s (%s)", import_id, type(error).__name__)
        imports.not_handed_out(import_id=import_id)
        return False
    return True


def hand_out_imports(*, now: datetime, broker_is_new: bool) -> None:
    """Hand out imports that were left behind, and delete uploads that belong to none. Whatever goes wrong, the next
    sweep tries."""
    try:
        for import_id in imports.recover(now=now, broker_is_new=broker_is_new):
            hand_out_import(import_id=import_id)
        uploads.tidy(now=now)
    except Exception as error:
        logger.warning("imports can't be looked after (%s); the next sweep tries again", type(error).__name__)


def hand_out_extraction(*, session_id: int) -> None:
    """Give it to the queue once the append is there for everybody; one that the queue does not take is asked for again
    by a later append."""

    def send() -> None:
        try:
            extract_session_memory.delay(session_id=session_id)
        except Exception as error:
            logger.warning("the queue does not take the memory of session %s (%s)", session_id, type(error).__name__)

    transaction.on_commit(send)


def hand_out(*, run_id: int) -> bool:
    """Give the run to the queue; whether that took it. Else it stays queued, and the next sweep tries again.

    Whatever goes wrong with one run keeps back no other, and takes nothing from what its request has done.
    """
    try:
        compact_session.delay(run_id=run_id)
    except Exception as error:
        logger.warning("the queue does not take run %s (%s); the next sweep tries again", run_id, type(error).__name__)
        runs.not_handed_out(run_id=run_id)
        return False
    return True


def hand_out_left_behind(*, now: datetime, broker_is_new: bool = False) -> int:
    """Hand out runs that were queued but not delivered, or whose worker went silent; then runs for appends that nobody
    has decided about; what waits to be sent to hooks; and imports. Old answers are deleted. How many runs the queue
    took. `broker_is_new`: it holds nothing yet."""
    left = [hand_out(run_id=run_id) for run_id in runs.recover(now=now, broker_is_new=broker_is_new)]
    swept = [hand_out(run_id=run_id) for run_id in decisions.sweep(now=now)]
    hand_out_due(now=now)
    hand_out_imports(now=now, broker_is_new=broker_is_new)
    forget_old_answers(now=now)
    return sum(left) + sum(swept)


def forget_old_answers(*, now: datetime) -> None:
    """Delete answers to repeatable calls that are past their time, a bounded number; the next sweep goes on."""
    try:
        idempotency.purge(now=now)
    except Exception as error:
        logger.warning("old answers can't be deleted (%s); the next sweep tries again", type(error).__name__)


def hand_out_due(*, now: datetime) -> int:
    """Hand out what waits to be sent to hooks; how many the queue took. Whatever goes wrong, the next sweep tries."""
    try:
        return hand_out_deliveries(ids=hooks.due(now=now))
    except Exception as error:
        logger.warning("what waits for hooks can't be read (%s); the next sweep tries again", type(error).__name__)
        return 0


def hand_out_deliveries(*, ids: Iterable[int]) -> int:
    """Give deliveries to the queue; how many it took. The others wait for the next sweep."""
    taken = 0
    for delivery_id in ids:
        try:
            deliver_hook.delay(delivery_id=delivery_id)
        except Exception as error:
            logger.warning("the queue takes no deliveries (%s); the next sweep tries again", type(error).__name__)
            break  # each would wait for the same queue
        taken += 1
    return taken


def count_exact_after(*, run: CompactionRun | None) -> None:
    """Have the worker get the exact size of the context that a run has left, where there is a key."""
    if run is None or run.boundary_id is None or not settings.ANTHROPIC_KEY_SET:
        return
    try:
        count_exact_tokens.delay(boundary_id=run.boundary_id)
    except OperationalError:
        logger.warning("the queue does not answer; boundary %s keeps its estimate", run.boundary_id)
