"""sessions/{id}/messages/: append, and the whole history."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, OpenApiResponse, PolymorphicProxySerializer, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app import actions, selectors
from compaction_app.api.base import ApiView
from compaction_app.api.fields import Blocks, Described, JsonObject, PlainText, StrictSerializer, Switch, UsageObject
from compaction_app.api.filters import MessageFilter
from compaction_app.api.pagination import OldestFirst
from compaction_app.api.runs import RunBody
from compaction_app.api.schema import error
from compaction_app.api.token_state import TokenStateBody
from compaction_app.models import CompactionRun
from sessions_app.models import Message, Session
from sessions_app.models.messages import KIND_CHOICES, ROLE_CHOICES
from sessions_app.transcript.messages import Role

MOST_AT_ONCE = 1_000
UUID_LENGTH = 128

CALL = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "toolu_01", "name": "Read", "input": {"file_path": "/srv/login.py"}}],
    "uuid": "m-2",
    "message_id": "msg_01",
    "model": "claude-sonnet-4-5",
    "usage": {"input_tokens": 12, "cache_read_input_tokens": 8140, "output_tokens": 95},
}
EXAMPLES = [
    OpenApiExample("one message", value={"role": "user", "content": "Fix the login page."}, request_only=True),
    OpenApiExample(
        "a list, all or nothing",
        value=[{"role": "user", "content": "Fix the login page.", "uuid": "m-1"}, CALL],
        request_only=True,
    ),
]
CONFLICT = error(
    "`uuid_conflict`: a uuid is stored already with other content. Nothing of the request was stored.",
    code="uuid_conflict",
    detail='The uuid "m-1" is stored already with other content.',
    attr="uuid",
    uuids=["m-1"],
)


class NewMessage(StrictSerializer):
    """One message, as the Messages API has it, with what its client knows about it."""

    role = serializers.ChoiceField(choices=ROLE_CHOICES, help_text="Who speaks.")
    content = Blocks(help_text="A string or a list of content blocks; kept to the letter.")
    uuid = PlainText(
        required=False,
        allow_null=True,
        max_length=UUID_LENGTH,
        help_text="Your id of the message, unique in the session: sending it again changes nothing. Made if left out.",
    )
    parent_uuid = PlainText(
        required=False,
        allow_null=True,
        max_length=UUID_LENGTH,
        help_text="The message that this one follows; an earlier one takes the conversation back to there.",
    )
    message_id = PlainText(
        required=False,
        allow_null=True,
        max_length=255,
        help_text="The API's message id; entries of one response share it.",
    )
    timestamp = serializers.DateTimeField(required=False, allow_null=True, help_text="ISO 8601; default: now.")
    usage = UsageObject(
        required=False, allow_null=True, help_text="`usage` of the API's response; its fields may be missing or null."
    )
    model = PlainText(
        required=False, allow_null=True, allow_blank=True, max_length=200, help_text="The model that wrote it."
    )
    is_meta = Switch(
        required=False,
        allow_null=True,
        help_text="Put in by the client, not typed by a person; null or left out: not so.",
    )


class StoredMessage(Described, serializers.ModelSerializer[Message]):
    meanings = {
        "uuid": "As given, or made here.",
        "position": "Its place in the history, from 1 without gaps.",
        "estimated_tokens": "What it is thought to cost.",
    }

    estimated_tokens = serializers.IntegerField(source="tokens", read_only=True)

    class Meta:
        model = Message
        fields = ("uuid", "position", "estimated_tokens")
        read_only_fields = fields


class AppendAnswer(serializers.Serializer[Any]):
    messages = StoredMessage(many=True, help_text="What was stored, in order.")
    duplicates = serializers.ListField(
        child=serializers.CharField(), help_text="uuids that were stored already with the same content."
    )
    token_state = TokenStateBody(help_text="How full the session is now.")
    auto_compaction = RunBody(
        allow_null=True, help_text="The run that this append started; null where it started none."
    )


class MessageBody(Described, serializers.ModelSerializer[Message]):
    meanings = {
        "uuid": "Unique in the session.",
        "position": "Its place in the history, from 1 without gaps.",
        "role": "As given.",
        "kind": "`compact_summary` and `api_error` are stored and shown, never sent.",
        "content": "To the letter as given.",
        "message_id": "The API's message id; entries of one response share it.",
        "parent_uuid": "The message that it follows, where its client said so.",
        "model": "The model that wrote it.",
        "usage": "As the API reported it.",
        "estimated_tokens": "What it is thought to cost.",
        "is_meta": "Put in by the client, not typed by a person.",
        "is_sidechain": "A subagent's, not part of the conversation itself.",
        "on_live_path": "False where the conversation was taken back, and for sidechains.",
        "timestamp": "When it was sent.",
    }

    role = serializers.ChoiceField(choices=ROLE_CHOICES)
    kind = serializers.ChoiceField(choices=KIND_CHOICES)
    content = Blocks()
    parent_uuid = serializers.SerializerMethodField()
    model = serializers.SerializerMethodField()
    usage = JsonObject(allow_null=True)
    estimated_tokens = serializers.IntegerField(source="tokens")
    on_live_path = serializers.SerializerMethodField()
    timestamp = serializers.DateTimeField(source="sent_at", allow_null=True)

    class Meta:
        model = Message
        fields = (
            "uuid",
            "position",
            "role",
            "kind",
            "content",
            "message_id",
            "parent_uuid",
            "model",
            "usage",
            "estimated_tokens",
            "is_meta",
            "is_sidechain",
            "on_live_path",
            "timestamp",
        )
        read_only_fields = fields

    def get_parent_uuid(self, message: Message) -> str | None:
        return message.parent_uuid or None

    def get_model(self, message: Message) -> str | None:
        return message.model or None

    def get_on_live_path(self, message: Message) -> bool:
        return message.left_path_at is None and not message.is_sidechain


def incoming(given: dict[str, Any]) -> actions.IncomingMessage:
    return actions.IncomingMessage(
        role=Role(given["role"]),
        content=given["content"],
        uuid=given.get("uuid") or "",
        parent_uuid=given.get("parent_uuid") or "",
        message_id=given.get("message_id"),
        model=given.get("model") or "",
        sent_at=given.get("timestamp"),
        usage=given.get("usage"),
        is_meta=bool(given.get("is_meta")),
    )


class MessagesView(ApiView):
    pagination_class = OldestFirst
    filterset_class = MessageFilter
    queryset = Message.objects.none()  # tells the OpenAPI document the model
    shown_session: Session

    def started(self, turn: actions.Turn) -> CompactionRun | None:
        if turn.run is None:
            return None
        return selectors.runs_of(team=self.team).filter(pk=turn.run.pk).first()

    @extend_schema(
        summary="List the history",
        description="Every message ever stored, oldest first, whatever was compacted since.",
        responses=MessageBody(many=True),
    )
    def get(self, request: Request, session_id: UUID) -> Response:
        self.shown_session = self.session(session_id)
        return self.page(Message.objects.filter(session=self.shown_session).defer("envelope"), MessageBody)

    @extend_schema(
        summary="Append messages",
        description=f"One message or a list of up to {MOST_AT_ONCE:,}, all or nothing. A uuid that is stored with the "
        "same content is a duplicate and changes nothing. Where a response of the model fills the context beyond its "
        "threshold, a compaction is queued; nothing is compacted within the call. In an error about a list, `attr` "
        "begins with the message's index: `3.content`.",
        request=PolymorphicProxySerializer(
            component_name="NewMessages",
            serializers=[NewMessage, NewMessage(many=True)],
            resource_type_field_name=None,
            many=False,
        ),
        responses={201: OpenApiResponse(AppendAnswer, description="Stored."), 409: CONFLICT},
        examples=EXAMPLES,
        filters=False,
    )
    def post(self, request: Request, session_id: UUID) -> Response:
        session = self.session(session_id)
        if isinstance(request.data, list):
            given = self.body(NewMessage, many=True, max_length=MOST_AT_ONCE, allow_empty=False)
        else:
            given = [self.body(NewMessage)]
        turn = actions.append_turn(session=session, incoming=[incoming(one) for one in given], now=timezone.now())
        answer = {
            "messages": turn.messages,
            "duplicates": turn.duplicates,
            "token_state": selectors.token_state(session=turn.session),
            "auto_compaction": self.started(turn),
        }
        return Response(AppendAnswer(answer).data, status=status.HTTP_201_CREATED)
