"""Calls of a model: what was asked, what came, what it cost; kept for review when a summary was refused."""

from __future__ import annotations

from django.db import models

from compaction_app.engine.model_summary.calls import Way
from compaction_app.models.runs import CompactionRun
from sessions_app.models.fields import ExactJSONField, StorableTextField

WAY_CHOICES = [(way.value, way.value.replace("_", " ")) for way in Way]


class ModelCall(models.Model):
    """One request of a run. Written when it has ended, whatever becomes of the run."""

    run = models.ForeignKey(CompactionRun, on_delete=models.CASCADE, related_name="calls")
    ordinal = models.PositiveSmallIntegerField()
    attempt = models.PositiveSmallIntegerField(default=1, help_text="the run's attempt that made it")
    way = models.CharField(max_length=20, choices=WAY_CHOICES)
    model = models.CharField(max_length=200)
    prompt_version = models.CharField(max_length=20)
    started_at = models.DateTimeField()
    seconds = models.FloatField()
    request_tokens = models.PositiveIntegerField(help_text="estimate of the whole request")
    request_bytes = models.PositiveIntegerField()
    # What had to go so that the request fits (S16); 0 where it was whole.
    retry = models.PositiveSmallIntegerField(default=0, help_text="which retry for a prompt that was too long")
    preflight = models.BooleanField(default=False, help_text="rounds were dropped before the first call")
    dropped_groups = models.PositiveIntegerField(default=0)
    remaining_groups = models.PositiveIntegerField(default=0)
    dropped_tokens = models.PositiveIntegerField(default=0)
    outcome = models.CharField(max_length=40, help_text="ok, a failure reason, or what went wrong at the provider")
    detail = StorableTextField(blank=True)
    status = models.PositiveSmallIntegerField(null=True, blank=True, help_text="of HTTP")
    request_id = models.CharField(max_length=128, blank=True)
    response_id = models.CharField(max_length=128, blank=True)
    stop_reason = models.CharField(max_length=60, blank=True)
    usage = ExactJSONField(null=True, blank=True)
    cost_usd = models.DecimalField(max_digits=14, decimal_places=6, null=True, blank=True)
    cost_uncached_usd = models.DecimalField(max_digits=14, decimal_places=6, null=True, blank=True)
    said = StorableTextField(blank=True, help_text="what the model said, where it was not taken as a summary")

    class Meta:
        ordering = ["ordinal"]  # a handful of rows each
        constraints = [models.UniqueConstraint(fields=["run", "ordinal"], name="model_call_ordinal_once")]

    def __str__(self) -> str:
        return f"call {self.ordinal}: {self.outcome}"
