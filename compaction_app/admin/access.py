"""Who sees which rows, and who may act. Superusers: everything. Other staff: the teams that they are members of."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from sessions_app.models import Membership, Team

ACTING_ROLES = (Membership.Role.OWNER, Membership.Role.MEMBER)


def visible_teams(*, user: Any) -> QuerySet[Team]:
    teams = Team.objects.all()
    return teams if user.is_superuser else teams.filter(memberships__user=user)


def owned_teams(*, user: Any) -> QuerySet[Team]:
    """The teams whose keys the user hands out."""
    if user.is_superuser:
        return Team.objects.all()
    return Team.objects.filter(memberships__user=user, memberships__role=Membership.Role.OWNER)


def scoped(*, queryset: QuerySet[Any], user: Any, team_path: str) -> QuerySet[Any]:
    """The rows of the user's teams; `team_path` leads from the row to its team."""
    if user.is_superuser:
        return queryset
    return queryset.filter(**{f"{team_path}__in": visible_teams(user=user)})


def may_compact(*, user: Any, team: Team) -> bool:
    """Owners and members; a viewer only looks."""
    if user.is_superuser:
        return True
    return Membership.objects.filter(team=team, user=user, role__in=ACTING_ROLES).exists()
