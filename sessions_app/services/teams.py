"""Teams and their API keys."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.utils.text import slugify

from sessions_app.models import ApiKey, Team
from sessions_app.models.teams import KEY_PREFIX, key_digest

# A key's last use is noted at most this often, so that reading with a key does not write each time.
LAST_USED_EVERY = timedelta(minutes=1)


class BadSlug(ValueError):
    """A team name that is no slug; the message says what is."""


def get_or_create_team(*, slug: str) -> tuple[Team, bool]:
    """The team with this slug, made if it is not there. Raises BadSlug."""
    if not slug or slugify(slug) != slug or len(slug) > 50:
        raise BadSlug(f"{slug!r} is not a team's slug: small letters, digits and hyphens, at most 50")
    return Team.objects.get_or_create(slug=slug, defaults={"name": slug.replace("-", " ").title()})


def create_api_key(*, team: Team, name: str = "", scope: str = ApiKey.Scope.WRITE) -> tuple[ApiKey, str]:
    """Make a key. The key itself is given back once and stored nowhere."""
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    return add_api_key(team=team, key=key, name=name, scope=scope), key


def add_api_key(*, team: Team, key: str, name: str = "", scope: str = ApiKey.Scope.WRITE) -> ApiKey:
    """Store a key that is known already (the demo's), once."""
    row, _ = ApiKey.objects.get_or_create(
        digest=key_digest(key=key), defaults={"team": team, "name": name, "scope": scope, "hint": key[:10]}
    )
    return row


def revoke_api_keys(*, keys: QuerySet[ApiKey], now: datetime) -> int:
    """End the keys that are not revoked yet; gives back how many."""
    return keys.filter(revoked_at__isnull=True).update(revoked_at=now)


def key_owner(*, key: str, now: datetime) -> ApiKey | None:
    """The key's row with its team, None when it is unknown or revoked."""
    row = ApiKey.objects.select_related("team").filter(digest=key_digest(key=key), revoked_at__isnull=True).first()
    if row is not None and (row.last_used_at is None or row.last_used_at < now - LAST_USED_EVERY):
        ApiKey.objects.filter(pk=row.pk).update(last_used_at=now)
    return row
