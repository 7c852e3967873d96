"""sessions/ and sessions/{id}/."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app import actions, selectors
from compaction_app.api.base import ApiView
from compaction_app.api.fields import (
    Blocks,
    Described,
    Figures,
    Json,
    JsonObject,
    JsonObjects,
    PlainText,
    StrictSerializer,
    SwitchFigure,
    WholeFigure,
)
from compaction_app.api.filters import SessionFilter
from sessions_app.models import Session

FIGURES = ("context_window", "auto_compact_enabled", "auto_compact_pct")
# What a null in a body means for columns that know no null.
EMPTY: dict[str, Any] = {"title": "", "model": "", "metadata": {}, "thread": Session.Thread.MAIN}
EXAMPLE = OpenApiExample(
    "a session",
    value={
        "external_id": "ticket-4711",
        "title": "Fix the login page",
        "model": "claude-sonnet-4-5",
        "system": "You are a careful engineer.",
        "tools": [{"name": "Read", "description": "Reads a file.", "input_schema": {"type": "object"}}],
        "metadata": {"repository": "shop"},
        "auto_compact_pct": 80,
    },
    request_only=True,
)


class SessionChange(StrictSerializer):
    """What of a session may change. The figures override the team's and the service's own; null clears."""

    refused = dict.fromkeys(
        ("external_id", "thread", "parent"),
        ("immutable", "This is given when the session is made and does not change."),
    )

    title = PlainText(required=False, allow_null=True, allow_blank=True, max_length=300, help_text="For people.")
    model = PlainText(
        required=False,
        allow_null=True,
        allow_blank=True,
        max_length=200,
        help_text="Decides the context window; left out, it is the model of the first response.",
    )
    system = Blocks(required=False, allow_null=True, help_text="System prompt, as the Messages API takes it.")
    tools = JsonObjects(required=False, allow_null=True, help_text="Tool definitions, as the Messages API takes them.")
    metadata = JsonObject(required=False, allow_null=True, help_text="Yours; kept and given back.")
    context_window = WholeFigure(help_text="Context window in tokens, in place of the model's own.")
    auto_compact_enabled = SwitchFigure(help_text="Whether compaction may start by itself.")
    auto_compact_pct = WholeFigure(
        help_text="Automatic threshold as a percentage (1 to 100) of the effective window; can only lower it."
    )
    policy_overrides = Figures(
        required=False,
        allow_null=True,
        help_text="Any figures of the policy table by name, these three included; null clears one, what is not named "
        "stays.",
    )


class NewSession(SessionChange):
    refused = {}

    external_id = PlainText(
        required=False, allow_null=True, max_length=255, help_text="Your own id, unique in the team."
    )
    thread = serializers.ChoiceField(
        choices=Session.Thread.choices, required=False, allow_null=True, help_text="Default: `main`."
    )
    parent = serializers.UUIDField(  # type: ignore[assignment]
        required=False, allow_null=True, help_text="The session that started this one; of the same team."
    )

    def validate_parent(self, value: UUID | None) -> Session | None:
        if value is None:
            return None
        parent = Session.objects.for_team(self.context["team"]).filter(uuid=value).first()
        if parent is None:
            raise serializers.ValidationError(f"There is no session {value}.", code="does_not_exist")
        return parent


class SessionRow(Described, serializers.ModelSerializer[Session]):
    """A session as lists show it: without system prompt and tools."""

    meanings: ClassVar[Mapping[str, str]] = {
        "id": "The session's id in this API.",
        "external_id": "Your own id of it; unique in the team.",
        "title": "For people.",
        "model": "Given, or the model of the first response; decides the context window.",
        "thread": "`main`, or `subagent` for a conversation that another one started.",
        "parent": "The session that started this one.",
        "metadata": "Yours, as given.",
        "context_window": "Override in tokens; null: not overridden.",
        "auto_compact_enabled": "Override; null: not overridden.",
        "auto_compact_pct": "Override in percent of the effective window; null: not overridden.",
        "policy_overrides": "All figures that this session overrides, by name; `policy/` tells what each means.",
        "source": "`api`, or the format of the transcript that was imported.",
        "created_at": "When it was made here.",
        "updated_at": "When it last changed.",
        "last_message_at": "When the last message was stored; null without messages.",
        "message_count": "Messages stored, compacted ones included.",
        "context_tokens": "Size of the context that would be sent now.",
        "context_source": "Whether that was measured by the API (`usage`) or estimated.",
        "boundary_count": "How often its context was made smaller.",
        "level": "How full it was when it last changed; `token-state/` tells how full it is by the figures of now.",
        "breaker_open": "Whether compaction has stopped starting by itself.",
    }

    id = serializers.UUIDField(source="uuid", read_only=True)
    parent = serializers.UUIDField(  # type: ignore[assignment]
        source="parent.uuid", default=None, read_only=True, allow_null=True
    )
    metadata = JsonObject(read_only=True)
    context_window = WholeFigure(source="policy_overrides.context_window", default=None, read_only=True)
    auto_compact_enabled = SwitchFigure(source="policy_overrides.auto_compact_enabled", default=None, read_only=True)
    auto_compact_pct = WholeFigure(source="policy_overrides.auto_compact_pct", default=None, read_only=True)
    policy_overrides = JsonObject(read_only=True)
    message_count = serializers.IntegerField(source="last_position", read_only=True)
    breaker_open = serializers.SerializerMethodField()

    class Meta:
        model = Session
        fields: tuple[str, ...] = (
            "id",
            "external_id",
            "title",
            "model",
            "thread",
            "parent",
            "metadata",
            *FIGURES,
            "policy_overrides",
            "source",
            "created_at",
            "updated_at",
            "last_message_at",
            "message_count",
            "context_tokens",
            "context_source",
            "boundary_count",
            "level",
            "breaker_open",
        )
        read_only_fields = fields

    def get_breaker_open(self, session: Session) -> bool:
        return selectors.breaker_state(session=session).is_open


class SessionDetail(SessionRow):
    system = Json(read_only=True, allow_null=True, help_text="System prompt, as given.")
    tools = Json(read_only=True, allow_null=True, help_text="Tool definitions, as given.")

    class Meta(SessionRow.Meta):
        fields = (*SessionRow.Meta.fields, "system", "tools")
        read_only_fields = fields


def session_values(given: dict[str, Any]) -> dict[str, Any]:
    """Columns for the fields given, nulls as empty values; figures together as overrides, null to clear one."""
    figures = {**(given.get("policy_overrides") or {}), **{name: given[name] for name in FIGURES if name in given}}
    columns = [name for name in given if name not in FIGURES and name != "policy_overrides"]
    values = {name: EMPTY.get(name) if given[name] is None else given[name] for name in columns}
    if figures:
        values["policy_overrides"] = figures
    return values


class SessionsView(ApiView):
    queryset = Session.objects.none()  # tells the OpenAPI document the model
    filterset_class = SessionFilter

    @extend_schema(
        summary="List sessions", description="The team's sessions, newest first.", responses=SessionRow(many=True)
    )
    def get(self, request: Request) -> Response:
        rows = Session.objects.for_team(self.team).select_related("parent", "compaction_state")
        rows = rows.defer("system", "tools")
        return self.page(rows, SessionRow)

    @extend_schema(
        summary="Make a session",
        description="With an `external_id` that the team has already, the session that exists is given back (200), "
        "unchanged.",
        request=NewSession,
        responses={
            201: OpenApiResponse(SessionDetail, description="The new session."),
            200: OpenApiResponse(SessionDetail, description="The session that has this `external_id` already."),
        },
        examples=[EXAMPLE],
        filters=False,
    )
    def post(self, request: Request) -> Response:
        values = session_values(self.body(NewSession))
        session, made = actions.create_session(team=self.team, values=values)
        code = status.HTTP_201_CREATED if made else status.HTTP_200_OK
        return Response(SessionDetail(session).data, status=code)


class SessionView(ApiView):
    def shown(self, session_id: UUID) -> Session:
        rows = Session.objects.for_team(self.team).select_related("parent", "compaction_state")
        return self.one(rows, session_id, name="session")

    @extend_schema(summary="Show a session", responses=SessionDetail)
    def get(self, request: Request, session_id: UUID) -> Response:
        return Response(SessionDetail(self.shown(session_id)).data)

    @extend_schema(
        summary="Change a session",
        description="Only the fields given change.",
        request=SessionChange,
        responses=SessionDetail,
        examples=[OpenApiExample("another title", value={"title": "Login page, again"}, request_only=True)],
    )
    def patch(self, request: Request, session_id: UUID) -> Response:
        session = self.shown(session_id)
        values = session_values(self.body(SessionChange))
        return Response(SessionDetail(actions.update_session(session=session, values=values)).data)

    @extend_schema(
        summary="Erase a session",
        description="For good, and the one exception to a history that nothing is deleted from: its messages, "
        "summaries, runs, memory and whatever else was made of it. That it was erased, by whom and when, stays on "
        "record, and nothing of its content. Sessions that it has started stay, without their `parent`; what of it was "
        "told elsewhere (in their messages, to hooks) is not reached. A run that is under way is given up.",
        responses={204: OpenApiResponse(description="It is gone.")},
    )
    def delete(self, request: Request, session_id: UUID) -> Response:
        actions.erase_session(session=self.shown(session_id), by=self.caller.decider, now=timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)
