"""A team's hooks as it sets them up: what may stand in one, its secret, and its end."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import transaction

from compaction_app.models import Hook, HookEvent
from compaction_app.services.hook_url import url_problem
from sessions_app import policy
from sessions_app.figures import PolicyError
from sessions_app.models import Team

SECRET_PREFIX = "whsec_"  # noqa: S105 - Standard Webhooks: the rest is base64
SECRET_BYTES = 32  # Standard Webhooks: 24 to 64
# A run asks its pre_compact hooks one after the other: their number bounds how long.
MOST_HOOKS = 20
# What of a hook may change. Deliveries that wait tell its event, so that stays.
CHANGEABLE = ("url", "description", "enabled", "can_block", "required", "timeout")


class BadHook(ValueError):
    """It can't be as it was asked for. `problems`: field to reason; "" for the hook as a whole."""

    def __init__(self, *, problems: Mapping[str, str]) -> None:
        self.problems = dict(problems)
        super().__init__("; ".join(self.problems.values()))


def hook_problems(*, event: str, values: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with these values of a hook for `event`: field to reason. What is not given is not judged."""
    found: dict[str, str] = {}
    allow_private = settings.HOOKS_ALLOW_PRIVATE_ADDRESSES
    if "url" in values and (problem := url_problem(url=values["url"], allow_private=allow_private)):
        found["url"] = problem
    if event != HookEvent.PRE_COMPACT:
        for name in ("can_block", "required"):
            if values.get(name):
                found[name] = "Only a pre_compact hook can hold a compaction back."
    if values.get("timeout") is not None:
        try:
            policy.check(name="hook_timeout_seconds", value=values["timeout"])
        except PolicyError as error:
            found["timeout"] = str(error)
    return found


def has_room(*, team: Team) -> bool:
    """Whether the team may have one more."""
    return Hook.objects.for_team(team).count() < MOST_HOOKS


def create_hook(*, team: Team, event: str, values: Mapping[str, Any]) -> Hook:
    """A new hook with a secret of its own, which is to be shown once. Raises BadHook."""
    _check(event=event, values=values)
    with transaction.atomic():
        Team.objects.select_for_update().get(pk=team.pk)  # two at once must not both be the last one
        if not has_room(team=team):
            raise BadHook(problems={"": f"A team has at most {MOST_HOOKS} hooks."})
        return Hook.objects.create(team=team, event=event, secret=make_secret(), **_known(values))


def update_hook(*, hook: Hook, values: Mapping[str, Any]) -> Hook:
    """Change what is given. Raises BadHook."""
    _check(event=hook.event, values=values)
    for name, value in _known(values).items():
        setattr(hook, name, value)
    hook.save(update_fields=[*_known(values), "updated_at"])
    return hook


def rotate_secret(*, hook: Hook) -> Hook:
    """Give it another secret, which is to be shown once. The old one signs nothing from now on."""
    hook.secret = make_secret()
    hook.save(update_fields=["secret", "updated_at"])
    return hook


def delete_hook(*, hook: Hook) -> None:
    """Delete it with what was sent to it and what still waits."""
    hook.delete()


def make_secret() -> str:
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def _check(*, event: str, values: Mapping[str, Any]) -> None:
    if problems := hook_problems(event=event, values=values):
        raise BadHook(problems=problems)


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in CHANGEABLE if name in values}
