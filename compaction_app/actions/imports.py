"""Transcript files that come in over the API."""

from __future__ import annotations

import functools
from datetime import datetime
from typing import Any

from django.core.files import File
from django.db import transaction

from compaction_app import tasks
from compaction_app.models import TranscriptImport
from compaction_app.services import imports
from compaction_app.services.idempotency import HeldCall
from sessions_app.models import Team


def import_upload(
    *, team: Team, file: File[Any], name: str, format_name: str, now: datetime, call: HeldCall | None = None
) -> TranscriptImport:
    """Import an uploaded file: at once where it is small, else by the worker; the row tells which.

    `name`: as its client gave it; `call`: the key that the request carries, on which it is noted. Raises ImportRefused
    where it is imported at once; then nothing is stored.
    """
    if not imports.is_for_worker(file=file):
        return imports.import_now(team=team, file=file, name=name, format_name=format_name, now=now, call=call)
    row = imports.queue(team=team, file=file, name=name, format_name=format_name, now=now, call=call)
    transaction.on_commit(functools.partial(tasks.hand_out_import, import_id=row.pk))
    return row
