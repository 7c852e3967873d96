"""hooks/: where a team wants to be asked and told about compactions."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiExample, OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from compaction_app import actions, selectors
from compaction_app.api.base import ApiView
from compaction_app.api.exceptions import Conflict
from compaction_app.api.fields import (
    NO_FIELDS,
    Described,
    Json,
    NoFields,
    PlainText,
    StrictSerializer,
    Switch,
    WholeNumber,
)
from compaction_app.api.schema import error
from compaction_app.models import Hook, HookDelivery, HookEvent

EXAMPLE = OpenApiExample(
    "asked before each compaction",
    value={
        "event": "pre_compact",
        "url": "https://agents.example.com/hooks/compaction",
        "description": "adds what the summary must keep",
        "can_block": True,
        "timeout": 10,
    },
    request_only=True,
)


class HookChange(StrictSerializer):
    """What of a hook may change."""

    refused = {
        "event": ("immutable", "This is given when the hook is made and does not change."),
        "secret": ("immutable", "The service makes it; `rotate-secret/` makes another."),
    }

    url = PlainText(
        required=False,
        max_length=2_000,
        help_text="http or https, public, without user name and password. Redirects are not followed.",
    )
    description = PlainText(required=False, allow_blank=True, max_length=200, help_text="For people.")
    enabled = Switch(required=False, help_text="Whether it is asked and told at all.")
    can_block = Switch(required=False, help_text="`pre_compact` only: whether its refusal is obeyed. Default: false.")
    required = Switch(  # type: ignore[assignment]
        required=False,
        help_text="`pre_compact` only: whether nothing is compacted without its answer. Default: false, and a hook "
        "that is down is passed over.",
    )
    timeout = WholeNumber(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=30,
        help_text="Seconds that it may take; null: the figure `hook_timeout_seconds`.",
    )


class NewHook(HookChange):
    refused = {"secret": HookChange.refused["secret"]}

    event = serializers.ChoiceField(
        choices=HookEvent.values, help_text="`pre_compact` asks; the others tell of what has happened."
    )
    url = PlainText(max_length=2_000, help_text=HookChange().fields["url"].help_text)


class HookBody(Described, serializers.ModelSerializer[Hook]):
    """A hook, without its secret."""

    meanings = {
        "id": "The hook's id.",
        "event": "What it is asked or told.",
        "url": "Where requests go.",
        "description": "For people.",
        "enabled": "Whether it is asked and told at all. An answer of 410 Gone switches it off.",
        "can_block": "Whether its refusal of a compaction is obeyed.",
        "required": "Whether nothing is compacted without its answer.",
        "timeout": "Seconds that it may take; null: the figure `hook_timeout_seconds`.",
        "created_at": "When it was made.",
        "updated_at": "When it last changed.",
    }

    id = serializers.UUIDField(source="uuid", read_only=True)
    event = serializers.ChoiceField(choices=HookEvent.values, read_only=True)
    timeout = serializers.IntegerField(read_only=True, allow_null=True)

    class Meta:
        model = Hook
        fields: tuple[str, ...] = (
            "id",
            "event",
            "url",
            "description",
            "enabled",
            "can_block",
            "required",
            "timeout",
            "created_at",
            "updated_at",
        )
        read_only_fields = fields


class HookWithSecret(HookBody):
    meanings = {
        **HookBody.meanings,
        "secret": "Signs the requests (Standard Webhooks). Shown this once: keep it.",
    }

    secret = serializers.CharField(read_only=True)

    class Meta(HookBody.Meta):
        fields = (*HookBody.Meta.fields, "secret")
        read_only_fields = fields


class DeliveryBody(Described, serializers.ModelSerializer[HookDelivery]):
    """One event for a hook, and what became of it."""

    meanings = {
        "id": "The `webhook-id`, the same on each try.",
        "event": "What it tells or asks.",
        "session": "The session that it is about.",
        "run": "The run that it is about; null where there is none.",
        "status": "`waiting`, `delivered`, or `given_up`.",
        "tries": "How often it was sent.",
        "next_try_at": "When it is sent again; null once it has ended.",
        "http_status": "Status of the last answer; null where there was none.",
        "detail": "Why the last try failed, or what a `pre_compact` hook said.",
        "payload": "The body that is sent.",
        "created_at": "When it happened.",
        "finished_at": "When it was delivered or given up.",
    }

    id = serializers.UUIDField(source="uuid", read_only=True)
    event = serializers.ChoiceField(choices=HookEvent.values, read_only=True)
    status = serializers.ChoiceField(choices=HookDelivery.Status.values, read_only=True)
    session = serializers.UUIDField(source="session.uuid", read_only=True)
    run = serializers.UUIDField(source="run.uuid", default=None, read_only=True, allow_null=True)
    payload = Json(read_only=True)

    class Meta:
        model = HookDelivery
        fields = (
            "id",
            "event",
            "session",
            "run",
            "status",
            "tries",
            "next_try_at",
            "http_status",
            "detail",
            "payload",
            "created_at",
            "finished_at",
        )
        read_only_fields = fields


def _as_fields(bad: actions.BadHook) -> serializers.ValidationError:
    return serializers.ValidationError(
        {name or "non_field_errors": [reason] for name, reason in bad.problems.items()}, code="invalid"
    )


FULL = error("`too_many_hooks`: delete one first.", code="too_many_hooks", detail="A team has at most 20 hooks.")


class HooksView(ApiView):
    queryset: Any = Hook.objects.none()  # tells the OpenAPI document the model

    @extend_schema(summary="List hooks", description="The team's hooks, newest first.", responses=HookBody(many=True))
    def get(self, request: Request) -> Response:
        return self.page(Hook.objects.for_team(self.team), HookBody)

    @extend_schema(
        summary="Make a hook",
        description="The answer holds the secret that signs its requests, this once.",
        request=NewHook,
        responses={
            201: OpenApiResponse(HookWithSecret, description="The new hook, with its secret."),
            409: FULL,
        },
        examples=[EXAMPLE],
    )
    def post(self, request: Request) -> Response:
        values = self.body(NewHook)
        try:
            hook = actions.create_hook(team=self.team, event=values["event"], values=values)
        except actions.BadHook as bad:
            if (full := bad.problems.get("")) is not None:
                raise Conflict(full, code="too_many_hooks") from None
            raise _as_fields(bad) from None
        return Response(HookWithSecret(hook).data, status=status.HTTP_201_CREATED)


class HookView(ApiView):
    def hook(self, hook_id: UUID) -> Hook:
        found: Hook = self.one(Hook.objects.for_team(self.team), hook_id, name="hook")
        return found

    @extend_schema(summary="Show a hook", responses=HookBody)
    def get(self, request: Request, hook_id: UUID) -> Response:
        return Response(HookBody(self.hook(hook_id)).data)

    @extend_schema(
        summary="Change a hook",
        description="Only the fields given change. What waits for a hook that is switched off is given up.",
        request=HookChange,
        responses=HookBody,
        examples=[OpenApiExample("switched off", value={"enabled": False}, request_only=True)],
    )
    def patch(self, request: Request, hook_id: UUID) -> Response:
        hook = self.hook(hook_id)
        values = self.body(HookChange)
        try:
            return Response(HookBody(actions.update_hook(hook=hook, values=values)).data)
        except actions.BadHook as bad:
            raise _as_fields(bad) from None

    @extend_schema(
        summary="Delete a hook",
        description="With its log, and with what still waits for it.",
        responses={204: OpenApiResponse(description="It is gone.")},
    )
    def delete(self, request: Request, hook_id: UUID) -> Response:
        actions.delete_hook(hook=self.hook(hook_id))
        return Response(status=status.HTTP_204_NO_CONTENT)


class RotateSecretView(ApiView):
    @extend_schema(
        summary="Give a hook another secret",
        description="The answer holds it, this once. The old one signs nothing from now on.",
        request=NO_FIELDS,
        responses=HookWithSecret,
        examples=[OpenApiExample("nothing is to be said", value={}, request_only=True)],
    )
    def post(self, request: Request, hook_id: UUID) -> Response:
        hook = self.one(Hook.objects.for_team(self.team), hook_id, name="hook")
        self.body(NoFields)
        return Response(HookWithSecret(actions.rotate_hook_secret(hook=hook)).data)


class DeliveriesView(ApiView):
    queryset: Any = HookDelivery.objects.none()  # tells the OpenAPI document the model

    @extend_schema(
        summary="List what was sent to a hook",
        description="And what waits to be sent. Newest first.",
        responses=DeliveryBody(many=True),
    )
    def get(self, request: Request, hook_id: UUID) -> Response:
        hook = self.one(Hook.objects.for_team(self.team), hook_id, name="hook")
        return self.page(selectors.deliveries_of(hook=hook), DeliveryBody)
