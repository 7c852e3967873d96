"""Imports: small files within the call, large ones by the worker.

The row is the truth; the queue only carries its id, and may lose it or deliver it twice. An import is one transaction,
and on SQLite nobody else can write meanwhile: so what it has read so far, and that its worker is alive, is told by the
cache, and the row is written at its beginning and, with all that was imported, at its end.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic
from typing import IO, Any, cast

from django.core.cache import cache
from django.core.files import File
from django.db import transaction
from django.utils import timezone

from compaction_app.engine.outcome import RunErrored
from compaction_app.models import ImportStatus, TranscriptImport
from compaction_app.selectors.imports import progress_key, told_progress
from compaction_app.services import idempotency, uploads
from compaction_app.services.claims import hand_out_again
from compaction_app.services.idempotency import HeldCall
from compaction_app.services.run_ends import describe
from compaction_app.services.unpacking import is_larger, unpacked
from sessions_app import selectors as transcripts
from sessions_app.models import Team
from sessions_app.policy import Policy
from sessions_app.services.transcripts import ImportRefused, ImportReport, SessionReport, import_transcript

logger = logging.getLogger(__name__)


class ImportLost(Exception):
    """Somebody else has the import by now; what this worker did with it is undone."""


@dataclass(frozen=True, slots=True)
class Held:
    """An import that this worker holds. `token` fences what it writes."""

    row: TranscriptImport
    token: uuid.UUID


def is_for_worker(*, file: File[Any]) -> bool:
    """Whether it is too large to be imported while its client waits (policy: import_inline_bytes, unpacked)."""
    return is_larger(stream=_stream(file), than=Policy().import_inline_bytes)


def _stream(file: File[Any]) -> IO[bytes]:
    return cast(IO[bytes], file.file)


def import_now(
    *, team: Team, file: File[Any], name: str, format_name: str, now: datetime, call: HeldCall | None = None
) -> TranscriptImport:
    """Import it in this process: all of it, or nothing. Raises ImportRefused. `call`: what is noted on it is done."""
    row = TranscriptImport(
        team=team, name=name, format=format_name, size_bytes=file.size, read_bytes=file.size, queued_at=now
    )
    with unpacked(stream=_stream(file), most=Policy().import_unpacked_bytes) as (stream, _), transaction.atomic():
        report = _imported(team=team, stream=stream, row=row, now=now, progress=None)
        for name_, value in _told(report).items():
            setattr(row, name_, value)
        row.status, row.started_at, row.finished_at, row.attempt = ImportStatus.SUCCEEDED, now, timezone.now(), 1
        row.save()
        if call is not None:
            idempotency.note(call=call, subject=row.uuid)
    return row


def queue(
    *, team: Team, file: File[Any], name: str, format_name: str, now: datetime, call: HeldCall | None = None
) -> TranscriptImport:
    """Keep the file for the worker. The caller hands the row out."""
    size = file.size
    upload = uploads.keep(file=file)
    try:
        with transaction.atomic():
            row = TranscriptImport.objects.create(
                team=team,
                name=name,
                format=format_name,
                size_bytes=size,
                upload=upload,
                queued_at=now,
                handed_out_at=now,
            )
            if call is not None:
                idempotency.note(call=call, subject=row.uuid)
    except BaseException:
        uploads.drop(name=upload)
        raise
    return row


def execute(*, import_id: int) -> TranscriptImport | None:
    """Claim the import and bring it to its end. None when it was not to be had.

    What is wrong with the file ends on the row; what is unexpected ends there too and raises RunErrored.
    """
    held = _claim(import_id=import_id, now=timezone.now())
    if held is None:
        return None
    try:
        _work(held)
    except ImportLost:
        logger.info("import %s was taken away from this worker", held.row.uuid)
        return None
    except ImportRefused as refused:
        _fail(held, detail=str(refused))
    except FileNotFoundError:
        _fail(held, detail="its file is gone")
    except (KeyboardInterrupt, SystemExit):
        _give_back(held)
        raise
    except Exception as error:
        told = describe(error=error)
        logger.error("import %s met an unexpected %s", held.row.uuid, told)
        _fail(held, detail=f"unexpected {told}")
        raise RunErrored(f"import {held.row.uuid}: {told}") from None
    held.row.refresh_from_db()
    return held.row


def _work(held: Held) -> None:
    row, now = held.row, timezone.now()
    pulse = _Pulse(row=row)
    with (
        uploads.opened(name=row.upload) as packed,
        unpacked(stream=packed, most=Policy().import_unpacked_bytes) as (stream, size),
    ):
        pulse.total = size
        with transaction.atomic():
            report = _imported(team=row.team, stream=stream, row=row, now=now, progress=pulse.read)
            _end(held, status=ImportStatus.SUCCEEDED, read_bytes=row.size_bytes, **_told(report))
    uploads.drop(name=row.upload)
    pulse.stop()


def _imported(*, team: Team, stream: IO[bytes], row: TranscriptImport, now: datetime, progress: Any) -> ImportReport:
    return import_transcript(
        team=team,
        stream=stream,
        name=_plain_name(row.name),
        format_name=row.format,
        policy=transcripts.effective_policy(team=team).policy,
        now=now,
        progress=progress,
    )


def _plain_name(name: str) -> str:
    """Without the ending of what it was packed by: the session is known by what is left."""
    return name[:-3] if name.lower().endswith(".gz") else name


def _told(report: ImportReport) -> dict[str, Any]:
    return {
        "sessions": [_session(one) for one in report.sessions],
        "messages": report.messages,
        "duplicates": report.duplicates,
        "entries": report.entries,
        "boundaries": report.boundaries,
        "problems": [{"line": one.line_number, "reason": one.reason, "kept": one.kept} for one in report.problems],
        "problem_count": report.problem_count,
    }


def _session(one: SessionReport) -> dict[str, Any]:
    return {
        "id": str(one.session.uuid),
        "external_id": one.session.external_id,
        "created": one.created,
        "messages": one.messages,
        "duplicates": one.duplicates,
        "entries": one.entries,
        "boundaries": one.boundaries,
    }


def _claim(*, import_id: int, now: datetime) -> Held | None:
    row = TranscriptImport.objects.select_related("team").filter(pk=import_id).first()
    if row is None or row.status != ImportStatus.QUEUED:
        return None
    token = uuid.uuid4()
    taken = TranscriptImport.objects.filter(pk=row.pk, status=ImportStatus.QUEUED, attempt=row.attempt).update(
        status=ImportStatus.RUNNING,
        claim_token=token,
        attempt=row.attempt + 1,
        started_at=row.started_at or now,
        lease_expires_at=now + _lease(row.team),
    )
    return Held(row=row, token=token) if taken else None


def _lease(team: Team) -> timedelta:
    return timedelta(seconds=transcripts.effective_policy(team=team).policy.lease_seconds)


def _ours(held: Held) -> Any:
    return TranscriptImport.objects.filter(pk=held.row.pk, status=ImportStatus.RUNNING, claim_token=held.token)


def _end(held: Held, *, status: str, **values: Any) -> None:
    """Raises ImportLost."""
    values |= {"status": status, "finished_at": timezone.now(), "lease_expires_at": None, "upload": ""}
    if not _ours(held).update(**values):
        raise ImportLost


def _fail(held: Held, *, detail: str) -> None:
    try:
        _end(held, status=ImportStatus.FAILED, detail=detail)
    except ImportLost:
        return
    uploads.drop(name=held.row.upload)


def _give_back(held: Held) -> None:
    _ours(held).update(status=ImportStatus.QUEUED, handed_out_at=None, lease_expires_at=None, claim_token=None)


class _Pulse:
    """What was read so far, told at most once a second; while it is told, the worker is alive."""

    def __init__(self, *, row: TranscriptImport) -> None:
        self.key = progress_key(row=row)
        self.kept_for = _lease(row.team).total_seconds()
        self.pause = Policy().progress_seconds
        self.total, self.done, self.told_at = 0, 0, float("-inf")

    def read(self, size: int) -> None:
        self.done += size
        if monotonic() - self.told_at < self.pause:
            return
        self.told_at = monotonic()
        try:
            cache.set(self.key, {"read": self.done, "total": self.total}, timeout=self.kept_for)
        except Exception as error:
            logger.warning("the cache does not take the progress of an import (%s)", type(error).__name__)

    def stop(self) -> None:
        try:
            cache.delete(self.key)
        except Exception as error:
            logger.warning("the cache does not answer (%s)", type(error).__name__)


# The sweep


def recover(*, now: datetime, broker_is_new: bool = False) -> list[int]:
    """Ids of imports that must be handed to a worker: those whose worker went silent, and queued ones that were not
    handed out for a while. One that lost its worker too often fails."""
    silent = TranscriptImport.objects.filter(status=ImportStatus.RUNNING, lease_expires_at__lt=now)
    for row in silent.select_related("team"):
        if told_progress(row=row) is None:
            _take_back(row=row)
    queued = TranscriptImport.objects.filter(status=ImportStatus.QUEUED)
    return hand_out_again(queued=queued, now=now, broker_is_new=broker_is_new)


def _take_back(*, row: TranscriptImport) -> None:
    if row.claim_token is None:
        return
    held = Held(row=row, token=row.claim_token)
    if row.attempt >= transcripts.effective_policy(team=row.team).policy.run_attempts:
        _fail(held, detail=f"its worker went silent {row.attempt} times")
    else:
        _give_back(held)


def not_handed_out(*, import_id: int) -> None:
    """Note that the queue did not take it, so that the next sweep tries again."""
    TranscriptImport.objects.filter(pk=import_id, status=ImportStatus.QUEUED).update(handed_out_at=None)
