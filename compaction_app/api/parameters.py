"""Query parameters: what an operation does not know is refused by name, never ignored.

What it knows is what its description tells: the OpenAPI document and the answer can't drift apart.
"""

from __future__ import annotations

import functools
from typing import Any

from drf_spectacular.plumbing import is_list_serializer
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request

MOST_TOLD = 20  # of the parameters that are refused at once


def refuse_unknown(*, view: Any, request: Request) -> None:
    """Raises ValidationError with `unknown_parameter` for each name that the view's operation does not know."""
    given = set(request.query_params)
    known = known_parameters(view, "get" if request.method == "HEAD" else str(request.method).lower())
    if known is None or given <= known:
        return
    there_are = f"It takes {', '.join(f'`{name}`' for name in sorted(known))}." if known else "It takes none."
    refusal = ErrorDetail(f"There is no such query parameter. {there_are}", code="unknown_parameter")
    raise ValidationError({name[:100]: [refusal] for name in sorted(given - known)[:MOST_TOLD]})


@functools.cache
def known_parameters(view: Any, method: str) -> frozenset[str] | None:
    """What the operation is described with, and, where it lists, its filters and those of pages; None where the view
    has no such method."""
    if method not in view.http_method_names or not hasattr(view, method):
        return None
    handler = getattr(view, method)
    described = handler.kwargs["schema"]()  # left there by extend_schema, without which no operation is
    described.view = view(request=None, kwargs={})
    known = {
        one.name
        for one in described.get_override_parameters()
        if isinstance(one, OpenApiParameter) and one.location == OpenApiParameter.QUERY
    }
    if method == "get" and _lists(described.get_response_serializers()):
        pages, filters = view.pagination_class, getattr(view, "filterset_class", None)
        known |= {pages.cursor_query_param, pages.page_size_query_param}
        known |= set(filters.base_filters) if filters else set()
    return frozenset(known)


def _lists(answers: Any) -> bool:
    return isinstance(answers, serializers.BaseSerializer) and bool(is_list_serializer(answers))
