"""Who is asking: an API key in the Authorization header. A key belongs to one team and sees only that team."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from compaction_app import actions
from sessions_app.models import ApiKey

if TYPE_CHECKING:  # REST framework loads this module while it loads its views
    from rest_framework.views import APIView

SCHEME = "Bearer"


class ApiKeyAuthentication(BaseAuthentication):
    """`request.auth` becomes the ApiKey's row with its team; there is no user behind a key."""

    def authenticate(self, request: Request) -> tuple[None, ApiKey] | None:
        scheme, _, key = get_authorization_header(request).decode("latin-1").strip().partition(" ")
        if not scheme:
            return None
        if scheme.lower() != SCHEME.lower() or not key.strip():
            raise AuthenticationFailed(f'The header must read "Authorization: {SCHEME} KEY".')
        row = actions.authenticate(key=key.strip(), now=timezone.now())
        if row is None:
            raise AuthenticationFailed("This API key is unknown or revoked.")
        return None, row

    def authenticate_header(self, request: Request) -> str:
        """Sent as WWW-Authenticate; because there is one, a missing key is a 401 and not a 403."""
        return SCHEME


class HasScope(BasePermission):
    """Reading takes any key, everything else one with write scope."""

    message = "This API key may only read."

    def has_permission(self, request: Request, view: APIView) -> bool:
        key = request.auth
        if not isinstance(key, ApiKey):
            return False
        return request.method in SAFE_METHODS or key.scope == ApiKey.Scope.WRITE


class ApiKeyScheme(OpenApiAuthenticationExtension):
    target_class = "compaction_app.api.auth.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "An API key of a team: `python manage.py create_api_key TEAM` prints one.",
        }
