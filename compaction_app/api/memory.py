"""sessions/{id}/memory/: the document that may stand for a session's past without a call of a model (S6)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app import actions, selectors
from compaction_app.api.base import ApiView
from compaction_app.api.exceptions import Refused
from compaction_app.api.fields import PlainText, StrictSerializer
from compaction_app.api.schema import error
from compaction_app.engine.command import LONGEST_UUID
from compaction_app.models import SessionMemory

LONGEST_MEMORY = 400_000  # characters; far more than a context takes of it (memory_tokens)

NOT_COVERED = error(
    "The body is wrong; `unknown_uuid`, `not_on_live_path`, `no_messages`: what it is said to cover can't be covered.",
    code="unknown_uuid",
    detail="This session has no message with this uuid.",
)


class NewMemory(StrictSerializer):
    content = PlainText(
        allow_blank=True,
        max_length=LONGEST_MEMORY,
        help_text="Markdown. Empty: the session has no memory any more, and one is extracted again as it grows.",
    )
    covers = PlainText(
        required=False,
        allow_null=True,
        allow_blank=True,
        max_length=LONGEST_UUID,
        help_text="uuid of the last message that it covers; default: the newest one.",
    )


class MemoryBody(serializers.Serializer[Any]):
    """The session's memory; `content` is empty and the rest null where it has none."""

    content = serializers.CharField(allow_blank=True, help_text="Markdown.")
    covers = serializers.CharField(allow_null=True, help_text="uuid of the last message that it covers.")
    covers_position = serializers.IntegerField(allow_null=True, help_text="That message's position.")
    source = serializers.ChoiceField(  # type: ignore[assignment]
        choices=SessionMemory.Source.values,
        allow_null=True,
        help_text="`client`: it was given; `extracted`: it was written in the background.",
    )
    summarizer = serializers.CharField(allow_null=True, help_text="What extracted it; null for one that was given.")
    tokens = serializers.IntegerField(allow_null=True, help_text="Size of all of it, estimated.")
    updated_at = serializers.DateTimeField(allow_null=True, help_text="When it was last written.")


class MemoryView(ApiView):
    @extend_schema(
        summary="The session's memory",
        description="A document that may stand for the session's past without a call of a model. It is written by the "
        "client, or extracted in the background as the session grows.",
        responses=MemoryBody,
    )
    def get(self, request: Request, session_id: UUID) -> Response:
        return Response(_told(selectors.memory(session=self.session(session_id))))

    @extend_schema(
        summary="Give the session a memory",
        description="Takes the place of what was there. While a client keeps a memory, none is extracted.",
        request=NewMemory,
        responses={200: MemoryBody, 400: NOT_COVERED},
        examples=[
            OpenApiExample(
                "a memory", value={"content": "# Task\nMend the parser.\n\n# Done\n- lexer"}, request_only=True
            )
        ],
    )
    def put(self, request: Request, session_id: UUID) -> Response:
        session = self.session(session_id)
        given: dict[str, Any] = self.body(NewMemory)
        try:
            row = actions.put_memory(
                session=session, content=given["content"], covers=given.get("covers") or "", now=timezone.now()
            )
        except actions.MemoryRefused as refused:
            raise Refused(str(refused), code=refused.code, attr="covers") from refused
        return Response(_told(row))


def _told(row: SessionMemory | None) -> dict[str, Any]:
    if row is None or not row.content:
        return MemoryBody({"content": "", **dict.fromkeys(list(MemoryBody().fields)[1:])}).data
    return MemoryBody(
        {
            "content": row.content,
            "covers": row.covers_uuid,
            "covers_position": row.covers_position,
            "source": row.source,
            "summarizer": row.summarizer or None,
            "tokens": row.tokens,
            "updated_at": row.updated_at,
        }
    ).data
