"""The OpenAPI document: each operation lists the errors that it can answer with, in the one shape."""

from __future__ import annotations

from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiExample, OpenApiResponse
from rest_framework import serializers

from compaction_app.api import extensions  # noqa: F401 - what is defined there is registered


class ErrorItem(serializers.Serializer[Any]):
    code = serializers.CharField(help_text="Stable, for programs.")
    detail = serializers.CharField(help_text="For people; may change.")
    attr = serializers.CharField(
        allow_null=True, help_text="The field that is meant, `3.content` for one in a list; null where there is none."
    )


class ErrorBody(serializers.Serializer[Any]):
    type = serializers.ChoiceField(
        choices=["validation_error", "client_error", "server_error"],
        help_text="`validation_error`: fields or parameters are wrong.",
    )
    errors = ErrorItem(many=True, help_text="At least one.")  # type: ignore[assignment]
    run = serializers.UUIDField(
        required=False, help_text="Where a code is about a run, such as `active_run`: the run that is meant."
    )
    uuids = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="`uuid_conflict`: the uuids with other content."
    )


def error(description: str, *, code: str, detail: str, attr: str | None = None, **extra: Any) -> OpenApiResponse:
    """The documentation of one error answer, with an example."""
    kind = "validation_error" if attr and not extra else "client_error"
    value = {"type": kind, "errors": [{"code": code, "detail": detail, "attr": attr}], **extra}
    return OpenApiResponse(
        response=ErrorBody, description=description, examples=[OpenApiExample(code, value=value, response_only=True)]
    )


BAD_REQUEST = error(
    "The request is not understood: body or parameters are wrong (`validation_error`, an entry a field; "
    "`unknown_field` for a name that does not exist), or the body is no JSON, or has a name twice in one object "
    "(`parse_error`).",
    code="unknown_field",
    detail="There is no such field.",
    attr="titel",
)
BAD_PARAMETER = error(
    "A query parameter is wrong, or the header `X-Team` is needed; `attr` names it.",
    code="invalid",
    detail="A whole number from 1 to 500 is needed.",
    attr="page_size",
)
UNAUTHORIZED = error(
    "No API key was sent (`not_authenticated`), or it is unknown, revoked or expired (`authentication_failed`).",
    code="not_authenticated",
    detail="Authentication credentials were not provided.",
)
FORBIDDEN = error(
    "The key has read scope and this is no reading; of somebody who is logged in: a viewer, or no member.",
    code="permission_denied",
    detail="This API key may only read.",
)
NOT_FOUND = error(
    "There is nothing with this id among the team's own.",
    code="not_found",
    detail="There is no session 7d0a4d4e-4f1c-4f35-9a0e-3f0a0b0c0d0e.",
)
TOO_LARGE = error(
    "The body is larger than 64 MiB.",
    code="body_too_large",
    detail="The request's body is larger than 67,108,864 bytes.",
)
UNSUPPORTED = error(
    "The body is not sent as application/json.",
    code="unsupported_media_type",
    detail='Unsupported media type "text/plain" in request.',
)
THROTTLED = error(
    "More requests of this key than may be sent in a minute; `Retry-After` says in how many seconds there is room.",
    code="throttled",
    detail="Request was throttled. Expected available in 7 seconds.",
)
BUSY = error(
    "The database does not answer in time; nothing was stored, and the call may be sent again after `Retry-After`.",
    code="busy",
    detail="The database is busy. Nothing was stored; try again.",
)
REPEATED = error(
    "",
    code="idempotency_conflict",
    detail="This Idempotency-Key was sent with another call before: another body, address or method.",
    attr="Idempotency-Key",
)
REPEATED_WORDS = (
    "With an `Idempotency-Key`: `idempotency_conflict` (it was sent with another call), `idempotency_in_progress` (the "
    "first call is not answered yet; `Retry-After`)."
)
RETRY_AFTER = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
REPLAYED = {
    "Idempotency-Replayed": {
        "description": "`true` where the answer is that of an earlier call with this `Idempotency-Key`.",
        "schema": {"type": "string", "enum": ["true"]},
    }
}


# What is done, and makes nothing that has the same name.
VERBS = (
    "accept",
    "cancel",
    "compact",
    "prepare",
    "reject",
    "reset_breaker",
    "restore",
    "retry",
    "revert",
    "rotate_secret",
)


class ApiSchema(AutoSchema):
    def get_operation_id(self) -> str:
        found: str = super().get_operation_id()
        name = found.removesuffix("_create")
        return name if name.endswith(VERBS) else found

    def _get_response_bodies(self, direction: Any = "response") -> Any:
        bodies = super()._get_response_bodies(direction=direction)
        for status, answer in self._errors().items():
            bodies.setdefault(status, self._get_response_for_code(answer, status, direction=direction))
        for status in ("429", "503"):
            bodies[status]["headers"] = RETRY_AFTER
        if self._may_be_repeated():
            self._tell_of_keys(bodies)
        return dict(sorted(bodies.items()))

    def _may_be_repeated(self) -> bool:
        return any(parameter["name"] == "Idempotency-Key" for parameter in self._get_parameters())

    def _tell_of_keys(self, bodies: dict[str, Any]) -> None:
        conflict = bodies["409"]
        conflict["description"] = f"{conflict['description']} {REPEATED_WORDS}".strip()
        conflict["headers"] = RETRY_AFTER
        for status in bodies:
            if status.startswith("2"):
                bodies[status]["headers"] = REPLAYED

    def _errors(self) -> dict[str, OpenApiResponse]:
        found = {"400": BAD_PARAMETER, "401": UNAUTHORIZED, "403": FORBIDDEN, "429": THROTTLED, "503": BUSY}
        parameters = self._get_parameters()
        writes = self.method in ("POST", "PUT", "PATCH")
        if writes:
            found["400"] = BAD_REQUEST
        if self._may_be_repeated():
            found["409"] = REPEATED
        if any(parameter["in"] == "path" for parameter in parameters):
            found["404"] = NOT_FOUND
        if writes:
            found |= {"413": TOO_LARGE, "415": UNSUPPORTED}
        return found
