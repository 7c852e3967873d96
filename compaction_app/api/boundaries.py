"""sessions/{id}/boundaries/ and boundaries/{id}/."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app import actions, selectors
from compaction_app.api.base import ApiView
from compaction_app.api.fields import NO_FIELDS, Described, JsonObject, NoFields
from compaction_app.api.filters import BoundaryFilter
from compaction_app.api.schema import error
from compaction_app.engine.cleanup import CacheName, Scope
from sessions_app.models import Attachment, CompactBoundary
from sessions_app.models.boundaries import CLEARING_CHOICES, KIND_CHOICES
from sessions_app.transcript.diff import item_begins
from sessions_app.transcript.view import ViewItem


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
    """uuids of what stays verbatim: its first and last message, and what it hangs on."""

    head = serializers.CharField(source="head_uuid", help_text="First message kept.")
    anchor = serializers.CharField(
        source="anchor_uuid", help_text="The summary message; the boundary itself where what is kept stands in front."
    )
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
        "generation": "Summaries between the originals and this text: 1 was made from originals alone.",
        "restores": "The reverted boundary that this one brings back; null for any other.",
        "run": "The run that wrote it; null where it was imported, or brought back.",
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
    restores = serializers.UUIDField(source="restores.uuid", default=None, read_only=True, allow_null=True)
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
            "generation",
            "restores",
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
    filterset_class = BoundaryFilter

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


CONFLICT = error(
    "`not_newest`, `already_reverted`, `not_reverted`, `light_boundary`, `stale_view`: it can't be done with this "
    "boundary any more; `active_run`: the session has a run that is not finished.",
    code="not_newest",
    detail="Only the newest boundary that summarises can be reverted.",
)


class RevertView(ApiView):
    @extend_schema(
        summary="Take a compaction back",
        description="The newest boundary that summarises, with the clearings above it. What was shown before it is "
        "shown again, and all that was appended since. `restore/` undoes it.",
        request=NO_FIELDS,
        responses={200: BoundaryBody, 409: CONFLICT},
        examples=[OpenApiExample("nothing is to be said", value={}, request_only=True)],
    )
    def post(self, request: Request, boundary_id: UUID) -> Response:
        boundary = self.one(selectors.boundaries_of(team=self.team), boundary_id, name="boundary")
        self.body(NoFields)
        actions.revert_boundary(boundary=boundary, now=timezone.now(), by=self.caller.user)
        again = self.one(selectors.boundaries_of(team=self.team), boundary_id, name="boundary")
        return Response(BoundaryBody(again).data)


class RestoreView(ApiView):
    @extend_schema(
        summary="Bring a reverted compaction back",
        description="Writes a new boundary that says the same (`restores` names the old one), and answers with it. "
        "Only while no other boundary stands in its place, and the messages that it covers are still those.",
        request=NO_FIELDS,
        responses={201: BoundaryBody, 409: CONFLICT},
        examples=[OpenApiExample("nothing is to be said", value={}, request_only=True)],
    )
    def post(self, request: Request, boundary_id: UUID) -> Response:
        boundary = self.one(selectors.boundaries_of(team=self.team), boundary_id, name="boundary")
        self.body(NoFields)
        brought = actions.restore_boundary(boundary=boundary, now=timezone.now(), by=self.caller.user)
        row = self.one(selectors.boundaries_of(team=self.team), brought.uuid, name="boundary")
        return Response(BoundaryBody(row).data, status=status.HTTP_201_CREATED)


MOST_ITEMS = 200  # of each list; the counts tell how many there are
FIRST_CHARS = 200


class DiffItem(serializers.Serializer[Any]):
    """One thing that the model was shown, or is shown now."""

    uuid = serializers.CharField(help_text="Of the message, or of what the boundary put in.")
    position = serializers.IntegerField(help_text="In the history; 0 for what a boundary put in.")
    role = serializers.CharField(help_text="Whose message it is.")
    tokens = serializers.IntegerField(help_text="What it takes, estimated.")
    begins = serializers.CharField(
        help_text=f"What it is recognised by, at most {FIRST_CHARS} characters: its text, of a call the tool and its "
        "first argument, of a result its first words, `[image]` for an image."
    )


class DiffPart(serializers.Serializer[Any]):
    count = serializers.IntegerField(help_text="How many there are.")
    tokens = serializers.IntegerField(help_text="What they take together, estimated.")
    items = DiffItem(many=True, help_text=f"The first {MOST_ITEMS} of them.")


class DiffCleared(serializers.Serializer[Any]):
    position = serializers.IntegerField(help_text="Of the message that holds the results.")
    tool_use_ids = serializers.ListField(child=serializers.CharField(), help_text="Results that are placeholders now.")


class DiffBody(serializers.Serializer[Any]):
    """The contexts right before and right after a boundary, compared. Tokens without system prompt and tools."""

    boundary = serializers.UUIDField(help_text="The boundary.")
    tokens_before = serializers.IntegerField(help_text="What was shown before it, estimated.")
    tokens_after = serializers.IntegerField(help_text="What was shown after it, estimated.")
    went = DiffPart(help_text="Shown before it and not after it.")
    came = DiffPart(help_text="What it put in: the summary, restored state.")
    stayed = DiffPart(help_text="Shown before and after it.")
    cleared = DiffCleared(many=True, help_text=f"Messages whose results it cleared; the first {MOST_ITEMS} of them.")
    thinking_dropped = serializers.IntegerField(help_text="Messages whose thinking no longer goes along.")


class DiffView(ApiView):
    @extend_schema(summary="What a boundary changed", responses=DiffBody)
    def get(self, request: Request, boundary_id: UUID) -> Response:
        boundary = self.one(selectors.boundaries_of(team=self.team), boundary_id, name="boundary")
        found = selectors.boundary_diff(boundary=boundary)
        body = {
            "boundary": boundary.uuid,
            "tokens_before": found.tokens_before,
            "tokens_after": found.tokens_after,
            "went": _part(found.went, found.tokens_went),
            "came": _part(found.came, found.tokens_came),
            "stayed": _part(found.stayed, found.tokens_stayed),
            "cleared": [
                {"position": item.position, "tool_use_ids": sorted(ids)} for item, ids in found.cleared[:MOST_ITEMS]
            ],
            "thinking_dropped": found.thinking_dropped,
        }
        return Response(DiffBody(body).data)


def _part(items: Sequence[ViewItem], tokens: int) -> dict[str, Any]:
    told = [
        {
            "uuid": item.uuid,
            "position": item.position,
            "role": item.role.value,
            "tokens": item.tokens,
            "begins": item_begins(item=item, most=FIRST_CHARS),
        }
        for item in items[:MOST_ITEMS]
    ]
    return {"count": len(items), "tokens": tokens, "items": told}
