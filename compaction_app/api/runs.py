"""runs/ and runs/{id}/."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app import selectors
from compaction_app.api.base import ApiView
from compaction_app.api.fields import Described, JsonObject
from compaction_app.api.filters import RunFilter
from compaction_app.engine.outcome import FailureReason
from compaction_app.models import CompactionRun, RunStatus, RunStep
from sessions_app.models import CompactBoundary

REASONS = [reason.value for reason in FailureReason]


class StepBody(Described, serializers.ModelSerializer[RunStep]):
    """What one link of the chain did, or why it passed."""

    meanings = {
        "link": "The link's name.",
        "ran": "Whether it changed anything.",
        "why": "What it did or why it passed, in words.",
        "tokens_before": "The context before it.",
        "tokens_after": "The context after it.",
    }

    class Meta:
        model = RunStep
        fields = ("link", "ran", "why", "tokens_before", "tokens_after")
        read_only_fields = fields


class AttemptBody(serializers.Serializer[Any]):
    attempt = serializers.IntegerField(help_text="From 1.")
    started_at = serializers.CharField(help_text="ISO 8601.")
    ended_at = serializers.CharField(required=False, help_text="ISO 8601; not there while the attempt goes on.")
    outcome = serializers.CharField(required=False, help_text="`succeeded`, a failure reason, or how it was lost.")


class RunBody(Described, serializers.ModelSerializer[CompactionRun]):
    meanings = {
        "id": "The run's id.",
        "session": "The session that it compacts.",
        "boundary": "What a success has written.",
        "trigger": "What started it.",
        "status": "`succeeded`, `failed` and `cancelled` are final.",
        "stage": "What it is doing, in a word.",
        "progress": "0 to 1.",
        "summarizer": "What writes the summary.",
        "instructions": "What the summary is to mind.",
        "failure_reason": "Why it failed; null otherwise.",
        "detail": "The same in words.",
        "attempts": "One entry each time that a worker took the run.",
        "steps": "The links of the chain, in order.",
        "tokens_before": "The context before; null until it succeeds.",
        "tokens_after": "The context after; null until it succeeds.",
        "usage": "Tokens that the summary's own call has used.",
        "queued_at": "When it was asked for.",
        "started_at": "When a worker first took it.",
        "finished_at": "When it ended.",
        "duration_seconds": "From started_at to finished_at.",
    }

    id = serializers.UUIDField(source="uuid", read_only=True)
    session = serializers.UUIDField(source="session.uuid", read_only=True)
    boundary = serializers.UUIDField(source="boundary.uuid", default=None, read_only=True, allow_null=True)
    trigger = serializers.ChoiceField(choices=CompactBoundary.Trigger.choices, read_only=True)
    status = serializers.ChoiceField(choices=RunStatus.choices, read_only=True)
    progress = serializers.FloatField(read_only=True)
    failure_reason = serializers.SerializerMethodField()
    attempts = AttemptBody(many=True, read_only=True)
    steps = StepBody(many=True, read_only=True)
    usage = JsonObject(read_only=True, allow_null=True)
    duration_seconds = serializers.SerializerMethodField()

    class Meta:
        model = CompactionRun
        fields = (
            "id",
            "session",
            "boundary",
            "trigger",
            "status",
            "stage",
            "progress",
            "summarizer",
            "instructions",
            "failure_reason",
            "detail",
            "attempts",
            "steps",
            "tokens_before",
            "tokens_after",
            "usage",
            "queued_at",
            "started_at",
            "finished_at",
            "duration_seconds",
        )
        read_only_fields = fields

    @extend_schema_field(serializers.ChoiceField(choices=REASONS, allow_null=True))
    def get_failure_reason(self, run: CompactionRun) -> str | None:
        return run.failure_reason or None

    def get_duration_seconds(self, run: CompactionRun) -> float | None:
        return None if run.duration is None else run.duration.total_seconds()


class RunsView(ApiView):
    queryset = CompactionRun.objects.none()  # tells the OpenAPI document the model
    filterset_class = RunFilter

    @extend_schema(
        summary="List runs", description="The team's compaction runs, newest first.", responses=RunBody(many=True)
    )
    def get(self, request: Request) -> Response:
        return self.page(selectors.runs_of(team=self.team), RunBody)


class RunView(ApiView):
    @extend_schema(summary="Show a run", responses=RunBody)
    def get(self, request: Request, run_id: UUID) -> Response:
        return Response(RunBody(self.one(selectors.runs_of(team=self.team), run_id, name="run")).data)
