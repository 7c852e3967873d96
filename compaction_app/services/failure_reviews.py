"""What people do about groups of failed runs: acknowledge them, open them again, leave a note. All of it is kept."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db import transaction

from compaction_app.models import FailureGroup, FailureNote
from compaction_app.services.approvals import Decider
from sessions_app.models.fields import storable_text

LONGEST_NOTE = 2_000  # characters


def acknowledge(*, groups: Iterable[FailureGroup], by: Decider, note: str, now: datetime) -> int:
    """Out of the queue until it happens again; how many were in it. What came between the page and the click counts
    as new: a group is acknowledged as far as `groups` has read it."""
    done = 0
    for group in groups:
        with transaction.atomic():
            locked = FailureGroup.objects.select_for_update().get(pk=group.pk)
            if locked.acknowledged_count >= group.count:
                continue  # somebody was faster, with as much in sight
            locked.acknowledged_at, locked.acknowledged_by, locked.acknowledged_count = now, by.name, group.count
            locked.save(update_fields=["acknowledged_at", "acknowledged_by", "acknowledged_count"])
            write_note(group=group, kind=FailureNote.Kind.ACKNOWLEDGED, text=note, by=by, now=now)
            done += 1
    return done


def reopen(*, group: FailureGroup, by: Decider, note: str, now: datetime) -> bool:
    """Back into the queue; False where it is there."""
    with transaction.atomic():
        found = FailureGroup.objects.filter(pk=group.pk, acknowledged_at__isnull=False)
        if not found.update(acknowledged_at=None, acknowledged_by="", acknowledged_count=0):
            return False
        write_note(group=group, kind=FailureNote.Kind.REOPENED, text=note, by=by, now=now)
    return True


def write_note(*, group: FailureGroup, kind: FailureNote.Kind, text: str, by: Decider, now: datetime) -> FailureNote:
    """What was done, or is to be known, for whoever looks next. Of `text` the first `LONGEST_NOTE` characters."""
    return FailureNote.objects.create(
        group=group, kind=kind, text=storable_text(text.strip())[:LONGEST_NOTE], by=by.user, by_name=by.name, at=now
    )
