"""Who may see which team."""

from __future__ import annotations

from typing import Any

from sessions_app.models import Membership


def memberships_of(*, user: Any, slug: str = "") -> list[Membership]:
    """The user's memberships with their teams, at most two; with `slug` that of this team. One query."""
    found = Membership.objects.filter(user=user).select_related("team").order_by("pk")
    if slug:
        found = found.filter(team__slug=slug)
    return list(found[:2])
