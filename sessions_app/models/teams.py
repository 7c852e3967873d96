"""Who owns sessions, who may see them, and with which key."""

from __future__ import annotations

import hashlib
import uuid
from datetime import datetime
from typing import Self

from django.conf import settings
from django.db import models
from django.db.models import Q

KEY_PREFIX = "cmp_"


def key_digest(*, key: str) -> str:
    """What is stored of a key. A key has 256 random bits, so one SHA-256 is enough: there is nothing to guess."""
    return hashlib.sha256(key.encode()).hexdigest()


class Team(models.Model):
    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    slug = models.SlugField(unique=True)
    name = models.CharField(max_length=200)
    policy_overrides = models.JSONField(default=dict, blank=True, help_text="figures of the policy table, by name")
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    class Role(models.TextChoices):
        OWNER = "owner"
        MEMBER = "member"
        VIEWER = "viewer"

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role, default=Role.MEMBER)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "user"], name="membership_once")]

    def __str__(self) -> str:
        return f"{self.user} in {self.team} ({self.role})"


class KeyState(models.TextChoices):
    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


class ApiKeyQuerySet(models.QuerySet["ApiKey"]):
    def in_state(self, state: str, *, now: datetime) -> Self:
        """Those that `ApiKey.state` says this of."""
        if state == KeyState.REVOKED:
            return self.filter(revoked_at__isnull=False)
        expired = Q(expires_at__lte=now)
        return self.filter(expired if state == KeyState.EXPIRED else ~expired, revoked_at__isnull=True)


class ApiKey(models.Model):
    class Scope(models.TextChoices):
        READ = "read"
        WRITE = "write"

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=100, blank=True)
    # The first characters, so that a person can tell keys apart; the key itself is not stored.
    hint = models.CharField(max_length=16)
    digest = models.CharField(max_length=64, unique=True)
    scope = models.CharField(max_length=5, choices=Scope, default=Scope.WRITE)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True, help_text="from then on it is refused; empty: never")
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = ApiKeyQuerySet.as_manager()

    class Meta:
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.hint}… ({self.name or self.scope})"

    def state(self, *, now: datetime) -> KeyState:
        if self.revoked_at is not None:
            return KeyState.REVOKED
        return KeyState.EXPIRED if self.expires_at is not None and self.expires_at <= now else KeyState.ACTIVE
