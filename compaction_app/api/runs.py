"""runs/ and runs/{id}/."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app import selectors
from compaction_app.api.base import ApiView
from compaction_app.api.fields import Described, JsonObject
from compaction_app.api.filters import RunFilter
from compaction_app.engine.command import Scope
from compaction_app.engine.outcome import FailureReason
from compaction_app.models import CompactionRun, ModelCall, RunStatus, RunStep
from compaction_app.models.calls import WAY_CHOICES
from sessions_app.models import CompactBoundary

REASONS = [reason.value for reason in FailureReason]
COST = "USD by the policy's price table, as a decimal string; null where nothing was billed or a model has no price."
UNCACHED = "The same as `cost_usd`, had there been no cache."


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


class StageBody(serializers.Serializer[Any]):
    stage = serializers.CharField(help_text="`queued`, `starting`, …; at the end `done`, `failed` or `cancelled`.")
    at = serializers.CharField(help_text="ISO 8601.")
    attempt = serializers.IntegerField(help_text="0 before the first.")
    progress = serializers.FloatField(help_text="Of the run, as it came to the stage: 0 to 1.")


class CallBody(Described, serializers.ModelSerializer[ModelCall]):
    """One request that was made of a model, and its end."""

    meanings = {
        "ordinal": "From 1, over all attempts.",
        "attempt": "The run's attempt that made it.",
        "way": "`cached_prefix`: the conversation as its client sends it, with one message behind it; `standalone`: a "
        "small request of its own.",
        "model": "What was asked, or what answered, as the provider names it.",
        "prompt_version": "Version of the prompt that asked.",
        "started_at": "When it was sent.",
        "seconds": "Until it ended.",
        "request_tokens": "Size of the whole request, estimated.",
        "request_bytes": "Size of its body.",
        "retry": "Which retry it was for a prompt that was too long; 0 else.",
        "preflight": "Whether rounds were dropped before the first call, because the estimate was over the window.",
        "dropped_groups": "API rounds that had to go so that it fits; 0 where it was whole.",
        "remaining_groups": "API rounds that were left; 0 where it was whole.",
        "dropped_tokens": "What the dropped rounds had taken, estimated.",
        "outcome": "`ok`; a failure reason where the answer was no summary; else what went wrong at the provider, such "
        "as `overloaded`; `stopped` where the run was.",
        "detail": "The same in words; empty for `ok`.",
        "status": "The provider's HTTP status; null where it gave no error.",
        "request_id": "As the provider names it; empty where it did not.",
        "response_id": "As the provider names it; empty where there was none.",
        "stop_reason": "As the provider tells it; empty where there was none.",
        "usage": "As the provider tells it; null where nothing was billed.",
        "cost_usd": COST,
        "cost_uncached_usd": UNCACHED,
    }

    way = serializers.ChoiceField(choices=WAY_CHOICES, read_only=True)
    usage = JsonObject(read_only=True, allow_null=True)

    class Meta:
        model = ModelCall
        fields: tuple[str, ...] = (
            "ordinal",
            "attempt",
            "way",
            "model",
            "prompt_version",
            "started_at",
            "seconds",
            "request_tokens",
            "request_bytes",
            "retry",
            "preflight",
            "dropped_groups",
            "remaining_groups",
            "dropped_tokens",
            "outcome",
            "detail",
            "status",
            "request_id",
            "response_id",
            "stop_reason",
            "usage",
            "cost_usd",
            "cost_uncached_usd",
        )
        read_only_fields: tuple[str, ...] = fields


class WholeCallBody(CallBody):
    """The same with what the model said."""

    meanings = {
        **CallBody.meanings,
        "said": "What the model said where it was not taken as a summary, to a bound; empty else.",
    }

    class Meta(CallBody.Meta):
        fields = (*CallBody.Meta.fields, "said")
        read_only_fields = fields


class CutBody(serializers.Serializer[Any]):
    """Where a part of the session was cut (S7)."""

    scope = serializers.ChoiceField(
        choices=[Scope.UP_TO.value, Scope.FROM.value],
        help_text="`up_to`: what is before the message is compacted; `from`: it and what follows.",
    )
    asked = serializers.CharField(help_text="uuid of the message that was asked for.")
    uuid = serializers.CharField(help_text="uuid of the message at the nearest place where one may cut.")
    moved = serializers.BooleanField(help_text="Whether that is another message than was asked for.")


class RunBody(Described, serializers.ModelSerializer[CompactionRun]):
    meanings: ClassVar[Mapping[str, str]] = {
        "id": "The run's id.",
        "session": "The session that it compacts.",
        "boundary": "What a success has written.",
        "trigger": "What started it.",
        "source": "Who asked: `append` and `sweep` for runs that start by themselves; empty where nobody told.",
        "cut": "Which part is compacted, where somebody asked for a part; null for the whole.",
        "status": "`succeeded`, `failed` and `cancelled` are final.",
        "retry_of": "The run that this one tries again; null where it tries none.",
        "stage": "What it is doing, in a word; at the end what became of it.",
        "stages": "Each stage that it came to, in order.",
        "progress": "0 to 1.",
        "tokens_streamed": "What a model has written so far, estimated; it grows while the run works.",
        "summarizer": "Who is asked to write the summary.",
        "written_by": "Who did: another one stands in where that one could not, and a session's memory "
        "(`session_memory`) needs nobody; null where nothing was written.",
        "model": "The model that wrote it, or was asked last, as the provider names it; empty without a call.",
        "prompt_version": "Version of the prompt that asked; empty without a call.",
        "response_id": "The provider's id of the response that the summary is from; empty where a model wrote none.",
        "shared_prefix": "Whether the summary's request shared the conversation's cached prefix; null where a model "
        "wrote none.",
        "instructions": "What the summary is to mind.",
        "failure_reason": "Why it failed; null otherwise.",
        "detail": "The same in words.",
        "attempts": "One entry each time that a worker took the run.",
        "steps": "The links of the chain, in order.",
        "tokens_before": "The context before; null until it succeeds.",
        "tokens_after": "The context after; null until it succeeds.",
        "usage": "Of all its calls of a model together; null without a call.",
        "cost_usd": COST,
        "cost_uncached_usd": UNCACHED,
        "calls": "Its calls of a model, in order. What a model said (`said`) is told by `runs/{id}/` alone.",
        "queued_at": "When it was asked for.",
        "started_at": "When a worker first took it.",
        "finished_at": "When it ended.",
        "duration_seconds": "From started_at to finished_at.",
    }

    id = serializers.UUIDField(source="uuid", read_only=True)
    session = serializers.UUIDField(source="session.uuid", read_only=True)
    boundary = serializers.UUIDField(source="boundary.uuid", default=None, read_only=True, allow_null=True)
    cut = serializers.SerializerMethodField()
    written_by = serializers.SerializerMethodField()
    trigger = serializers.ChoiceField(choices=CompactBoundary.Trigger.choices, read_only=True)
    source = serializers.ChoiceField(  # type: ignore[assignment]
        choices=CompactionRun.Source.choices, allow_blank=True, read_only=True
    )
    status = serializers.ChoiceField(choices=RunStatus.choices, read_only=True)
    progress = serializers.FloatField(read_only=True)
    failure_reason = serializers.SerializerMethodField()
    retry_of = serializers.UUIDField(source="retry_of.uuid", default=None, read_only=True, allow_null=True)
    stages = StageBody(many=True, read_only=True)
    attempts = AttemptBody(many=True, read_only=True)
    steps = StepBody(many=True, read_only=True)
    calls = CallBody(many=True, read_only=True)
    usage = JsonObject(read_only=True, allow_null=True)
    duration_seconds = serializers.SerializerMethodField()

    class Meta:
        model = CompactionRun
        fields: tuple[str, ...] = (
            "id",
            "session",
            "boundary",
            "trigger",
            "source",
            "retry_of",
            "cut",
            "status",
            "stage",
            "stages",
            "progress",
            "tokens_streamed",
            "summarizer",
            "written_by",
            "model",
            "prompt_version",
            "response_id",
            "shared_prefix",
            "instructions",
            "failure_reason",
            "detail",
            "attempts",
            "steps",
            "tokens_before",
            "tokens_after",
            "usage",
            "cost_usd",
            "cost_uncached_usd",
            "calls",
            "queued_at",
            "started_at",
            "finished_at",
            "duration_seconds",
        )
        read_only_fields: tuple[str, ...] = fields

    @extend_schema_field(CutBody(allow_null=True))
    def get_cut(self, run: CompactionRun) -> dict[str, Any] | None:
        if run.scope == Scope.WHOLE:
            return None
        moved = run.cut_uuid != run.scope_uuid
        return {"scope": run.scope, "asked": run.scope_uuid, "uuid": run.cut_uuid, "moved": moved}

    def get_written_by(self, run: CompactionRun) -> str | None:
        return (run.boundary.summarizer or None) if run.boundary else None

    @extend_schema_field(serializers.ChoiceField(choices=REASONS, allow_null=True))
    def get_failure_reason(self, run: CompactionRun) -> str | None:
        return run.failure_reason or None

    def get_duration_seconds(self, run: CompactionRun) -> float | None:
        return None if run.duration is None else run.duration.total_seconds()


class WholeRunBody(RunBody):
    """The same, with what the model said in each call."""

    meanings = {**RunBody.meanings, "calls": "Its calls of a model, in order."}
    calls = WholeCallBody(many=True, read_only=True)


class RunsView(ApiView):
    queryset = CompactionRun.objects.none()  # tells the OpenAPI document the model
    filterset_class = RunFilter

    @extend_schema(
        summary="List runs", description="The team's compaction runs, newest first.", responses=RunBody(many=True)
    )
    def get(self, request: Request) -> Response:
        return self.page(selectors.runs_of(team=self.team), RunBody)


class RunView(ApiView):
    @extend_schema(summary="Show a run", responses=WholeRunBody)
    def get(self, request: Request, run_id: UUID) -> Response:
        run = self.one(selectors.runs_of(team=self.team, with_said=True), run_id, name="run")
        return Response(WholeRunBody(run).data)
