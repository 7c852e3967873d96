"""sessions/{id}/boundaries/ and boundaries/{id}/."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app import selectors
from compaction_app.api.base import ApiView
from compaction_app.api.fields import Described, JsonObject
from compaction_app.engine.cleanup import CacheName, Scope
from sessions_app.models import Attachment, CompactBoundary
from sessions_app.models.boundaries import CLEARING_CHOICES, KIND_CHOICES


class AttachmentBody(Described, serializers.ModelSerializer[Attachment]):
    """State restored after the summary: a file's content, the plan."""

    meanings = {
        "kind": "`plan_mode`, `plan`, `file`, `skill`, `tools_delta`, `agents_delta`, `mcp_instructions_delta`.",
        "payload": "What describes it, a file's path for instance.",
        "tokens": "What it is thought to cost.",
        "text": "What the model is shown.",
    }

    payload = JsonObject()

    class Meta:
        model = Attachment
        fields = ("kind", "payload", "tokens", "text")
        read_only_fields = fields


class PreservedBody(serializers.Serializer[Any]):
    """uuids of what stays verbatim: its first and last message, and the summary message that it hangs on."""

    head = serializers.CharField(source="head_uuid", help_text="First message kept.")
    anchor = serializers.CharField(source="anchor_uuid", help_text="The summary message.")
    tail = serializers.CharField(source="tail_uuid", help_text="Last message kept.")


class ClearedBody(serializers.Serializer[Any]):
    """A tool result that the boundary clears."""

    tool_use_id = serializers.CharField(help_text="Of its call.")
    tool = serializers.CharField(help_text="The tool's name.")
    position = serializers.IntegerField(help_text="Of the message that holds it, where it can still be read.")
    tokens_freed = serializers.IntegerField(help_text="What clearing it saves, estimated.")
    reason = serializers.CharField(help_text="Why it was cleared.")


class CacheBody(serializers.Serializer[Any]):
    """A cache that a compaction makes stale."""

    cache = serializers.ChoiceField(choices=[name.value for name in CacheName], help_text="Its name.")
    scope = serializers.ChoiceField(
        choices=[scope.value for scope in Scope], help_text="`main_thread`: a sub-agent's compaction leaves it alone."
    )
    why = serializers.CharField(help_text="Why it was cleared, or kept, or what went wrong.")
    held_by = serializers.ChoiceField(
        choices=["service", "client"], help_text="`client`: the client holds it, and should do the same with it."
    )


class CleanupBody(serializers.Serializer[Any]):
    """What was reset after the boundary was written."""

    cleared = CacheBody(many=True, help_text="Cleared; what a client holds itself is for it to clear.")
    kept = CacheBody(many=True, help_text="Kept on purpose.")
    failed = CacheBody(many=True, required=False, help_text="What could not be cleared; left out where all could.")


class BoundaryBody(Described, serializers.ModelSerializer[CompactBoundary]):
    meanings = {
        "id": "The boundary's id.",
        "session": "The session whose history it marks.",
        "kind": "`microcompact` clears tool results; the others put a summary in place of messages.",
        "trigger": "What started the compaction.",
        "covers_to": "Position of the last message that is no longer shown as it is.",
        "tokens_before": "The context before.",
        "tokens_after": "The context after.",
        "tokens_after_exact": "The context after, counted by the provider; null where it was not asked or did not say.",
        "summary": "What stands for the messages; null for `microcompact`.",
        "summarizer": "What wrote the summary.",
        "model": "The model that wrote the summary, as the provider names it; empty where none did.",
        "prompt_version": "Version of the prompt that asked for it; empty where no model was asked.",
        "response_id": "The provider's id of the response that the summary is from.",
        "usage": "Of all calls that led to the summary, as the API tells it; null where there was none.",
        "instructions": "What the summary was to mind.",
        "preserved": "What stays verbatim; null where nothing does.",
        "attachments": "State restored after the summary.",
        "cleared_tool_use_ids": "Calls whose results the model does not see any more.",
        "cleared_results": "The same with tool, place, tokens and reason; empty for imported boundaries.",
        "clearing": "`placeholder`: sent as a placeholder; `api_edit`: sent whole, with edits that the API applies.",
        "why": "What a clearing did and why, in words; empty for summaries.",
        "cleanup": "What was reset after it; null for clearings, imported boundaries, and before it has run.",
        "created_at": "When it was written.",
        "reverted_at": "When it was taken back; null while it holds.",
        "run": "The run that wrote it; null where it was imported.",
    }

    id = serializers.UUIDField(source="uuid", read_only=True)
    session = serializers.UUIDField(source="session.uuid", read_only=True)
    kind = serializers.ChoiceField(choices=KIND_CHOICES, read_only=True)
    trigger = serializers.ChoiceField(choices=CompactBoundary.Trigger.choices, read_only=True)
    preserved = serializers.SerializerMethodField()
    attachments = AttachmentBody(many=True, read_only=True)
    cleared_tool_use_ids = serializers.ListField(child=serializers.CharField(), read_only=True)
    cleared_results = ClearedBody(many=True, read_only=True)
    clearing = serializers.SerializerMethodField()
    usage = JsonObject(read_only=True, allow_null=True)
    cleanup = CleanupBody(read_only=True, allow_null=True)
    run = serializers.UUIDField(source="run.uuid", default=None, read_only=True, allow_null=True)

    class Meta:
        model = CompactBoundary
        fields = (
            "id",
            "session",
            "kind",
            "trigger",
            "covers_to",
            "tokens_before",
            "tokens_after",
            "tokens_after_exact",
            "summary",
            "summarizer",
            "model",
            "prompt_version",
            "response_id",
            "usage",
            "instructions",
            "preserved",
            "attachments",
            "cleared_tool_use_ids",
            "cleared_results",
            "clearing",
            "why",
            "cleanup",
            "created_at",
            "reverted_at",
            "run",
        )
        read_only_fields = fields

    @extend_schema_field(serializers.ChoiceField(choices=CLEARING_CHOICES, allow_null=True))
    def get_clearing(self, boundary: CompactBoundary) -> str | None:
        return boundary.clearing if boundary.cleared_tool_use_ids else None

    @extend_schema_field(PreservedBody(allow_null=True))
    def get_preserved(self, boundary: CompactBoundary) -> Any:
        return PreservedBody(boundary).data if boundary.head_uuid else None


class BoundariesView(ApiView):
    queryset = CompactBoundary.objects.none()  # tells the OpenAPI document the model

    @extend_schema(
        summary="List a session's boundaries",
        description="Newest first, reverted ones included.",
        responses=BoundaryBody(many=True),
    )
    def get(self, request: Request, session_id: UUID) -> Response:
        session = self.session(session_id)
        return self.page(selectors.boundaries_of(team=self.team).filter(session=session), BoundaryBody)


class BoundaryView(ApiView):
    @extend_schema(summary="Show a boundary", responses=BoundaryBody)
    def get(self, request: Request, boundary_id: UUID) -> Response:
        boundary = self.one(selectors.boundaries_of(team=self.team), boundary_id, name="boundary")
        return Response(BoundaryBody(boundary).data)
