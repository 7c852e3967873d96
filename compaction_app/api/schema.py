"""The OpenAPI document: each operation lists the errors that it can answer with, in the one shape."""

from __future__ import annotations

from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiExample, OpenApiResponse
from rest_framework import serializers


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
    "`unknown_field` for a name that does not exist), or the body is no JSON (`parse_error`).",
    code="unknown_field",
    detail="There is no such field.",
    attr="titel",
)
BAD_PARAMETER = error(
    "A query parameter is wrong; `attr` names it.",
    code="invalid",
    detail="A whole number from 1 to 500 is needed.",
    attr="page_size",
)
UNAUTHORIZED = error(
    "No API key was sent (`not_authenticated`), or it is unknown or revoked (`authentication_failed`).",
    code="not_authenticated",
    detail="Authentication credentials were not provided.",
)
FORBIDDEN = error(
    "The key has read scope and this is no reading.", code="permission_denied", detail="This API key may only read."
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


class ApiSchema(AutoSchema):
    def _get_response_bodies(self, direction: Any = "response") -> Any:
        bodies = super()._get_response_bodies(direction=direction)
        for status, answer in self._errors().items():
            bodies.setdefault(status, self._get_response_for_code(answer, status, direction=direction))
        return dict(sorted(bodies.items()))

    def _errors(self) -> dict[str, OpenApiResponse]:
        found = {"401": UNAUTHORIZED}
        parameters = self._get_parameters()
        writes = self.method in ("POST", "PUT", "PATCH")
        if writes:
            found["400"] = BAD_REQUEST
        elif any(parameter["in"] == "query" for parameter in parameters):
            found["400"] = BAD_PARAMETER
        if any(parameter["in"] == "path" for parameter in parameters):
            found["404"] = NOT_FOUND
        if writes:
            found |= {"413": TOO_LARGE, "415": UNSUPPORTED}
        if self.method != "GET":
            found["403"] = FORBIDDEN
        return found
