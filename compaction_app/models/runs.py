"""A compaction run: the row is the truth about the work; the queue only carries its id."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Self

from django.conf import settings
from django.db import models
from django.db.models import Q

from compaction_app.engine.command import Scope
from compaction_app.engine.outcome import FailureReason
from sessions_app.models import CompactBoundary, Session, Team
from sessions_app.models.fields import ExactJSONField, StorableTextField

FAILURE_CHOICES = [(reason.value, reason.value.replace("_", " ")) for reason in FailureReason]

SCOPE_CHOICES = [(scope.value, scope.value.replace("_", " ")) for scope in Scope]


class RunStatus(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    AWAITING_APPROVAL = "awaiting_approval"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


AT_WORK = (RunStatus.QUEUED, RunStatus.RUNNING)
# Not ended: no other run of the session may begin.
ACTIVE = (*AT_WORK, RunStatus.AWAITING_APPROVAL)
FINAL = (RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED)


class RunQuerySet(models.QuerySet["CompactionRun"]):
    def for_team(self, team: Team) -> Self:
        return self.filter(session__team=team)

    def active(self) -> Self:
        return self.filter(status__in=ACTIVE)


class CompactionRun(models.Model):
    class Source(models.TextChoices):
        """Who asked (S18: query source)."""

        API = "api"
        ADMIN = "admin"
        COMMAND = "command"
        APPEND = "append"
        SWEEP = "sweep"

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="runs")
    trigger = models.CharField(max_length=10, choices=CompactBoundary.Trigger)
    instructions = models.TextField(blank=True)
    # Which part (S7): the scope, the message that it was asked for by, and the one that the legal cut stands at.
    scope = models.CharField(max_length=10, choices=SCOPE_CHOICES, default=Scope.WHOLE.value)
    scope_uuid = models.CharField(max_length=128, blank=True)
    cut_uuid = models.CharField(max_length=128, blank=True)
    # What the provider told of a request that it refused as too long (reactive); null where it told nothing.
    reported_tokens = models.PositiveIntegerField(null=True, blank=True)
    reported_limit = models.PositiveIntegerField(null=True, blank=True)
    reported_output = models.PositiveIntegerField(null=True, blank=True)
    status = models.CharField(max_length=20, choices=RunStatus, default=RunStatus.QUEUED)
    stage = models.CharField(max_length=40, blank=True)
    progress = models.FloatField(default=0, help_text="0 to 1")
    stages = models.JSONField(default=list, blank=True, help_text="each stage that it came to, in order, and when")
    # Who is to write; who did is on the boundary.
    summarizer = models.CharField(max_length=40, blank=True)
    names_summarizer = models.BooleanField(default=False, help_text="whether whoever asked has said who is to write")
    source = models.CharField(max_length=10, choices=Source, blank=True)
    retry_of = models.ForeignKey(
        "self",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="retries",
        help_text="the run that this one tries again",
    )
    tokens_streamed = models.PositiveIntegerField(default=0, help_text="estimate of what a model has written so far")
    model = models.CharField(max_length=200, blank=True, help_text="what wrote the summary, as the provider names it")
    prompt_version = models.CharField(max_length=20, blank=True)
    response_id = models.CharField(max_length=128, blank=True)
    shared_prefix = models.BooleanField(
        null=True, blank=True, help_text="whether the summary request shared the conversation's cached prefix"
    )
    as_of = models.PositiveIntegerField(null=True, blank=True, help_text="last position that the run has read")
    attempt = models.PositiveSmallIntegerField(default=0)
    # Who holds the run and until when; the token fences a worker that lost its lease out of committing.
    claim_token = models.UUIDField(null=True, blank=True, editable=False)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    attempts = models.JSONField(default=list, blank=True, help_text="one entry a claim: when it began and how it ended")
    failure_reason = models.CharField(max_length=40, choices=FAILURE_CHOICES, blank=True)
    failure_group = models.ForeignKey(
        "FailureGroup", on_delete=models.SET_NULL, null=True, blank=True, related_name="runs", db_index=False
    )
    detail = StorableTextField(blank=True)
    boundary = models.OneToOneField(
        CompactBoundary, on_delete=models.PROTECT, null=True, blank=True, related_name="run"
    )
    tokens_before = models.PositiveIntegerField(null=True, blank=True)
    tokens_after = models.PositiveIntegerField(null=True, blank=True)
    usage = ExactJSONField(null=True, blank=True, help_text="of all its calls together")
    # By the policy's price table; null where no call was made, or its model has no price.
    cost_usd = models.DecimalField(max_digits=14, decimal_places=6, null=True, blank=True)
    cost_uncached_usd = models.DecimalField(
        max_digits=14, decimal_places=6, null=True, blank=True, help_text="the same calls without any cache"
    )
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    queued_at = models.DateTimeField()
    handed_out_at = models.DateTimeField(null=True, blank=True, help_text="when its id was last given to the queue")
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = RunQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["session"], condition=Q(status__in=ACTIVE), name="one_active_run_per_session"
            ),
            models.CheckConstraint(
                condition=(Q(status=RunStatus.SUCCEEDED) & Q(boundary__isnull=False))
                | (~Q(status=RunStatus.SUCCEEDED) & Q(boundary__isnull=True)),
                name="run_succeeded_with_boundary",
            ),
            models.CheckConstraint(
                condition=(Q(status=RunStatus.FAILED) & ~Q(failure_reason=""))
                | (~Q(status=RunStatus.FAILED) & Q(failure_reason="")),
                name="run_failed_with_reason",
            ),
            models.CheckConstraint(
                condition=(Q(status=RunStatus.RUNNING) & Q(lease_expires_at__isnull=False, claim_token__isnull=False))
                | (~Q(status=RunStatus.RUNNING) & Q(lease_expires_at__isnull=True)),
                name="run_running_with_lease",
            ),
        ]
        indexes = [
            models.Index(fields=["session", "-id"], name="run_newest_of_session"),
            models.Index(fields=["session", "finished_at"], name="run_by_end"),  # what a time has brought
            models.Index(
                fields=["failure_group", "-id"],
                name="run_newest_of_failures",
                condition=Q(failure_group__isnull=False),
            ),
            models.Index(fields=["status", "lease_expires_at"], name="run_sweep", condition=Q(status__in=AT_WORK)),
        ]

    def __str__(self) -> str:
        return f"run {self.uuid} ({self.status})"

    @property
    def is_active(self) -> bool:
        return self.status in ACTIVE

    @property
    def is_at_work(self) -> bool:
        """Whether a worker has it, or is to have it."""
        return self.status in AT_WORK

    @property
    def duration(self) -> timedelta | None:
        """Time from the first claim to the end; None while it has no end."""
        return self.finished_at - self.started_at if self.finished_at and self.started_at else None


class RunStep(models.Model):
    """What one link of the chain did, or why it passed."""

    run = models.ForeignKey(CompactionRun, on_delete=models.CASCADE, related_name="steps")
    ordinal = models.PositiveSmallIntegerField()
    attempt = models.PositiveSmallIntegerField(default=1)
    link = models.CharField(max_length=40)
    ran = models.BooleanField()
    why = StorableTextField()
    tokens_before = models.PositiveIntegerField()
    tokens_after = models.PositiveIntegerField()

    class Meta:
        ordering = ["ordinal"]  # a handful of rows each
        constraints = [models.UniqueConstraint(fields=["run", "ordinal"], name="run_step_ordinal_once")]

    def __str__(self) -> str:
        return f"{self.link}: {self.why}"
