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
from compaction_app.engine.breaker import OpenedBy
from sessions_app.catalog import WindowSource
from sessions_app.models import Session
from sessions_app.models.sessions import LEVEL_CHOICES


class TokenStateBody(serializers.Serializer[Any]):
    """How full the session is. All counts in tokens."""

    context_tokens = serializers.IntegerField(help_text="Size of the context that would be sent now.")
    source = serializers.ChoiceField(  # type: ignore[assignment]
        choices=Session.ContextSource.values, help_text="Whether that was measured by the API or estimated."
    )
    context_window = serializers.IntegerField(help_text="All that the model can take.")
    window_source = serializers.ChoiceField(
        choices=[source.value for source in WindowSource],
        help_text="Who says so: a figure of the policy (`override`), the provider's Models API, the local `table`; "
        "`assumed`: nobody knows the model.",
    )
    model_assumed = serializers.BooleanField(
        help_text="Whether neither the provider nor the local table knows the model, so that its window is assumed."
    )
    effective_window = serializers.IntegerField(help_text="The window without what a summary's own output needs.")
    warning_threshold = serializers.IntegerField(help_text="Where level `warning` begins.")
    error_threshold = serializers.IntegerField(help_text="Where level `error` begins.")
    auto_compact_threshold = serializers.IntegerField(help_text="Where compaction starts by itself.")
    percent_left = serializers.IntegerField(help_text="What is free of the automatic threshold, 0 to 100.")
    level = serializers.ChoiceField(
        choices=LEVEL_CHOICES,
        help_text="`unreachable`: system prompt and tools alone exceed the threshold.",
    )
    above_warning = serializers.BooleanField(help_text="Whether the context has reached `warning_threshold`.")
    above_error = serializers.BooleanField(help_text="Whether the context has reached `error_threshold`.")
    above_auto_compact = serializers.BooleanField(help_text="Whether the context has reached `auto_compact_threshold`.")
    overhead_tokens = serializers.IntegerField(help_text="System prompt and tools, which no compaction makes smaller.")
    context_bytes = serializers.IntegerField(help_text="Size of what a request's messages would hold, in bytes.")
    auto_compact_bytes = serializers.IntegerField(
        help_text="Compaction also starts by itself at this size in bytes: the API takes no body above 32 MB."
    )
    auto_compact_enabled = serializers.BooleanField(help_text="Whether compaction may start by itself.")
    consecutive_failures = serializers.IntegerField(help_text="Compactions that failed in a row.")
    consecutive_ineffective = serializers.IntegerField(help_text="Compactions in a row that did not help.")
    breaker_open = serializers.BooleanField(
        help_text="Whether compaction has stopped starting by itself; by hand it always works."
    )
    breaker_opened_at = serializers.DateTimeField(
        allow_null=True,
        help_text="Since when; null while it is closed, and before the first decision on a threshold out of reach.",
    )
    breaker_opened_by = serializers.ChoiceField(
        choices=[cause.value for cause in OpenedBy],
        allow_null=True,
        help_text="Why; `unreachable` exactly while the level is; null while it is closed.",
    )
    breaker_retry_at = serializers.DateTimeField(
        allow_null=True, help_text="From when on one automatic try is allowed; null where none will be."
    )
    detail = serializers.CharField(
        allow_null=True,
        help_text="What keeps compaction from starting by itself, in words; else that the client goes on with another "
        "context than the one that is handed out; null where there is nothing to say.",
    )
    origins = serializers.DictField(
        child=serializers.ChoiceField(choices=["environment", "team", "session"]),
        help_text="For each figure that is not at its default, who set it.",
    )


class TokenStateView(ApiView):
    @extend_schema(summary="How full the session is", responses=TokenStateBody)
    def get(self, request: Request, session_id: UUID) -> Response:
        session = self.one(selectors.sessions_of(team=self.team), session_id, name="session")
        state = selectors.token_state(session=session)
        return Response(TokenStateBody(state).data)
