"""Search over titles, messages and summaries. Every query starts from the team, or from a session of it."""

from __future__ import annotations

import re

from django.db.models import Q, QuerySet

from sessions_app.models import Message, SearchText, Session, Team
from sessions_app.models.fields import storable_text
from sessions_app.models.search import SearchTextQuerySet
from sessions_app.transcript.search_text import fold_query, search_text, snippet

# What a hit is told by; the rest of its rows may be large.
_SHOWN = (
    "id",
    "session__uuid",
    "session__title",
    "message__uuid",
    "message__position",
    "message__role",
    "message__sent_at",
    "message__content",
    "boundary__uuid",
    "boundary__summary",
    "boundary__created_at",
)


def hits(*, team: Team) -> SearchTextQuerySet:
    """All that can be found in the team, with what a hit is told by: one query."""
    return SearchText.objects.for_team(team).select_related("session", "message", "boundary").only(*_SHOWN)


def snippet_of(*, hit: SearchText, text: str, most: int) -> str:
    """At most `most` characters of the message, or of the summary, around the first place that holds the text."""
    whole = search_text(content=hit.message.content) if hit.message else (hit.boundary.summary or "")  # type: ignore[union-attr]
    return snippet(text=storable_text(whole), query=text, most=most)


def sessions_holding(*, team: Team, text: str) -> Q:
    """The team's sessions with the text in title, external_id, a message or a summary, whatever its case.

    The first two by a regular expression, because SQLite's LIKE knows the case of ASCII alone.
    """
    words = re.escape(text)
    found = SearchText.objects.for_team(team).holding(text)
    return Q(title__iregex=words) | Q(external_id__iregex=words) | Q(pk__in=found.values("session"))


def messages_holding(*, rows: QuerySet[Message], session: Session, text: str) -> QuerySet[Message]:
    """Those of the session's messages that hold the text, whatever its case.

    Team and session are said of the texts too: a database that begins with these looks through no others then.
    """
    return rows.filter(
        search_text__team_id=session.team_id,
        search_text__session=session,
        search_text__text__contains=fold_query(text=text),
    )
