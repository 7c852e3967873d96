"""Telemetry events (S18): one row each, written in the transaction of what they report."""

from __future__ import annotations

import uuid
from typing import Self

from django.db import models

from compaction_app.models.runs import CompactionRun
from sessions_app.models import Session, Team
from sessions_app.models.fields import ExactJSONField


class TelemetryQuerySet(models.QuerySet["TelemetryEvent"]):
    def for_team(self, team: Team) -> Self:
        return self.filter(team=team)


class TelemetryEvent(models.Model):
    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="telemetry_events")
    session = models.ForeignKey(Session, on_delete=models.SET_NULL, null=True, related_name="telemetry_events")
    run = models.ForeignKey(CompactionRun, on_delete=models.SET_NULL, null=True, related_name="telemetry_events")
    name = models.CharField(max_length=60)
    payload = ExactJSONField(default=dict)
    at = models.DateTimeField()

    objects = TelemetryQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["team", "name", "-at"], name="telemetry_by_name"),
            models.Index(fields=["team", "-id"], name="telemetry_newest_first"),
        ]

    def __str__(self) -> str:
        return f"{self.name} at {self.at:%Y-%m-%d %H:%M:%S}"
