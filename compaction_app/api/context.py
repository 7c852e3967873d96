"""sessions/{id}/context/: what to send to the model."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app import selectors
from compaction_app.api.base import ApiView
from compaction_app.api.fields import Blocks, Json
from sessions_app.models.messages import ROLE_CHOICES
from sessions_app.selectors import UnknownBoundary


class ContextMessage(serializers.Serializer[Any]):
    role = serializers.ChoiceField(
        choices=ROLE_CHOICES,
        help_text="The first is the user's, or the assistant's with a `compaction` block. `system` stands for a text "
        "that its client had sent so in mid-conversation.",
    )
    content = Blocks(help_text="Content blocks.")


class ContextBody(serializers.Serializer[Any]):
    """Valid for the Messages API: pass `system`, `tools`, `messages` and `betas` on as they are."""

    system = Json(allow_null=True, help_text="The session's system prompt.")
    tools = Json(allow_null=True, help_text="The session's tool definitions.")
    messages = ContextMessage(many=True, help_text="What the model is to see, oldest first.")
    tokens = serializers.IntegerField(help_text="Size of this context in tokens, system prompt and tools included.")
    boundary = serializers.UUIDField(allow_null=True, help_text="The boundary that the context starts from.")
    cleared_tool_results = serializers.IntegerField(help_text="Tool results that are shown as a placeholder.")
    betas = serializers.ListField(
        child=serializers.CharField(),
        help_text="Beta names that the request must carry (`anthropic-beta`), for a `compaction` block.",
    )


def boundary_id(text: str | None) -> str | None:
    """The uuid as the database writes it; one that is none can not be there, which is a 404 like any other."""
    if text is None:
        return None
    try:
        return str(UUID(text))
    except ValueError:
        raise _unknown(text) from None


def _unknown(text: str) -> NotFound:
    return NotFound(f"This session has no boundary {text[:100]}.")


class ContextView(ApiView):
    @extend_schema(
        summary="The context to send now",
        description="Changes nothing.",
        parameters=[
            OpenApiParameter(
                "at", type=UUID, description="A boundary of this session: the context as it stood right after it."
            )
        ],
        responses=ContextBody,
    )
    def get(self, request: Request, session_id: UUID) -> Response:
        session = self.session(session_id)
        at = boundary_id(request.query_params.get("at"))
        try:
            context = selectors.context(session=session, at=at)
        except UnknownBoundary as unknown:
            raise _unknown(str(unknown)) from None
        return Response(ContextBody(context).data)
