"""Files that wait for the worker, under names of ours in a folder that is never served."""

from __future__ import annotations

import logging
import uuid
from datetime import datetime, timedelta
from typing import IO, Any

from django.core.files import File
from django.core.files.storage import Storage, default_storage

from compaction_app.models import TranscriptImport
from sessions_app.policy import Policy

logger = logging.getLogger(__name__)

FOLDER = "imports"


def keep(*, file: File[Any]) -> str:
    """The name that it is kept under. A file that is on disk already is moved there, not copied, where that can be."""
    return _storage().save(f"{FOLDER}/{uuid.uuid4()}", file)


def opened(*, name: str) -> IO[bytes]:
    """Raises FileNotFoundError."""
    if not name:
        raise FileNotFoundError
    return _storage().open(name)


def drop(*, name: str) -> None:
    """Delete it, if it is there. One that can't be deleted is left to `tidy`."""
    if not name:
        return
    try:
        _storage().delete(name)
    except OSError as error:
        logger.warning("an upload could not be deleted (%s)", type(error).__name__)


def tidy(*, now: datetime) -> int:
    """Delete old files that no import waits for, left by a server that went away before it noted them; how many."""
    storage, long_ago = _storage(), now - timedelta(hours=Policy().import_orphan_hours)
    try:
        names = [f"{FOLDER}/{name}" for name in storage.listdir(FOLDER)[1]]
        old = [name for name in names if storage.get_modified_time(name) < long_ago]
    except OSError:
        return 0  # nothing was ever kept
    if not old:
        return 0
    wanted = set(TranscriptImport.objects.filter(upload__in=old).values_list("upload", flat=True))
    for name in set(old) - wanted:
        drop(name=name)
    return len(set(old) - wanted)


def _storage() -> Storage:
    return default_storage
