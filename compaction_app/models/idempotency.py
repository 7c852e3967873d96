"""Calls that carry an `Idempotency-Key`: the first answer, kept for a while so that the same call gives it again."""

from __future__ import annotations

import uuid

from django.db import models

from sessions_app.models import Team
from sessions_app.models.fields import ExactJSONField


class IdempotentCall(models.Model):
    """One key of a team. Without an answer, the call is under way, or its server went away in the middle."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="idempotent_calls")
    key = models.CharField(max_length=255)
    digest = models.CharField(max_length=64, help_text="of method, path and body")
    # What the call made (a run, an import), noted in the transaction that made it: an answer can be given from it.
    subject = models.UUIDField(null=True, blank=True)
    status = models.PositiveSmallIntegerField(null=True, blank=True, help_text="HTTP status of the answer")
    answer = ExactJSONField(null=True, blank=True)
    holder = models.UUIDField(default=uuid.uuid4, help_text="fences a server out that was given up")
    created_at = models.DateTimeField()
    held_at = models.DateTimeField(help_text="when whoever works on it took it")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "key"], name="idempotency_key_once")]
        indexes = [models.Index(fields=["created_at"], name="idempotency_by_age")]

    def __str__(self) -> str:
        return f"{self.key} ({self.status or 'under way'})"
