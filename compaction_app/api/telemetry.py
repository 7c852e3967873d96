"""telemetry/: events as they were emitted, and what they come to."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app.api.base import ApiView
from compaction_app.api.fields import Described, JsonObject
from compaction_app.api.filters import Filters, Id, Moment, Text
from compaction_app.api.runs import COST, REASONS, UNCACHED
from compaction_app.models import TelemetryEvent
from compaction_app.selectors.telemetry import events_of, telemetry_summary
from sessions_app.models import CompactBoundary
from sessions_app.models.boundaries import KIND_CHOICES
from sessions_app.models.sessions import LEVEL_CHOICES

MOST_DAYS, DEFAULT_DAYS = 365, 30
SHARE = "How much of the prompts was read from the provider's cache, 0 to 1; null without a call."


class EventFilter(Filters):
    name = Text(field_name="name", help_text="The event's exact name.")
    session = Id(field_name="session__uuid", help_text="A session's id.")
    run = Id(field_name="run__uuid", help_text="A run's id.")
    after = Moment(field_name="at", lookup_expr="gte", help_text="At this moment or later.")
    before = Moment(field_name="at", lookup_expr="lt", help_text="Before this moment.")

    class Meta:
        model = TelemetryEvent
        fields: tuple[str, ...] = ()


class EventBody(Described, serializers.ModelSerializer[TelemetryEvent]):
    meanings = {
        "id": "The event's id.",
        "name": "Such as `tengu_compact`, `tengu_compact_failed`, `breaker_opened`.",
        "at": "When it happened.",
        "session": "The session that it is about; null once that is erased.",
        "run": "The run that it is about; null where there is none.",
        "payload": "What it tells; which fields depends on the name.",
    }

    id = serializers.UUIDField(source="uuid", read_only=True)
    session = serializers.UUIDField(source="session.uuid", default=None, read_only=True, allow_null=True)
    run = serializers.UUIDField(source="run.uuid", default=None, read_only=True, allow_null=True)
    payload = JsonObject(read_only=True)

    class Meta:
        model = TelemetryEvent
        fields = ("id", "name", "at", "session", "run", "payload")
        read_only_fields = fields


class EventsOfTelemetryView(ApiView):
    queryset: Any = TelemetryEvent.objects.none()  # tells the OpenAPI document the model
    filterset_class = EventFilter

    @extend_schema(
        summary="List telemetry events",
        description="What the service did with the team's sessions, newest first.",
        responses=EventBody(many=True),
    )
    def get(self, request: Request) -> Response:
        return self.page(events_of(team=self.team), EventBody)


class KindOfCompactionBody(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(choices=KIND_CHOICES, help_text="Of the boundaries that were written.")
    trigger = serializers.ChoiceField(choices=CompactBoundary.Trigger.choices, help_text="What started them.")
    count = serializers.IntegerField(help_text="How many there were.")
    tokens_before = serializers.IntegerField(help_text="Their contexts before, added up.")
    tokens_after = serializers.IntegerField(help_text="Their contexts after, added up.")
    tokens_freed = serializers.IntegerField(help_text="The difference.")


class ReasonOfFailureBody(serializers.Serializer[Any]):
    reason = serializers.ChoiceField(choices=REASONS, help_text="Why they failed.")
    count = serializers.IntegerField(help_text="How many there were.")


def _usd(source: str, text: str) -> serializers.DecimalField:
    return serializers.DecimalField(source=source, max_digits=20, decimal_places=6, allow_null=True, help_text=text)


class SumsBody(serializers.Serializer[Any]):
    """What was done in the time."""

    compactions = KindOfCompactionBody(many=True, help_text="Those that summarise, by kind and trigger.")
    compaction_count = serializers.IntegerField(help_text="All of them.")
    tokens_before = serializers.IntegerField(help_text="Their contexts before, added up.")
    tokens_after = serializers.IntegerField(help_text="Their contexts after, added up.")
    tokens_freed = serializers.IntegerField(help_text="The difference.")
    failures = ReasonOfFailureBody(many=True, help_text="Runs that failed, by reason, the most frequent first.")
    failure_count = serializers.IntegerField(help_text="All of them.")
    clearings = serializers.IntegerField(help_text="How often tool results were cleared.")
    tokens_cleared = serializers.IntegerField(help_text="What that freed.")
    cost_usd = _usd("spent.cost_usd", COST)
    cost_uncached_usd = _usd("spent.cost_uncached_usd", UNCACHED)
    cache_share = serializers.FloatField(source="spent.cache_share", allow_null=True, help_text=SHARE)
    breaker_openings = serializers.IntegerField(help_text="How often automatic compaction stopped by itself.")
    memory_extractions = serializers.IntegerField(help_text="Session memories that were written.")
    reverts = serializers.IntegerField(help_text="Compactions that were taken back.")


class DayBody(SumsBody):
    """The same of one day."""

    day = serializers.DateField(help_text="In UTC.")


class ModelBody(serializers.Serializer[Any]):
    model = serializers.CharField(help_text="As the provider names it.")
    runs = serializers.IntegerField(help_text="Runs that it wrote for, or that asked it last.")
    cost_usd = _usd("spent.cost_usd", COST)
    cost_uncached_usd = _usd("spent.cost_uncached_usd", UNCACHED)
    cache_share = serializers.FloatField(source="spent.cache_share", allow_null=True, help_text=SHARE)


class TopSessionBody(serializers.Serializer[Any]):
    session = serializers.UUIDField(source="uuid", help_text="The session.")
    title = serializers.CharField(help_text="Its title.")
    boundaries = serializers.IntegerField(help_text="How often its context was made smaller in the time.")
    tokens_freed = serializers.IntegerField(help_text="What that freed.")


class LevelBody(serializers.Serializer[Any]):
    level = serializers.ChoiceField(choices=LEVEL_CHOICES, help_text="How full.")
    sessions = serializers.IntegerField(help_text="How many there are now.")


class SummaryBody(serializers.Serializer[Any]):
    since = serializers.DateField(help_text="The first day, in UTC.")
    until = serializers.DateField(help_text="The last day: today.")
    totals = SumsBody(help_text="Of all days together.")
    days = DayBody(many=True, help_text="Each day, oldest first, those without anything included.")
    models = ModelBody(many=True, help_text="The models that were called, the most used first.")
    median_seconds = serializers.FloatField(
        allow_null=True, help_text="How long half of the runs that succeeded took at most; null without one."
    )
    p90_seconds = serializers.FloatField(allow_null=True, help_text="The same of nine in ten.")
    sessions = serializers.IntegerField(help_text="All sessions that the team has now.")
    active_sessions = serializers.IntegerField(help_text="Those whose last message came in the time.")
    levels = LevelBody(many=True, help_text="The sessions by how full they are now.")
    top_sessions = TopSessionBody(many=True, help_text="Those that most was freed in.")


class Days(serializers.Serializer[Any]):
    days = serializers.IntegerField(min_value=1, max_value=MOST_DAYS, default=DEFAULT_DAYS)


class SummaryView(ApiView):
    @extend_schema(
        summary="Telemetry, summed up",
        description="What the service did for the team in the last days, in all and for each day. Counted is its own "
        "work: compactions that an imported transcript brought along are not.",
        parameters=[
            OpenApiParameter(
                "days",
                type={"type": "integer", "minimum": 1, "maximum": MOST_DAYS, "default": DEFAULT_DAYS},
                description=f"How many days, today included: 1 to {MOST_DAYS}.",
            )
        ],
        responses=SummaryBody,
    )
    def get(self, request: Request) -> Response:
        asked = Days(data=request.query_params.dict())  # of a form, "" would mean nothing given
        asked.is_valid(raise_exception=True)
        found = telemetry_summary(team=self.team, days=asked.validated_data["days"], now=timezone.now())
        return Response(SummaryBody(found).data)
