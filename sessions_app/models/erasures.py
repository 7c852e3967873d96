"""Erasures: the one exception to a history that is only added to. What was erased is gone; that it was, stays."""

from __future__ import annotations

from django.db import models

from sessions_app.models.teams import Team


class Erasure(models.Model):
    """One session that somebody had erased. Nothing of its content is here, nor its title or its client's own id."""

    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="erasures")
    session_uuid = models.UUIDField()
    # Who asked, in words: a user's name, or an API key as its team knows it. It outlives both.
    erased_by = models.CharField(max_length=200, blank=True)
    messages = models.PositiveIntegerField(help_text="how many there were")
    boundaries = models.PositiveIntegerField(help_text="how many there were")
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["team", "-id"], name="erasure_newest_first")]

    def __str__(self) -> str:
        return f"session {self.session_uuid} erased at {self.at:%Y-%m-%d %H:%M:%S}"
