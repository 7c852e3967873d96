"""What can be searched: plain text beside the JSON, a row for each message and each summary."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import Q

from sessions_app.models.boundaries import CompactBoundary
from sessions_app.models.fields import StorableTextField
from sessions_app.models.messages import Message
from sessions_app.models.sessions import Session
from sessions_app.models.teams import Team
from sessions_app.transcript.search_text import fold_query


class SearchTextQuerySet(models.QuerySet["SearchText"]):
    def for_team(self, team: Team) -> Self:
        return self.filter(team=team)

    def holding(self, text: str) -> Self:
        """Those that hold the text, whatever its case."""
        return self.filter(text__contains=fold_query(text=text))


class SearchText(models.Model):
    """The text of one message or one summary, as `transcript/search_text.py` folds it. Apart from the message, so that
    no read of the history pays for it; made anew from the originals at any time. On PostgreSQL migration 0014 makes an
    index of team and text, where its extensions may be made."""

    # The session's, so that a search looks at no other team's texts.
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="search_texts", db_index=False)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="search_texts")
    message = models.OneToOneField(Message, on_delete=models.PROTECT, null=True, blank=True, related_name="search_text")
    boundary = models.OneToOneField(
        CompactBoundary, on_delete=models.PROTECT, null=True, blank=True, related_name="search_text"
    )
    text = StorableTextField()

    objects = SearchTextQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["team", "-id"], name="search_text_newest_first")]
        constraints = [
            models.CheckConstraint(
                condition=Q(message__isnull=False, boundary__isnull=True)
                | Q(message__isnull=True, boundary__isnull=False),
                name="search_text_of_one_thing",
            )
        ]

    def __str__(self) -> str:
        return f"text of message {self.message_id}" if self.message_id else f"text of boundary {self.boundary_id}"
