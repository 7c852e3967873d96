"""search/: what was said, wherever it was said."""

from __future__ import annotations

from typing import Any

import django_filters
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app.api.base import ApiView
from compaction_app.api.fields import Described
from compaction_app.api.filters import Filters, Id, Text
from compaction_app.selectors.search import hits, snippet_of
from sessions_app.models import SearchText
from sessions_app.models.messages import ROLE_CHOICES
from sessions_app.models.search import SearchTextQuerySet
from sessions_app.policy import Policy

MESSAGE, SUMMARY = "message", "summary"
HIT_KINDS = [(MESSAGE, MESSAGE), (SUMMARY, SUMMARY)]


class SearchFilter(Filters):
    q = Text(
        method="holding",
        required=True,
        help_text="What to look for, in any language and any case, 1 to 1,000 characters; nothing in it has a meaning "
        "of its own.",
    )
    session = Id(field_name="session__uuid", help_text="A session's id: only what is in it.")
    kind = django_filters.ChoiceFilter(choices=HIT_KINDS, method="of_kind", help_text="Messages alone, or summaries.")

    class Meta:
        model = SearchText
        fields: tuple[str, ...] = ()

    def holding(self, queryset: SearchTextQuerySet, name: str, value: str) -> SearchTextQuerySet:
        return queryset.holding(value)

    def of_kind(self, queryset: SearchTextQuerySet, name: str, value: str) -> SearchTextQuerySet:
        return queryset.filter(message__isnull=value != MESSAGE)


class HitBody(Described, serializers.ModelSerializer[SearchText]):
    """One message or one summary that holds what was looked for."""

    meanings = {
        "kind": "`message`, or `summary` of a boundary.",
        "session": "The session's id.",
        "session_title": "The session's title.",
        "message": "The message's uuid, unique in its session; null for a summary.",
        "position": "The message's place in the history; null for a summary.",
        "role": "Who speaks in the message; null for a summary.",
        "boundary": "The boundary's id; null for a message.",
        "at": "When the message was sent, or the boundary written.",
        "snippet": "Plain text around the first place where it stands; `…` where something is left out. Escape it as "
        "any text of a conversation.",
    }

    kind = serializers.SerializerMethodField()
    session = serializers.UUIDField(source="session.uuid", read_only=True)
    session_title = serializers.CharField(source="session.title", read_only=True)
    message = serializers.CharField(source="message.uuid", default=None, read_only=True, allow_null=True)
    position = serializers.IntegerField(source="message.position", default=None, read_only=True, allow_null=True)
    role = serializers.ChoiceField(
        choices=ROLE_CHOICES, source="message.role", default=None, read_only=True, allow_null=True
    )
    boundary = serializers.UUIDField(source="boundary.uuid", default=None, read_only=True, allow_null=True)
    at = serializers.SerializerMethodField()
    snippet = serializers.SerializerMethodField()

    class Meta:
        model = SearchText
        fields = ("kind", "session", "session_title", "message", "position", "role", "boundary", "at", "snippet")
        read_only_fields = fields

    @extend_schema_field(serializers.ChoiceField(choices=HIT_KINDS))
    def get_kind(self, hit: SearchText) -> str:
        return MESSAGE if hit.message_id else SUMMARY

    @extend_schema_field(serializers.DateTimeField())
    def get_at(self, hit: SearchText) -> Any:
        at = hit.message.sent_at if hit.message else hit.boundary.created_at  # type: ignore[union-attr]
        return serializers.DateTimeField().to_representation(at) if at else None

    def get_snippet(self, hit: SearchText) -> str:
        return snippet_of(hit=hit, text=self.context["q"], most=Policy().search_snippet_chars)


class SearchView(ApiView):
    queryset: Any = SearchText.objects.none()  # tells the OpenAPI document the model
    filterset_class = SearchFilter

    @extend_schema(
        summary="Search messages and summaries",
        description="Of all the team's sessions, or of one. The newest that was stored comes first.",
        responses=HitBody(many=True),
    )
    def get(self, request: Request) -> Response:
        rows = self.paginate_queryset(self.filter_queryset(hits(team=self.team)))
        body = HitBody(rows, many=True, context={"q": request.query_params["q"]})
        return self.get_paginated_response(body.data)
