"""Imports of a team, as they stand; while one runs, the cache tells how far it is (services/imports.py)."""

from __future__ import annotations

from django.core.cache import cache

from compaction_app.models import ImportStatus, TranscriptImport
from compaction_app.models.imports import ImportQuerySet
from sessions_app.models import Team


def imports_of(*, team: Team) -> ImportQuerySet:
    return TranscriptImport.objects.for_team(team)


def progress_key(*, row: TranscriptImport) -> str:
    return f"import-progress:{row.uuid}"


def told_progress(*, row: TranscriptImport) -> dict[str, int] | None:
    """What its worker has told lately: `read` of `total` bytes; None where it tells nothing."""
    try:
        told: dict[str, int] | None = cache.get(progress_key(row=row))
    except Exception:
        return None  # no progress is told; the row stands
    return told


def progress_of(*, row: TranscriptImport) -> float:
    """How much of it is done, 0 to 1: while it runs, what of its file was read."""
    if row.status in (ImportStatus.SUCCEEDED, ImportStatus.FAILED):
        return 1.0
    told = told_progress(row=row) if row.status == ImportStatus.RUNNING else None
    return round(min(told["read"] / max(told["total"], 1), 1.0), 3) if told else 0.0
