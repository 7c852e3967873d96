"""/api/docs/: the readable page, where calls are tried out: with a key, or as whoever is logged in."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularSwaggerView
from rest_framework.request import Request
from rest_framework.response import Response

# As JavaScript: the page's own functions take the place of the library's, which sends no token with calls that read.
PAGE_SETTINGS = "{deepLinking: true, requestInterceptor: asWhoIsLoggedIn}"


class DocsView(SpectacularSwaggerView):
    template_name = "compaction_app/api/docs.html"
    template_name_js = "compaction_app/api/docs.js"

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        answer = super().get(request, *args, **kwargs)
        # The page needs no login, so for REST framework nobody is there.
        user = get_user(request._request)
        answer.data["username"] = user.get_username() if user.is_authenticated else ""
        answer.data["settings"] = PAGE_SETTINGS
        return answer
