"""sessions/{id}/reset-breaker/."""

from __future__ import annotations

from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app import actions, selectors
from compaction_app.api.base import ApiView
from compaction_app.api.fields import NO_FIELDS, NoFields
from compaction_app.api.token_state import TokenStateBody


class ResetBreakerView(ApiView):
    @extend_schema(
        summary="Let compaction start by itself again",
        description="Closes the session's breaker and forgets what was counted. Nothing is compacted by it: the next "
        "response of the model decides. Where the breaker is closed, nothing changes; while the threshold is out of "
        "reach it stays open.",
        request=NO_FIELDS,
        responses=TokenStateBody,
        examples=[OpenApiExample("nothing is to be said", value={}, request_only=True)],
    )
    def post(self, request: Request, session_id: UUID) -> Response:
        session = self.one(selectors.sessions_of(team=self.team), session_id, name="session")
        self.body(NoFields)
        actions.reset_breaker(session=session, now=timezone.now(), by=self.caller.user)
        return Response(TokenStateBody(selectors.token_state(session=session)).data)
