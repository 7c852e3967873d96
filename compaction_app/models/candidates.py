"""A summary that waits for somebody who accepts it (approve mode)."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from compaction_app.models.runs import CompactionRun
from sessions_app.models.fields import ExactJSONField, StorableTextField


class CompactionCandidate(models.Model):
    """All that a run would have stored, and what it was made from: to be stored later, or refused as stale."""

    class Decision(models.TextChoices):
        ACCEPTED = "accepted"
        REJECTED = "rejected"

    run = models.OneToOneField(CompactionRun, on_delete=models.CASCADE, related_name="candidate")
    # The boundary as a draft (transcript/boundary.py), and its summary as it was written and as it stands now.
    draft = ExactJSONField()
    summary = StorableTextField()
    original_summary = StorableTextField()
    trail = ExactJSONField(default=list, help_text="the steps of the chain that led to it")
    audit = ExactJSONField(default=dict)
    head_id = models.BigIntegerField(null=True, blank=True, help_text="boundary that the context began with")
    newest_id = models.BigIntegerField(null=True, blank=True)
    as_of = models.PositiveIntegerField()
    tokens_before = models.PositiveIntegerField()
    tokens_after = models.PositiveIntegerField()
    created_at = models.DateTimeField()
    edited_at = models.DateTimeField(null=True, blank=True)
    # Who did it, in words: a user's name, or an API key as its team knows it. It outlives both.
    edited_by = models.CharField(max_length=200, blank=True)
    decision = models.CharField(max_length=10, choices=Decision, blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    decided_as = models.CharField(max_length=200, blank=True)
    reason = StorableTextField(blank=True, help_text="why it was rejected")

    def __str__(self) -> str:
        return f"candidate of {self.run}"
