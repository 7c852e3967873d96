"""Keys and hooks of a team."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from compaction_app.models import Hook
from compaction_app.services import hook_setup
from sessions_app.models import ApiKey, Team
from sessions_app.services import teams


def authenticate(*, key: str, now: datetime) -> Any:
    """The API key's row with its team; None when unknown, revoked or expired."""
    return teams.key_owner(key=key, now=now)


def create_api_key(
    *, team: Team, name: str = "", scope: str = ApiKey.Scope.WRITE, expires_at: datetime | None = None
) -> tuple[ApiKey, str]:
    """Make a key. The key itself is given back once and stored nowhere. `expires_at`: from then on it is refused."""
    return teams.create_api_key(team=team, name=name, scope=scope, expires_at=expires_at)


def revoke_api_keys(*, keys: QuerySet[ApiKey], now: datetime) -> int:
    """End the keys; gives back how many were not revoked yet."""
    return teams.revoke_api_keys(keys=keys, now=now)


def hook_problems(*, event: str, values: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with these values of a hook for `event`: field to reason. What is not given is not judged."""
    return hook_setup.hook_problems(event=event, values=values)


def has_room_for_hook(*, team: Team) -> bool:
    return hook_setup.has_room(team=team)


def create_hook(*, team: Team, event: str, values: Mapping[str, Any]) -> Hook:
    """A new hook. Its secret, which signs its requests, is to be shown once. Raises BadHook."""
    return hook_setup.create_hook(team=team, event=event, values=values)


def update_hook(*, hook: Hook, values: Mapping[str, Any]) -> Hook:
    """Change what is given. Raises BadHook."""
    return hook_setup.update_hook(hook=hook, values=values)


def rotate_hook_secret(*, hook: Hook) -> Hook:
    """Give it another secret, which is to be shown once."""
    return hook_setup.rotate_secret(hook=hook)


def delete_hook(*, hook: Hook) -> None:
    """Delete it with its log, and with what still waits for it."""
    hook_setup.delete_hook(hook=hook)
