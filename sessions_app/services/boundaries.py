"""Writing boundaries: what a success stores, all or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from sessions_app import selectors
from sessions_app.models import Attachment, CompactBoundary, Message, Session
from sessions_app.models.fields import storable_text
from sessions_app.services import accounting, search_texts
from sessions_app.services.append import lock_session
from sessions_app.transcript.boundary import BoundaryDraft, BoundaryKind, Clearing, Placement, summary_uuid
from sessions_app.transcript.request import build_request
from sessions_app.transcript.validation import validate_messages
from sessions_app.transcript.view import ContextView


class StaleView(Exception):
    """Another boundary was written, or the history went another way, since the draft was made."""


class InvalidContext(Exception):
    """The context that the boundary would give is one that the Messages API refuses; `problems` says why."""

    def __init__(self, *, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems[:5]))


def commit_boundary(
    *,
    session_id: int,
    draft: BoundaryDraft,
    trigger: str,
    expected_head_id: int | None,
    as_of: int,
    tokens_before: int,
    now: datetime,
    expected_newest_id: int | None = None,
) -> CompactBoundary:
    """Write the boundary with its attachments and recount the session, in one transaction.

    `expected_head_id`: the head boundary that the draft was made from; `expected_newest_id`: the newest boundary of any
    kind then, for a draft that clears results; `as_of`: the last position that the draft has read. Messages that
    arrived since stay behind the boundary. Raises StaleView, and InvalidContext when the resulting request would
    not be taken; nothing is stored then.
    """
    with transaction.atomic():
        session = lock_session(session_id=session_id)
        _refuse_stale(session=session, draft=draft, expected_head_id=expected_head_id, as_of=as_of)
        if not draft.kind.summarizes and selectors.newest_boundary_id(session=session) != expected_newest_id:
            raise StaleView("results were cleared meanwhile")
        rewrites = not draft.kind.summarizes and draft.clearing == Clearing.PLACEHOLDER
        if rewrites and session.last_position != as_of:
            # What came since may be a round that began with thinking, which a changed prefix would break.
            raise StaleView("messages arrived meanwhile")
        boundary = _write(session=session, draft=draft, trigger=trigger, tokens_before=tokens_before, now=now)
        if draft.kind.summarizes:
            policy = selectors.effective_policy(team=session.team, session=session).policy
            session.overhead_tokens = accounting.sendable_overhead(session=session, policy=policy)
        view = _recount(session=session, boundary=boundary)
        problems = validate_messages(messages=build_request(view=view).messages)
        if problems:
            raise InvalidContext(problems=problems)
    return boundary


def record_imported_boundary(
    *,
    session: Session,
    draft: BoundaryDraft,
    trigger: str,
    tokens_before: int,
    tokens_after: int | None,
    now: datetime,
    source_key: str = "",
) -> CompactBoundary:
    """Write a boundary that a transcript already holds, in the line with this key. The caller holds the session's
    lock."""
    boundary = _write(session=session, draft=draft, trigger=trigger, tokens_before=tokens_before, now=now)
    boundary.source_key = source_key
    _recount(session=session, boundary=boundary)
    boundary.tokens_after = boundary.tokens_after if tokens_after is None else tokens_after
    boundary.save(update_fields=["tokens_after", "source_key"])
    return boundary


def write_copy(*, session: Session, boundary: CompactBoundary, attachments: Sequence[Attachment]) -> CompactBoundary:
    """Store a boundary that was written before and comes back, and recount the session. The caller holds its lock."""
    if boundary.kind != BoundaryKind.MICROCOMPACT:
        _name_kept_messages(session=session, boundary=boundary)
    boundary.save()
    search_texts.record_boundary(boundary=boundary)
    for attachment in attachments:
        attachment.boundary = boundary
    Attachment.objects.bulk_create(attachments)
    _recount(session=session, boundary=boundary)
    return boundary


def _refuse_stale(*, session: Session, draft: BoundaryDraft, expected_head_id: int | None, as_of: int) -> None:
    if why := selectors.gone_stale(session=session, head_id=expected_head_id, as_of=as_of):
        raise StaleView(why)
    if draft.covers_to > session.last_position:
        raise StaleView("the draft covers messages that are not stored")


def _write(
    *, session: Session, draft: BoundaryDraft, trigger: str, tokens_before: int, now: datetime
) -> CompactBoundary:
    kept = draft.preserved
    boundary = CompactBoundary(
        session=session,
        kind=draft.kind.value,
        trigger=trigger,
        covers_to=draft.covers_to,
        committed_at_position=session.last_position,
        summary=storable_text(draft.summary) if draft.summary is not None else None,
        summary_tokens=draft.summary_tokens,
        summarizer=draft.summarizer,
        instructions=storable_text(draft.instructions),
        preserved_first=kept.first if kept else None,
        preserved_last=kept.last if kept else None,
        preserved_placement=kept.placement.value if kept else "",
        cleared_tool_use_ids=list(draft.cleared_tool_use_ids),
        cleared_results=[result.as_json() for result in draft.cleared_results],
        clearing=draft.clearing.value,
        why=storable_text(draft.why),
        model=draft.model,
        prompt_version=draft.prompt_version,
        response_id=draft.response_id,
        usage=dict(draft.usage) or None,
        summary_blocks=[dict(block) for block in draft.summary_blocks] or None,
        generation=draft.generation,
        facts=dict(draft.facts) or None,
        base_id=draft.base.sequence if draft.base else None,
        tokens_before=tokens_before,
        created_at=now,
    )
    if draft.kind.summarizes:
        _name_kept_messages(session=session, boundary=boundary)
    boundary.save()
    search_texts.record_boundary(boundary=boundary)
    Attachment.objects.bulk_create(
        Attachment(
            boundary=boundary,
            ordinal=number,
            kind=value.kind,
            text=storable_text(value.text),
            payload=dict(value.payload),
            tokens=value.tokens,
        )
        for number, value in enumerate(draft.attachments)
    )
    return boundary


def _name_kept_messages(*, session: Session, boundary: CompactBoundary) -> None:
    """Head, anchor and tail of what stays verbatim: the preserved segment, else the kept tail; where somebody chose
    what to keep behind the summary, all of that.

    The anchor is what the kept messages hang on: the summary behind which a tail stands, the boundary itself where an
    early prefix stays in front of the summary (facts: transcript formats, section 4).
    """
    first = boundary.preserved_first or boundary.covers_to + 1
    last = boundary.preserved_last or session.last_position
    if boundary.kind == BoundaryKind.PARTIAL_UP_TO:
        last = session.last_position
        first = first if boundary.base_id else boundary.covers_to + 1  # not an older round that waits for a person
    kept = Message.objects.filter(
        session=session, position__range=(first, last), left_path_at__isnull=True, is_sidechain=False
    )
    head = kept.order_by("position").values_list("uuid", flat=True).first()
    tail = kept.order_by("-position").values_list("uuid", flat=True).first()
    if head and tail:
        boundary.head_uuid, boundary.tail_uuid = head, tail
        early = boundary.preserved_placement == Placement.BEFORE_SUMMARY
        boundary.anchor_uuid = str(boundary.uuid) if early else summary_uuid(boundary_id=str(boundary.uuid))


def _recount(*, session: Session, boundary: CompactBoundary) -> ContextView:
    """The session's counters after the boundary; gives back the view that it makes."""
    view = selectors.context_view(session=session)
    session.boundary_count += 1
    session.compacted_from_tokens, session.compacted_view_tokens = boundary.tokens_before, view.tokens
    session.prepared = False
    if boundary.kind == BoundaryKind.MICROCOMPACT:
        accounting.recount_cleared(session=session, view=view)
    else:
        session.overhead_due = True
        accounting.recount_view(session=session, view=view)
    session.save()
    boundary.tokens_after = session.context_tokens
    boundary.save(update_fields=["tokens_after"])
    return view
