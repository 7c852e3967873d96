"""Somebody who is logged in, with Django's check of the token switched on, as it is outside of tests."""

from __future__ import annotations

from itertools import count
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model

from sessions_app.models import Membership, Team
from tests.cast import Api

TOKEN = "t" * 32  # as Django keeps one in its cookie
_numbers = count(1)


def browser(user: Any, *, token: str = TOKEN) -> Api:
    """The user's browser, which sends `token` with each call ("": none)."""
    client = Api()
    client.handler.enforce_csrf_checks = True
    client.force_login(user)
    client.cookies[settings.CSRF_COOKIE_NAME] = TOKEN
    if token:
        client.defaults["HTTP_X_CSRFTOKEN"] = token
    return client


def browser_of(*teams: Team, role: str = "member", token: str = TOKEN) -> Api:
    """The browser of a new user with this role in each of the teams."""
    user = get_user_model().objects.create(username=f"user-{next(_numbers)}")
    for team in teams:
        Membership.objects.create(team=team, user=user, role=role)
    return browser(user, token=token)
