"""sessions/{id}/policy/: every figure that holds for a session, and who set it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app import selectors
from compaction_app.api.base import ApiView
from compaction_app.api.fields import Json


class FigureBody(serializers.Serializer[Any]):
    """One figure of the policy table, as it holds for the session."""

    name = serializers.CharField(help_text="Its name, as `policy_overrides` takes it.")
    value = Json(allow_null=True, help_text="What holds; null: not set.")
    default = Json(allow_null=True, help_text="What holds where nobody sets it.")
    origin = serializers.ChoiceField(
        choices=["default", "environment", "team", "session"], help_text="Who set what holds."
    )
    unit = serializers.CharField(help_text="What it is counted in.")
    allowed = serializers.CharField(help_text="What it takes, in words.")
    variable = serializers.CharField(allow_null=True, help_text="The environment variable for it, if there is one.")
    overridable = serializers.BooleanField(help_text="Whether a team or a session may set it.")
    meaning = serializers.CharField(help_text="What it does.")


class PolicyBody(serializers.Serializer[Any]):
    figures = FigureBody(many=True, help_text="Every figure, in the table's order.")
    ignored = serializers.ListField(
        child=serializers.CharField(), help_text="Stored overrides that are not allowed and therefore left out."
    )


class PolicyView(ApiView):
    @extend_schema(
        summary="The figures that hold for a session",
        description="Default, environment, team and session in this order, later ones winning. Change them with PATCH "
        "`sessions/{id}/` (`policy_overrides`), for a team in the admin.",
        responses=PolicyBody,
    )
    def get(self, request: Request, session_id: UUID) -> Response:
        return Response(PolicyBody(selectors.policy_table(session=self.session(session_id))).data)
