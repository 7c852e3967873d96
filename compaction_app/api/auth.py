"""Who is asking: an API key in the Authorization header, or somebody who is logged in and uses the page `/api/docs/`.

A key belongs to one team and sees only that team. A member of several teams says by a header which one is meant.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, CSRFCheck, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from compaction_app import actions
from compaction_app.api.exceptions import Refused
from compaction_app.selectors.members import memberships_of
from sessions_app.models import ApiKey, Membership, Team

if TYPE_CHECKING:  # REST framework loads this module while it loads its views
    from rest_framework.views import APIView

SCHEME = "Bearer"
CSRF_HEADER = "HTTP_X_CSRFTOKEN"
TEAM_HEADER = "X-Team"
WRITERS = (Membership.Role.OWNER, Membership.Role.MEMBER)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a request comes from, as `request.auth`: a client by its key, or a user by a membership."""

    team: Team
    may_write: bool
    key: ApiKey | None = None
    user: Any = None

    @property
    def decider(self) -> actions.Decider:
        return actions.Decider(user=self.user, key=self.key)

    @property
    def reference(self) -> str:
        """The same for each request of one key, or of one user within a team; another one for everybody else."""
        return f"key:{self.key.uuid}" if self.key else f"user:{self.user.pk}:{self.team.pk}"


class ApiKeyAuthentication(BaseAuthentication):
    """There is no user behind a key."""

    def authenticate(self, request: Request) -> tuple[None, Caller] | None:
        scheme, _, key = get_authorization_header(request).decode("latin-1").strip().partition(" ")
        if not scheme:
            return None
        if scheme.lower() != SCHEME.lower() or not key.strip():
            raise AuthenticationFailed(f'The header must read "Authorization: {SCHEME} KEY".')
        row = actions.authenticate(key=key.strip(), now=timezone.now())
        if row is None:
            # One answer for all three: what a key was is nobody's who does not hold one.
            raise AuthenticationFailed("This API key is unknown, revoked or expired.")
        return None, Caller(team=row.team, may_write=row.scope == ApiKey.Scope.WRITE, key=row)

    def authenticate_header(self, request: Request) -> str:
        """Sent as WWW-Authenticate; because there is one, a missing key is a 401 and not a 403."""
        return SCHEME


class BrowserAuthentication(BaseAuthentication):
    """A session's cookie, which a browser sends by itself, together with a token that only a page of ours can send."""

    def authenticate(self, request: Request) -> tuple[Any, Caller] | None:
        http = request._request
        if CSRF_HEADER not in http.META or not _comes_from_our_page(http):
            return None
        user = http.user
        if not user.is_authenticated or not user.is_active:
            return None
        found = _membership(user=user, slug=http.headers.get(TEAM_HEADER, "").strip())
        return user, Caller(team=found.team, may_write=found.role in WRITERS, user=user)


def _comes_from_our_page(http: HttpRequest) -> bool:
    """Django's own check, which it makes of calls that write, for every method: of one that reads, too, the answer is
    for nobody but our page. Asked as for PUT, it looks at the header alone and leaves the body unread."""
    asked = copy.copy(http)
    asked.method = "PUT"
    check = CSRFCheck(_no_view)
    check.process_request(asked)
    return check.process_view(asked, _no_view, (), {}) is None


def _no_view(request: HttpRequest) -> Any:
    raise AssertionError("the check calls no view")


def _membership(*, user: Any, slug: str) -> Membership:
    """What the user may do, and where. Raises PermissionDenied and Refused."""
    found = memberships_of(user=user, slug=slug)
    if not found:
        told = f"You are a member of no team{' of this name' if slug else ''}, so there is nothing to show here. "
        raise PermissionDenied(
            told + "An owner of the team, or an administrator, adds members in the admin, on the page of the team; "
            "administrators, too, need a membership here."
        )
    if len(found) > 1:
        raise Refused(
            f"You are a member of several teams: name one by its slug in the header {TEAM_HEADER}.",
            code="required",
            attr=TEAM_HEADER,
        )
    return found[0]


class HasScope(BasePermission):
    """Reading is for everybody who may ask at all, everything else for keys with write scope, owners and members."""

    message = "This API key may only read."

    def has_permission(self, request: Request, view: APIView) -> bool:
        caller = request.auth
        if not isinstance(caller, Caller):
            return False
        if caller.user is not None:
            self.message = "A viewer may only read."
        return request.method in SAFE_METHODS or caller.may_write


class ApiKeyScheme(OpenApiAuthenticationExtension):
    target_class = "compaction_app.api.auth.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "An API key of a team: `python manage.py create_api_key TEAM` prints one.",
        }


class BrowserScheme(OpenApiAuthenticationExtension):
    target_class = "compaction_app.api.auth.BrowserAuthentication"
    name = ["browser", "team"]

    def get_security_requirement(self, auto_schema: Any) -> Any:
        return [{"browser": []}, {"browser": [], "team": []}]

    def get_security_definition(self, auto_schema: Any) -> list[dict[str, str]]:
        return [
            {
                "type": "apiKey",
                "in": "cookie",
                "name": "sessionid",
                "description": "On this page alone: whoever is logged in to the admin and is a member of a team tries "
                "calls out without a key; viewers may only read. The browser sends the cookie and the page a token "
                "(X-CSRFToken), without which the cookie counts for nothing, for calls that read too.",
            },
            {
                "type": "apiKey",
                "in": "header",
                "name": TEAM_HEADER,
                "description": "The slug of the team that is meant, for members of several.",
            },
        ]
