"""Errors: one shape for all of them, `{"type", "errors": [{"code", "detail", "attr"}]}`, made in one place.

Views raise; the handler here translates. A few errors carry one more top-level field for programs (`run`, `uuids`).
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views import defaults
from drf_spectacular.utils import extend_schema
from drf_standardized_errors.formatter import ExceptionFormatter
from drf_standardized_errors.handler import ExceptionHandler
from drf_standardized_errors.types import ErrorResponse, ExceptionHandlerContext
from rest_framework.exceptions import APIException, NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.views import APIView

from compaction_app.api.exceptions import ApiError, translate

PREFIX = "/api/"
NON_FIELD = api_settings.NON_FIELD_ERRORS_KEY
LONGEST_DETAIL = 1_000  # characters; some of REST framework's own say back what was given, however long it is


class Formatter(ExceptionFormatter):
    def format_error_response(self, error_response: ErrorResponse) -> dict[str, Any]:
        body: dict[str, Any] = super().format_error_response(error_response)
        ours = self.exc if isinstance(self.exc, ApiError) else None
        for item in body["errors"]:
            item["attr"] = _attr(item["attr"]) or (ours.attr if ours else None)
            item["detail"] = _bounded(str(item["detail"]))
        return {**body, **(ours.extra if ours else {})}


def _attr(attr: str | int | None) -> str | None:
    """The field's path. What is about a whole entry of a list is about its index, what is about the body about none."""
    if attr is None:
        return None
    parts = [part for part in str(attr).split(".") if part != NON_FIELD]
    return ".".join(parts) or None


def _bounded(detail: str) -> str:
    """Cut in the middle: the beginning and the end say what is wrong."""
    half = LONGEST_DETAIL // 2
    return detail if len(detail) <= LONGEST_DETAIL else f"{detail[:half]}…{detail[1 - half :]}"


class Handler(ExceptionHandler):
    def convert_known_exceptions(self, exc: Exception) -> Exception:
        return super().convert_known_exceptions(translate(exc))

    def should_not_handle(self, exc: Exception) -> bool:
        """Never: the shape is the same with DEBUG; the traceback is in the log."""
        return False

    def format_exception(self, exc: APIException) -> dict[str, Any]:
        return Formatter(exc, self.context, self.exc).run()


def exception_handler(exc: Exception, context: ExceptionHandlerContext) -> Response | None:
    return Handler(exc, context).run()


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's own 400, for instance for a host name that is not served; in the one shape under /api/."""
    if not request.path.startswith(PREFIX):
        return defaults.bad_request(request, exception)
    return _plain(status=400, kind="client_error", code="bad_request", detail="This request can not be served.")


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's own 500, for what goes wrong outside a view."""
    if not request.path.startswith(PREFIX):
        return defaults.server_error(request)
    return _plain(status=500, kind="server_error", code="error", detail="Server Error (500)")


def _plain(*, status: int, kind: str, code: str, detail: str) -> JsonResponse:
    body = {"type": kind, "errors": [{"code": code, "detail": detail, "attr": None}]}
    return JsonResponse(body, status=status)


@extend_schema(exclude=True)
class UnknownUrl(APIView):
    """Whatever under /api/ no route takes."""

    authentication_classes = ()
    permission_classes = ()

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self.http_method_names = [request.method.lower()]  # a 404 for every method, never a 405
        setattr(self, request.method.lower(), self.refuse)
        return super().dispatch(request, *args, **kwargs)

    def refuse(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        slash = "" if request.path.endswith("/") else " Addresses end in a slash."
        raise NotFound(f"There is nothing at {request.path}.{slash}")
