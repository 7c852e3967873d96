"""Taking a boundary back, and bringing it back again (B1). Rows are marked or written, never changed or deleted."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction

from sessions_app import selectors
from sessions_app.models import Attachment, CompactBoundary, Message, Session
from sessions_app.services import accounting
from sessions_app.services.append import lock_session
from sessions_app.services.boundaries import write_copy
from sessions_app.services.revert_marks import reverted_values
from sessions_app.transcript.boundary import BoundaryKind
from sessions_app.transcript.request import build_request
from sessions_app.transcript.validation import validate_messages

# What a copy takes over from the boundary that it brings back; the rest is its own.
COPIED = (
    "kind",
    "trigger",
    "covers_to",
    "summary",
    "summary_tokens",
    "summary_blocks",
    "summarizer",
    "instructions",
    "generation",
    "facts",
    "model",
    "prompt_version",
    "response_id",
    "usage",
    "preserved_first",
    "preserved_last",
    "preserved_placement",
    "base_id",
    "cleared_tool_use_ids",
    "cleared_results",
    "clearing",
    "why",
)


class RevertRefused(Exception):
    """The boundary can't be taken back, or brought back: `code` for programs, the message for people."""

    def __init__(self, *, code: str, detail: str) -> None:
        self.code = code
        super().__init__(detail)


def revert(*, boundary: CompactBoundary, now: datetime, by: Any = None) -> Session:
    """Take the newest summarising boundary back, with the clearings above it: what is shown is what was shown before,
    and what was appended since. Gives back the session, recounted.

    Raises RevertRefused: light_boundary, already_reverted, not_newest.
    """
    with transaction.atomic():
        session = lock_session(session_id=boundary.session_id)
        row = CompactBoundary.objects.get(pk=boundary.pk)
        if not row.as_value().kind.summarizes:
            raise RevertRefused(code="light_boundary", detail=_why_no_clearing(session=session, row=row))
        if row.reverted_at is not None:
            raise RevertRefused(
                code="already_reverted", detail="This boundary is reverted already; restore/ undoes it."
            )
        head = selectors.head_boundary(session=session)
        if head is None or head.pk != row.pk:
            raise RevertRefused(code="not_newest", detail="Only the newest boundary that summarises can be reverted.")
        above = CompactBoundary.objects.filter(session=session, reverted_at__isnull=True, pk__gte=row.pk)
        marks = reverted_values(session=session, now=now, position=session.last_position, by=row)
        above.update(reverted_by=by, **marks)
        accounting.recount_as_before(session=session, view=selectors.context_view(session=session))
        session.save()
    return session


def restore(*, boundary: CompactBoundary, now: datetime) -> CompactBoundary:
    """Bring a reverted boundary back, with the clearings that fell with it, as new rows; gives back the one that
    summarises.

    Raises RevertRefused: light_boundary, not_reverted; stale_view where another boundary or another branch of the
    conversation stands in its place now.
    """
    with transaction.atomic():
        session = lock_session(session_id=boundary.session_id)
        row = CompactBoundary.objects.get(pk=boundary.pk)
        _refuse_restore(session=session, row=row)
        fell = CompactBoundary.objects.filter(session=session, pk__gt=row.pk, reverted_with=row)
        brought = _copy(session=session, row=row, now=now)
        for light in fell.filter(kind=BoundaryKind.MICROCOMPACT.value).order_by("id"):
            _copy(session=session, row=light, now=now)
        session.refresh_from_db()
        view = selectors.context_view(session=session)
        if problems := validate_messages(messages=build_request(view=view).messages):
            raise RevertRefused(code="stale_view", detail=f"The context would not be valid any more: {problems[0]}")
        brought.tokens_after = session.context_tokens
        brought.save(update_fields=["tokens_after"])
    return brought


def _refuse_restore(*, session: Session, row: CompactBoundary) -> None:
    if not row.as_value().kind.summarizes:
        raise RevertRefused(code="light_boundary", detail=_why_no_clearing(session=session, row=row))
    if row.reverted_at is None:
        raise RevertRefused(code="not_reverted", detail="This boundary is in force.")
    head = selectors.head_boundary(session=session)
    if head is not None and head.pk > row.pk:
        raise RevertRefused(code="stale_view", detail="Another boundary has been written since.")
    then = row.committed_at_position
    left = Message.objects.filter(session=session, position__lte=then, left_path_at__gt=then, is_sidechain=False)
    if left.exists():
        raise RevertRefused(
            code="stale_view",
            detail="The conversation was taken back to an earlier message since: it covers another past.",
        )


def _why_no_clearing(*, session: Session, row: CompactBoundary) -> str:
    """Why a clearing is neither taken back nor brought back by itself, and what can be done instead."""
    if row.reverted_with_id is not None:
        return "A clearing comes back with the summary that it fell with; only that one can be restored."
    if row.reverted_at is not None:
        return "This clearing was undone when the conversation was taken back to an earlier message."
    head = selectors.head_boundary(session=session)
    if head is not None and head.pk < row.pk:
        return "A clearing falls with the summary below it; only that one can be reverted."
    return (
        "A clearing alone is not taken back: only a boundary that summarises can be reverted. Nothing was lost: the "
        "results stand in messages/ as they were."
    )


def _copy(*, session: Session, row: CompactBoundary, now: datetime) -> CompactBoundary:
    copy = CompactBoundary(
        session=session,
        restores_id=row.lineage,
        committed_at_position=session.last_position,
        tokens_before=session.context_tokens,
        created_at=now,
        **{name: getattr(row, name) for name in COPIED},
    )
    attachments = [
        Attachment(ordinal=one.ordinal, kind=one.kind, text=one.text, payload=one.payload, tokens=one.tokens)
        for one in row.attachments.order_by("ordinal")
    ]
    return write_copy(session=session, boundary=copy, attachments=attachments)
