"""sessions/{id}/decisions/: why it compacted, and why it did not."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app import selectors
from compaction_app.api.base import ApiView
from compaction_app.api.fields import Described
from compaction_app.api.filters import DecisionFilter
from compaction_app.api.prepare import AppliedBody
from compaction_app.models import Decision
from compaction_app.models.decisions import OUTCOME_CHOICES
from sessions_app.models import Session
from sessions_app.models.sessions import LEVEL_CHOICES


class DecisionBody(Described, serializers.ModelSerializer[Decision]):
    """One decision, with the figures that it saw."""

    meanings = {
        "moment": "`append`, `prepare`, or `sweep`: the look for sessions that were left without a run.",
        "at": "When it was made.",
        "position": "The last message then.",
        "context_tokens": "Size of the context then.",
        "source": "Whether that was measured by the API or estimated.",
        "level": "How full it was.",
        "warning_threshold": "Where level `warning` began.",
        "error_threshold": "Where level `error` began.",
        "auto_compact_threshold": "Where compaction would start by itself.",
        "outcome": "`requested`: a run was queued; `applied`: results were cleared; others say why nothing was.",
        "why": "The same in words, with figures.",
        "applied": "What each light link did, where they were tried.",
        "run": "The run that was queued; null where there was none.",
    }

    source = serializers.ChoiceField(choices=Session.ContextSource.values, read_only=True)  # type: ignore[assignment]
    level = serializers.ChoiceField(choices=LEVEL_CHOICES, read_only=True)
    moment = serializers.ChoiceField(choices=Decision.Moment.values, read_only=True)
    outcome = serializers.ChoiceField(choices=OUTCOME_CHOICES, read_only=True)
    applied = AppliedBody(many=True, read_only=True)
    run = serializers.UUIDField(source="run.uuid", default=None, read_only=True, allow_null=True)

    class Meta:
        model = Decision
        fields = (
            "moment",
            "at",
            "position",
            "context_tokens",
            "source",
            "level",
            "warning_threshold",
            "error_threshold",
            "auto_compact_threshold",
            "outcome",
            "why",
            "applied",
            "run",
        )
        read_only_fields = fields


class DecisionsView(ApiView):
    queryset: Any = Decision.objects.none()  # tells the OpenAPI document the model
    filterset_class = DecisionFilter

    @extend_schema(
        summary="List a session's decisions",
        description="Near a threshold each append leaves one, and each `prepare/`: what was done, or why nothing was. "
        "Newest first.",
        responses=DecisionBody(many=True),
    )
    def get(self, request: Request, session_id: UUID) -> Response:
        session = self.session(session_id)
        return self.page(selectors.decisions_of(team=self.team).filter(session=session), DecisionBody)
