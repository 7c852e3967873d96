"""Composed reads of the transcript. Nothing here writes, and nothing reads more history than the view shows."""

from __future__ import annotations

from django.conf import settings
from django.db.models import Prefetch, Q, QuerySet

from sessions_app.catalog import tokenizer_family
from sessions_app.models import Attachment, CompactBoundary, Message, Session, Team
from sessions_app.models.boundaries import BoundaryQuerySet
from sessions_app.models.messages import MessageQuerySet
from sessions_app.policy import ResolvedPolicy, resolve
from sessions_app.transcript import messages as values
from sessions_app.transcript.boundary import Boundary
from sessions_app.transcript.view import ContextView, fold, head_of


class UnknownBoundary(Exception):
    """The boundary is not one of this session."""


def effective_policy(*, team: Team, session: Session | None = None) -> ResolvedPolicy:
    """Default < environment < team < session, with the origin of each value that is not the default."""
    return resolve(
        environment=settings.COMPACTION_POLICY,
        team=team.policy_overrides,
        session=session.policy_overrides if session else None,
    )


def head_boundary(*, session: Session) -> CompactBoundary | None:
    """The boundary that the view starts from: the newest that summarises and is in force. One index look-up."""
    return _with_attachments(session=session).summarizing().filter(reverted_at__isnull=True).order_by("-id").first()


def _with_attachments(*, session: Session) -> BoundaryQuerySet:
    return CompactBoundary.objects.filter(session=session).prefetch_related(
        Prefetch("attachments", queryset=Attachment.objects.order_by("ordinal"))
    )


def context_view(*, session: Session) -> ContextView:
    """What the model sees now. Rows read: what is shown, whatever the history's length."""
    head = head_boundary(session=session)
    since = _with_attachments(session=session).filter(reverted_at__isnull=True, pk__gt=head.pk if head else 0)
    boundaries = [b.as_value() for b in ([head] if head else []) + list(since.order_by("id"))]
    shown = _shown_rows(session=session, head=boundaries[0] if head else None).filter(left_path_at__isnull=True)
    return fold(messages=_values(shown), boundaries=boundaries, family=tokenizer_family(session.model))


def context_view_at(*, session: Session, boundary_uuid: str) -> ContextView:
    """What the model saw right after a boundary, exactly. Raises UnknownBoundary."""
    at_row = _with_attachments(session=session).filter(uuid=boundary_uuid).first()
    if at_row is None:
        raise UnknownBoundary(boundary_uuid)
    at = at_row.as_value()
    earlier = _with_attachments(session=session).filter(pk__lt=at_row.pk).order_by("id")
    boundaries = [*(b.as_value() for b in earlier), at]
    head = head_of(boundaries, at=at)
    shown = _shown_rows(session=session, head=head).live_at(at.committed_at)
    family = tokenizer_family(session.model)
    return fold(messages=_values(shown), boundaries=boundaries, family=family, at=at)


def _shown_rows(*, session: Session, head: Boundary | None) -> MessageQuerySet:
    rows = Message.objects.filter(session=session, is_sidechain=False)
    if head is None:
        return rows
    after = Q(position__gt=head.covers_to)
    if head.preserved:
        after |= Q(position__range=(head.preserved.first, head.preserved.last))
    return rows.filter(after)


def _values(rows: QuerySet[Message]) -> list[values.Message]:
    return [row.as_value() for row in rows.order_by("position").defer("envelope").iterator(chunk_size=500)]


def covered_history(*, session: Session, up_to: int, most_messages: int) -> list[values.Message]:
    """The originals on the live path at positions 1..up_to, oldest first: what a summary is made from.

    Never more than `most_messages` entries: then every human prompt and the newest others, so that the cost has
    a bound however long the session is.
    """
    live = Message.objects.filter(
        session=session, position__lte=up_to, is_sidechain=False, left_path_at__isnull=True
    ).defer("envelope")
    newest = list(live.order_by("-position")[:most_messages])
    if len(newest) == most_messages and newest[-1].position > 1:
        older_prompts = live.filter(is_prompt=True, position__lt=newest[-1].position).order_by("-position")
        newest += list(older_prompts[:most_messages])
    return [row.as_value() for row in reversed(newest)]
