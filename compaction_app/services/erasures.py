"""Erasure: the one exception to a history that is only added to. Everything of a session goes; that it went, stays.

What is deleted is never loaded: a statement for each table, whatever the session's length.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from compaction_app.models import (
    ClientState,
    CompactionCandidate,
    CompactionRun,
    CompactionState,
    Decision,
    HookDelivery,
    IdempotentCall,
    ModelCall,
    RunStep,
    SessionMemory,
    TelemetryEvent,
    TranscriptImport,
)
from sessions_app.models import (
    Attachment,
    CompactBoundary,
    Erasure,
    Message,
    PathAbsence,
    SearchText,
    Session,
    ToolCall,
    TranscriptEntry,
)
from sessions_app.services.append import lock_session


def erase_session(*, session: Session, by: str, now: datetime) -> Erasure:
    """Delete the session and all that was made of it, in one transaction.

    `by`: who asks, in words. Sessions that it has started stay, without their parent. A worker that is at one of its
    runs finds nothing to write to. Raises Session.DoesNotExist where it is gone already.
    """
    with transaction.atomic():
        locked = lock_session(session_id=session.pk)
        _keep_others_out(locked)
        erasure = Erasure.objects.create(
            team=locked.team,
            session_uuid=locked.uuid,
            erased_by=by,
            messages=locked.last_position,
            boundaries=locked.boundaries.count(),
            at=now,
        )
        _forget_answers(locked)
        _forget_in_imports(locked)
        Session.objects.filter(parent=locked).update(parent=None)
        for rows in _all_of(locked):
            _delete(rows)
        _delete(Session.objects.filter(pk=locked.pk))
    return erasure


def _keep_others_out(session: Session) -> None:
    """From here on nobody can write what refers to the session or to its runs: who has begun to waits, and is refused.

    The session's lock leaves that open. Runs first: who holds one may be about to write what refers to the session too.
    """
    list(CompactionRun.objects.select_for_update().filter(session=session).order_by("pk").values_list("pk"))
    list(Session.objects.select_for_update().filter(pk=session.pk).values_list("pk"))


def _all_of(session: Session) -> list[QuerySet[Any]]:
    """What refers to the session, each before what it refers to. A test walks all models: none can be left out."""
    of_runs = {"run__session": session}
    of_session = {"session": session}
    return [
        *(model.objects.filter(**of_runs) for model in (CompactionCandidate, RunStep, ModelCall)),
        *(model.objects.filter(**of_session) for model in (HookDelivery, Decision, TelemetryEvent)),
        *(model.objects.filter(**of_session) for model in (ClientState, SessionMemory, CompactionState)),
        CompactionRun.objects.filter(session=session),
        SearchText.objects.filter(session=session),
        Attachment.objects.filter(boundary__session=session),
        CompactBoundary.objects.filter(session=session),
        *(model.objects.filter(**of_session) for model in (ToolCall, TranscriptEntry, PathAbsence)),
        Message.objects.filter(session=session),
    ]


def _delete(rows: QuerySet[Any]) -> None:
    """In one statement. A queryset's own delete() would load every row whose table another one refers to, contents and
    all; here the order sees to it that nothing refers to what goes."""
    rows._raw_delete(rows.db)


def _forget_answers(session: Session) -> None:
    """Kept answers tell of runs, with their instructions."""
    runs = CompactionRun.objects.filter(session=session).values("uuid")
    IdempotentCall.objects.filter(team_id=session.team_id, subject__in=runs).delete()


def _forget_in_imports(session: Session) -> None:
    """What an import tells of it: its client's id, and the name of the file, which may say what it is about."""
    told = str(session.uuid)
    rows = TranscriptImport.objects.filter(team_id=session.team_id, sessions__contains=told)
    uuids = list(rows.values_list("uuid", flat=True))
    for row in rows:
        row.sessions = [one for one in row.sessions if one["id"] != told]
        row.name, row.problems = "", []
        row.save(update_fields=["name", "sessions", "problems"])
    IdempotentCall.objects.filter(team_id=session.team_id, subject__in=uuids).delete()
