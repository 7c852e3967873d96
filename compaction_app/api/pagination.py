"""Lists that grow are paged by cursor: the cost of a page does not depend on how far in it is."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response

LARGEST_ID = 2**63 - 1


class NewestFirst(CursorPagination):
    """Ordered by a unique whole number, so a cursor is one position."""

    ordering = "-id"
    page_size = 50
    max_page_size = 500
    page_size_query_param = "page_size"
    page_size_query_description = "How many results a page has: 1 to 500 (a larger number counts as 500); default 50."
    cursor_query_description = "From `next` or `previous` of another page."
    template = None

    def get_page_size(self, request: Request) -> int:
        asked = request.query_params.get("page_size")
        if asked is None:
            return self.page_size
        if not asked.isascii() or not asked.isdigit() or not asked.strip("0"):
            raise ValidationError({"page_size": "A whole number from 1 to 500 is needed."})
        return self.max_page_size if len(asked) > 6 else min(int(asked), self.max_page_size)

    def decode_cursor(self, request: Request) -> Cursor | None:
        try:
            cursor = super().decode_cursor(request)
            if cursor is not None and cursor.position is not None and not 0 <= int(cursor.position) <= LARGEST_ID:
                raise ValueError
        except (NotFound, ValueError):
            raise ValidationError({"cursor": "This is not a cursor that `next` or `previous` gave."}) from None
        return cursor

    def get_paginated_response(self, data: Any) -> Response:
        links = {"next": self.get_next_link(), "previous": self.get_previous_link()}
        return Response(OrderedDict(results=data, **links))

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = super().get_schema_operation_parameters(view)
        for parameter in found:
            if parameter["name"] == self.page_size_query_param:
                parameter["schema"] |= {"minimum": 1, "default": self.page_size}
        return found

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        link = {"type": "string", "format": "uri", "nullable": True}
        return {
            "type": "object",
            "required": ["results", "next", "previous"],
            "properties": {
                "results": {**schema, "description": "This page."},
                "next": {**link, "description": "Address of the next page; null on the last."},
                "previous": {**link, "description": "Address of the page before; null on the first."},
            },
        }


class OldestFirst(NewestFirst):
    """Messages, by position."""

    ordering = "position"
