"""Imports of transcript files: small ones are done within the call, large ones by the worker. The row is the truth."""

from __future__ import annotations

import uuid
from typing import Self

from django.db import models
from django.db.models import Q

from sessions_app.models import Team
from sessions_app.models.fields import ExactJSONField, StorableTextField


class ImportStatus(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


IMPORT_AT_WORK = (ImportStatus.QUEUED, ImportStatus.RUNNING)


class ImportQuerySet(models.QuerySet["TranscriptImport"]):
    def for_team(self, team: Team) -> Self:
        return self.filter(team=team)


class TranscriptImport(models.Model):
    """One file that was given to `imports/`, and what became of it. Its bytes are kept until it is done."""

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="imports")
    name = StorableTextField(help_text="the file's name, as its client gave it")
    format = models.CharField(max_length=30, help_text="as asked for; auto: found out")
    status = models.CharField(max_length=10, choices=ImportStatus, default=ImportStatus.QUEUED)
    # Where its bytes wait, by name in the storage of uploads; empty where nothing is kept.
    upload = models.CharField(max_length=200, blank=True)
    size_bytes = models.PositiveBigIntegerField(help_text="as it was sent")
    read_bytes = models.PositiveBigIntegerField(default=0, help_text="of it, read so far")
    # The report. `sessions`: one entry for each conversation of the file.
    sessions = ExactJSONField(default=list)
    messages = models.PositiveIntegerField(default=0)
    duplicates = models.PositiveIntegerField(default=0)
    entries = models.PositiveIntegerField(default=0)
    boundaries = models.PositiveIntegerField(default=0)
    problems = ExactJSONField(default=list, help_text="lines that were not understood, the first ones of very many")
    problem_count = models.PositiveIntegerField(default=0)
    detail = StorableTextField(blank=True, help_text="why it failed")
    attempt = models.PositiveSmallIntegerField(default=0)
    claim_token = models.UUIDField(null=True, blank=True, editable=False)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    queued_at = models.DateTimeField()
    handed_out_at = models.DateTimeField(null=True, blank=True, help_text="when its id was last given to the queue")
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = ImportQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=(
                    Q(status=ImportStatus.RUNNING) & Q(lease_expires_at__isnull=False, claim_token__isnull=False)
                )
                | (~Q(status=ImportStatus.RUNNING) & Q(lease_expires_at__isnull=True)),
                name="import_running_with_lease",
            )
        ]
        indexes = [
            models.Index(fields=["team", "-id"], name="import_newest_first"),
            models.Index(
                fields=["status", "lease_expires_at"], name="import_sweep", condition=Q(status__in=IMPORT_AT_WORK)
            ),
        ]

    def __str__(self) -> str:
        return f"import {self.uuid} ({self.status})"
