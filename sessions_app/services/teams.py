"""Teams and their API keys."""

from __future__ import annotations

import secrets
from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID

from django.db.models import QuerySet
from django.utils.text import slugify

from sessions_app.models import ApiKey, Team
from sessions_app.models.teams import KEY_PREFIX, KeyState, key_digest

# A key's last use is noted at most this often, so that reading with a key does not write each time.
LAST_USED_EVERY = timedelta(minutes=1)
HINT_CHARS = 10
LONGEST_DAYS = 36_500  # a hundred years


class BadSlug(ValueError):
    """A team name that is no slug; the message says what is."""


def get_or_create_team(*, slug: str) -> tuple[Team, bool]:
    """The team with this slug, made if it is not there. Raises BadSlug."""
    if not slug or slugify(slug) != slug or len(slug) > 50:
        raise BadSlug(f"{slug!r} is not a team's slug: small letters, digits and hyphens, at most 50")
    return Team.objects.get_or_create(slug=slug, defaults={"name": slug.replace("-", " ").title()})


class BadExpiry(ValueError):
    """No moment at which a key could end; the message says what is."""


def read_expiry(*, text: str, now: datetime) -> datetime:
    """When a key ends that holds for so many days ("30"), or until a day begins in UTC ("2027-01-31"). Raises
    BadExpiry."""
    told = f"{text!r} is neither a number of days from 1 to {LONGEST_DAYS:,} nor a day to come, such as 2027-01-31"
    if text.isascii() and text.isdecimal():
        if not 1 <= int(text[:9]) <= LONGEST_DAYS:
            raise BadExpiry(told)
        return now + timedelta(days=int(text))
    try:
        ends = datetime.combine(date.fromisoformat(text), time.min, tzinfo=UTC)
    except ValueError:
        raise BadExpiry(told) from None
    if ends <= now:
        raise BadExpiry(told)
    return ends


def create_api_key(
    *, team: Team, name: str = "", scope: str = ApiKey.Scope.WRITE, expires_at: datetime | None = None
) -> tuple[ApiKey, str]:
    """Make a key. The key itself is given back once and stored nowhere. `expires_at`: from then on it is refused."""
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    return add_api_key(team=team, key=key, name=name, scope=scope, expires_at=expires_at), key


def add_api_key(
    *, team: Team, key: str, name: str = "", scope: str = ApiKey.Scope.WRITE, expires_at: datetime | None = None
) -> ApiKey:
    """Store a key that is known already (the demo's), once."""
    row, _ = ApiKey.objects.get_or_create(
        digest=key_digest(key=key),
        defaults={"team": team, "name": name, "scope": scope, "hint": key[:HINT_CHARS], "expires_at": expires_at},
    )
    return row


def find_api_keys(*, named: str) -> list[ApiKey]:
    """The keys, with their teams, that somebody may mean: by uuid, by the whole key, or by what a list shows of it or
    the first part of that. May be several, or none."""
    named, rows = named.strip().removesuffix("…"), ApiKey.objects.select_related("team").order_by("pk")
    try:
        return list(rows.filter(uuid=UUID(named)))
    except ValueError:
        pass
    if not named or "\x00" in named:  # PostgreSQL refuses the question
        return []
    if len(named) > HINT_CHARS:
        return list(rows.filter(digest=key_digest(key=named)))
    # SQLite's LIKE takes capitals for small letters.
    return [row for row in rows.filter(hint__startswith=named) if row.hint.startswith(named)]


def revoke_api_keys(*, keys: QuerySet[ApiKey], now: datetime) -> int:
    """End the keys that are not revoked yet; gives back how many."""
    return keys.filter(revoked_at__isnull=True).update(revoked_at=now)


def key_owner(*, key: str, now: datetime) -> ApiKey | None:
    """The key's row with its team, None when it is unknown, revoked or expired."""
    row = ApiKey.objects.select_related("team").filter(digest=key_digest(key=key)).first()
    if row is None or row.state(now=now) != KeyState.ACTIVE:
        return None
    if row.last_used_at is None or row.last_used_at < now - LAST_USED_EVERY:
        ApiKey.objects.filter(pk=row.pk).update(last_used_at=now)
    return row
