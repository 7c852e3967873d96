"""sessions/{id}/prepare/: the light links, and then what to send."""

from __future__ import annotations

from dataclasses import fields
from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app import actions, selectors
from compaction_app.api.base import ApiView
from compaction_app.api.context import ContextBody
from compaction_app.api.fields import NO_FIELDS, JsonObject, NoFields
from compaction_app.engine.plan import PLANS
from compaction_app.engine.values import Trigger

LINKS = [link.name for link in PLANS[Trigger.PREPARE].links]


class AppliedBody(serializers.Serializer[Any]):
    """What one light link did, why it passed, or why it was not tried."""

    link = serializers.ChoiceField(choices=LINKS, help_text="The link's name.")
    ran = serializers.BooleanField(help_text="Whether it cleared anything.")
    why = serializers.CharField(help_text="What it did, or why it did nothing, in words with figures.")
    cleared = serializers.IntegerField(help_text="Tool results that it cleared.")
    tokens_freed = serializers.IntegerField(help_text="What that frees, estimated.")
    boundary = serializers.UUIDField(allow_null=True, help_text="The `microcompact` boundary that it wrote.")


class PreparedBody(ContextBody):
    """A context, and the edits to send with it. Pass on whichever of the two dialects is not null."""

    context_management = JsonObject(
        allow_null=True, help_text="For the request's `context_management`: results that the API is to clear."
    )
    cache_edits = JsonObject(
        allow_null=True,
        help_text="The block for endpoints that take `cache_edits`; null unless that dialect is switched on.",
    )
    betas = serializers.ListField(
        child=serializers.CharField(),
        help_text="Beta names that the request must carry: for a `compaction` block of the provider, or for edits.",
    )
    applied = AppliedBody(many=True, help_text="Every light link, in their order, and what each did.")


class PrepareView(ApiView):
    @extend_schema(
        summary="Prepare the next model call",
        description="Runs the light links as of now (old tool results are cleared where that pays) and answers what to "
        "send. No model is called. Calling it again changes nothing more.",
        request=NO_FIELDS,
        responses=PreparedBody,
        examples=[OpenApiExample("nothing to say", value={}, request_only=True)],
    )
    def post(self, request: Request, session_id: UUID) -> Response:
        session = self.session(session_id)
        self.body(NoFields)
        prepared = actions.prepare(session=session, now=timezone.now())
        answer = {
            **_fields(prepared.context.context),
            "context_management": prepared.context.context_management or None,
            "cache_edits": prepared.context.cache_edits or None,
            "betas": prepared.context.betas,
            "applied": prepared.applied,
        }
        return Response(PreparedBody(answer).data)


def _fields(context: selectors.Context) -> dict[str, Any]:
    return {field.name: getattr(context, field.name) for field in fields(context)}
