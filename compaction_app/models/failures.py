"""Failed compactions, as people review them: groups of one kind, kept up as runs fail."""

from __future__ import annotations

from typing import Self

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from compaction_app.models.runs import FAILURE_CHOICES
from sessions_app.models import Team
from sessions_app.models.fields import StorableTextField


class GroupState(models.TextChoices):
    OPEN = "open"
    CAME_BACK = "came_back"
    ACKNOWLEDGED = "acknowledged"


class FailureGroupQuerySet(models.QuerySet["FailureGroup"]):
    def for_team(self, team: Team) -> Self:
        return self.filter(team=team)

    def in_state(self, *states: str) -> Self:
        wanted = Q(pk__in=[])
        if GroupState.OPEN in states:
            wanted |= Q(acknowledged_at__isnull=True)
        if GroupState.CAME_BACK in states:
            wanted |= Q(acknowledged_at__isnull=False, count__gt=F("acknowledged_count"))
        if GroupState.ACKNOWLEDGED in states:
            wanted |= Q(acknowledged_at__isnull=False, count__lte=F("acknowledged_count"))
        return self.filter(wanted)


class FailureGroup(models.Model):
    """The failed runs of one team, for one reason, in sessions of one model.

    A row that is kept up as runs fail, so that the queue costs the same however many have. The figures go on counting
    what a session that was erased has had.
    """

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="failure_groups")
    reason = models.CharField(max_length=40, choices=FAILURE_CHOICES)
    model = models.CharField(max_length=200, blank=True, help_text="of the sessions, as their clients name it")
    count = models.PositiveIntegerField(default=0)
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField()
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.CharField(max_length=200, blank=True)
    # How many there were then: what came since is the difference.
    acknowledged_count = models.PositiveIntegerField(default=0)

    objects = FailureGroupQuerySet.as_manager()

    class Meta:
        verbose_name = "failed compactions of one kind"
        verbose_name_plural = "failed compactions"
        constraints = [models.UniqueConstraint(fields=["team", "reason", "model"], name="failure_group_once")]
        indexes = [models.Index(fields=["-last_seen"], name="failure_group_newest")]

    def __str__(self) -> str:
        return f"{self.get_reason_display()} ({self.count})"

    @property
    def state(self) -> GroupState:
        """Acknowledged: until it happens again."""
        if self.acknowledged_at is None:
            return GroupState.OPEN
        return GroupState.CAME_BACK if self.count > self.acknowledged_count else GroupState.ACKNOWLEDGED

    @property
    def count_since(self) -> int:
        """How many have come since somebody acknowledged it; all of them, where nobody has."""
        return self.count - self.acknowledged_count


class FailureDay(models.Model):
    """How many of a group failed on one day (UTC)."""

    group = models.ForeignKey(FailureGroup, on_delete=models.CASCADE, related_name="days")
    day = models.DateField()
    count = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["group", "day"], name="failure_day_once")]

    def __str__(self) -> str:
        return f"{self.count} on {self.day}"


class FailureNote(models.Model):
    """What somebody has done about a group, or wants the others to know. Never edited."""

    class Kind(models.TextChoices):
        NOTE = "note"
        ACKNOWLEDGED = "acknowledged"
        REOPENED = "reopened"
        RETRIED = "retried"

    group = models.ForeignKey(FailureGroup, on_delete=models.CASCADE, related_name="notes")
    kind = models.CharField(max_length=15, choices=Kind)
    text = StorableTextField(blank=True)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    by_name = models.CharField(max_length=200)  # stays when the user goes
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["group", "-id"], name="failure_note_newest")]

    def __str__(self) -> str:
        return f"{self.kind} by {self.by_name}"
