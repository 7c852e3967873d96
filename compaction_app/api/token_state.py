"""sessions/{id}/token-state/."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app import selectors
from compaction_app.api.base import ApiView
from sessions_app.models import Session
from sessions_app.transcript.window import Level


class TokenStateBody(serializers.Serializer[Any]):
    """How full the session is. All counts in tokens."""

    context_tokens = serializers.IntegerField(help_text="Size of the context that would be sent now.")
    source = serializers.ChoiceField(  # type: ignore[assignment]
        choices=Session.ContextSource.values, help_text="Whether that was measured by the API or estimated."
    )
    context_window = serializers.IntegerField(help_text="All that the model can take.")
    effective_window = serializers.IntegerField(help_text="The window without what a summary's own output needs.")
    warning_threshold = serializers.IntegerField(help_text="Where level `warning` begins.")
    error_threshold = serializers.IntegerField(help_text="Where level `error` begins.")
    auto_compact_threshold = serializers.IntegerField(help_text="Where compaction starts by itself.")
    percent_left = serializers.IntegerField(help_text="What is free of the automatic threshold, 0 to 100.")
    level = serializers.ChoiceField(
        choices=[level.value for level in Level],
        help_text="`unreachable`: system prompt and tools alone exceed the threshold.",
    )
    auto_compact_enabled = serializers.BooleanField(help_text="Whether compaction may start by itself.")
    origins = serializers.DictField(
        child=serializers.ChoiceField(choices=["environment", "team", "session"]),
        help_text="For each figure that is not at its default, who set it.",
    )


class TokenStateView(ApiView):
    @extend_schema(summary="How full the session is", responses=TokenStateBody)
    def get(self, request: Request, session_id: UUID) -> Response:
        state = selectors.token_state(session=self.session(session_id))
        return Response(TokenStateBody(state).data)
