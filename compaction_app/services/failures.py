"""Groups of failed runs are counted as runs fail; what people do about them is in failure_reviews.py."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db.models import F, Value
from django.db.models.functions import Greatest

from compaction_app.engine.outcome import FailureReason
from compaction_app.models import FailureDay, FailureGroup
from sessions_app.models import Session

MODEL_CHARS = 200  # of its name; the column's length


def note_failure(*, session: Session, reason: FailureReason, now: datetime) -> FailureGroup:
    """One more run of the session has failed: gives back its group. In the transaction of the failure, always after
    the session's lock, so that two that fail at once never wait for each other."""
    group, _ = FailureGroup.objects.get_or_create(
        team_id=session.team_id,
        reason=reason.value,
        model=session.model[:MODEL_CHARS],
        defaults={"first_seen": now, "last_seen": now},
    )
    FailureGroup.objects.filter(pk=group.pk).update(
        count=F("count") + 1, last_seen=Greatest(F("last_seen"), Value(now))
    )
    day, _ = FailureDay.objects.get_or_create(group=group, day=now.astimezone(UTC).date())
    FailureDay.objects.filter(pk=day.pk).update(count=F("count") + 1)
    return group
