"""What automatic compaction remembers of a session: failures in a row, and whether it has stopped by itself."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import models

from compaction_app.engine.breaker import OpenedBy
from sessions_app.models import Session
from sessions_app.policy import Policy

OPENED_BY_CHOICES = [(cause.value, cause.value.replace("_", " ")) for cause in OpenedBy]


class CompactionState(models.Model):
    """One row a session, made once there is something to remember; the breaker's rule is engine/breaker.py."""

    session = models.OneToOneField(Session, on_delete=models.CASCADE, related_name="compaction_state")
    consecutive_failures = models.PositiveIntegerField(default=0)
    consecutive_ineffective = models.PositiveIntegerField(default=0)
    last_failure = models.CharField(max_length=40, blank=True, help_text="reason of the newest failure in a row")
    opened_at = models.DateTimeField(null=True, blank=True)
    opened_by = models.CharField(max_length=15, choices=OPENED_BY_CHOICES, blank=True)
    tried_at = models.DateTimeField(null=True, blank=True, help_text="when an open breaker last allowed a try")
    nothing_at_tokens = models.PositiveIntegerField(
        null=True, blank=True, help_text="size of the context when a run found nothing to compact"
    )
    # How much had been appended when the memory was last written, and whether the next extraction is under way (S6).
    memory_at_tokens = models.PositiveBigIntegerField(default=0)
    memory_at_calls = models.PositiveBigIntegerField(default=0)
    memory_asked_at = models.DateTimeField(null=True, blank=True, help_text="when an extraction was last handed out")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(opened_at__isnull=True, opened_by="")
                | (models.Q(opened_at__isnull=False) & ~models.Q(opened_by="")),
                name="breaker_open_with_cause",
            )
        ]
        indexes = [
            models.Index(fields=["session"], name="breaker_open", condition=models.Q(opened_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.consecutive_failures} failures, {self.consecutive_ineffective} ineffective"

    def is_extracting(self, *, now: datetime, policy: Policy) -> bool:
        """Whether an extraction of the memory is under way, as far as one can tell."""
        lost_after = timedelta(seconds=policy.memory_lost_seconds)
        return self.memory_asked_at is not None and now - self.memory_asked_at < lost_after
