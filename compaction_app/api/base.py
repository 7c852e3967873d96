"""What the views share. A view parses, calls one action or selector, and shapes the answer."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet
from rest_framework.exceptions import NotFound
from rest_framework.generics import GenericAPIView
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer, Serializer

from compaction_app.api.auth import Caller
from compaction_app.api.exceptions import BodyTooLarge
from compaction_app.api.pagination import NewestFirst
from compaction_app.api.parameters import refuse_unknown
from sessions_app.models import Session, Team


class ApiView(GenericAPIView[Any]):
    http_method_names = ["get", "head", "post", "put", "patch", "delete"]  # OPTIONS: the OpenAPI document tells more
    pagination_class: type[CursorPagination] = NewestFirst

    @property
    def team(self) -> Team:
        """The team of the caller; every queryset starts from it."""
        return self.caller.team

    @property
    def caller(self) -> Caller:
        """Who asks; where nobody is known, the request has not come this far."""
        caller: Caller = self.request.auth  # type: ignore[assignment]
        return caller

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        refuse_unknown(view=type(self), request=request)
        self.take_body(request)

    def take_body(self, request: Request) -> None:
        """Before the body is parsed, once it is known who asks."""
        _take_chunked_body(request)

    def session(self, session_id: UUID) -> Session:
        """The team's session with its team loaded; 404 otherwise."""
        return self.one(Session.objects.for_team(self.team).select_related("team"), session_id, name="session")

    def one(self, queryset: QuerySet[Any], uuid: UUID, *, name: str) -> Any:
        row = queryset.filter(uuid=uuid).first()
        if row is None:
            raise NotFound(f"There is no {name} {uuid}.")
        return row

    def body(self, serializer: type[Serializer[Any]], **more: Any) -> Any:
        """The request's body as the serializer validates it; 400 otherwise."""
        checked = serializer(data=self.request.data, context={"team": self.team}, **more)
        checked.is_valid(raise_exception=True)
        return checked.validated_data

    def page(self, queryset: QuerySet[Any], serializer: type[BaseSerializer[Any]]) -> Response:
        rows = self.paginate_queryset(self.filter_queryset(queryset))
        return self.get_paginated_response(serializer(rows, many=True).data)


def _take_chunked_body(request: Request) -> None:
    """A body sent in chunks names no length, and REST framework takes no length for no body: read and measure it."""
    meta = request.META
    if meta.get("CONTENT_LENGTH") or "chunked" not in meta.get("HTTP_TRANSFER_ENCODING", "").lower():
        return
    http = request._request
    limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    body = http.read(limit + 1)
    if len(body) > limit:
        raise BodyTooLarge(f"The request's body is larger than {limit:,} bytes.")
    http._body = body
    meta["CONTENT_LENGTH"] = str(len(body))
