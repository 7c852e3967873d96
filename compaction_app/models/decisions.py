"""The decision log: why something was done about a full session, and why not."""

from __future__ import annotations

from typing import Self

from django.db import models

from compaction_app.engine.decision import Outcome
from compaction_app.models.runs import CompactionRun
from sessions_app.models import Session, Team
from sessions_app.models.fields import ExactJSONField, StorableTextField
from sessions_app.models.sessions import LEVEL_CHOICES

OUTCOME_CHOICES = [(outcome.value, outcome.value.replace("_", " ")) for outcome in Outcome]


class DecisionQuerySet(models.QuerySet["Decision"]):
    def for_team(self, team: Team) -> Self:
        return self.filter(session__team=team)


class Decision(models.Model):
    """One decision near a threshold: the figures that it saw, what was chosen, and why."""

    class Moment(models.TextChoices):
        APPEND = "append"
        PREPARE = "prepare"
        SWEEP = "sweep"

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="decisions")
    moment = models.CharField(max_length=10, choices=Moment)
    at = models.DateTimeField()
    position = models.PositiveIntegerField(help_text="the session's last position")
    context_tokens = models.PositiveIntegerField()
    source = models.CharField(max_length=15, choices=Session.ContextSource)
    level = models.CharField(max_length=15, choices=LEVEL_CHOICES)
    warning_threshold = models.PositiveIntegerField()
    error_threshold = models.PositiveIntegerField()
    auto_compact_threshold = models.PositiveIntegerField()
    outcome = models.CharField(max_length=25, choices=OUTCOME_CHOICES)
    why = StorableTextField()
    applied = ExactJSONField(default=list, blank=True, help_text="what each light link did, where they were tried")
    run = models.ForeignKey(CompactionRun, on_delete=models.SET_NULL, null=True, blank=True, related_name="decisions")

    objects = DecisionQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["session", "-id"], name="decision_newest_first")]

    def __str__(self) -> str:
        return f"{self.outcome} at {self.context_tokens:,} tokens"
