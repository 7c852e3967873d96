"""Hooks of a team: where it wants to be asked and told about compactions, and what was sent there."""

from __future__ import annotations

import uuid
from typing import Self

from django.db import models
from django.db.models import Q

from compaction_app.models.runs import CompactionRun
from sessions_app.models import Session, Team
from sessions_app.models.fields import ExactJSONField, StorableTextField


class HookEvent(models.TextChoices):
    PRE_COMPACT = "pre_compact"
    POST_COMPACT = "post_compact"
    COMPACT_FAILED = "compact_failed"
    BREAKER_OPENED = "breaker_opened"


class HookQuerySet(models.QuerySet["Hook"]):
    def for_team(self, team: Team) -> Self:
        return self.filter(team=team)


class Hook(models.Model):
    """One address for one event. Requests are signed by the Standard Webhooks scheme with `secret`."""

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="hooks")
    event = models.CharField(max_length=20, choices=HookEvent)
    url = models.CharField(max_length=2_000, help_text="http or https; judged by services/hook_url.py")
    secret = models.CharField(max_length=100, help_text="whsec_ and base64; shown once, needed to sign")
    description = models.CharField(max_length=200, blank=True)
    enabled = models.BooleanField(default=True)
    can_block = models.BooleanField(default=False, help_text="pre_compact: whether its refusal is obeyed")
    required = models.BooleanField(
        default=False,
        help_text="pre_compact: nothing is compacted without its answer; else a hook that is down is skipped",
    )
    timeout = models.PositiveSmallIntegerField(null=True, blank=True, help_text="seconds; not set: the policy's figure")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = HookQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["team", "event"], name="hook_of_event", condition=Q(enabled=True)),
        ]

    def __str__(self) -> str:
        return f"{self.event} to {self.url}"


class HookDelivery(models.Model):
    """One event for one hook: written in the transaction of what it tells, sent by the worker until it is taken.

    A pre_compact is sent at once and has one try; its row is the log.
    """

    class Status(models.TextChoices):
        WAITING = "waiting"
        DELIVERED = "delivered"
        GIVEN_UP = "given_up"

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)  # the webhook-id, the same on each try
    hook = models.ForeignKey(Hook, on_delete=models.CASCADE, related_name="deliveries")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="hook_deliveries")
    run = models.ForeignKey(CompactionRun, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    event = models.CharField(max_length=20, choices=HookEvent)
    payload = ExactJSONField(default=dict)
    status = models.CharField(max_length=10, choices=Status, default=Status.WAITING)
    tries = models.PositiveSmallIntegerField(default=0)
    next_try_at = models.DateTimeField(null=True, blank=True)
    http_status = models.PositiveSmallIntegerField(null=True, blank=True)
    detail = StorableTextField(blank=True, help_text="why the last try failed, or what a pre_compact answered")
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "hook deliveries"
        constraints = [
            models.CheckConstraint(
                condition=(Q(status="waiting") & Q(next_try_at__isnull=False))
                | (~Q(status="waiting") & Q(next_try_at__isnull=True)),
                name="hook_delivery_waits_with_time",
            ),
        ]
        indexes = [
            models.Index(fields=["next_try_at"], name="hook_delivery_due", condition=Q(status="waiting")),
            models.Index(fields=["hook", "-id"], name="hook_delivery_newest_first"),
        ]

    def __str__(self) -> str:
        return f"{self.event} {self.status}"
