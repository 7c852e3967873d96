"""The session's counters: how full the context is, from the last usage and from estimates of what came after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from sessions_app import selectors
from sessions_app.models import Message, Session
from sessions_app.policy import Policy
from sessions_app.transcript.messages import MessageKind, Role, Usage
from sessions_app.transcript.tokens import UsageAnchor
from sessions_app.transcript.view import is_rendered


def count_appended(*, session: Session, rows: Sequence[Message], rewound: bool, now: datetime) -> None:
    """Take the stored rows into the counters. Costs what the rows cost; a rewind costs one sum over the view."""
    if rewound:
        _begin_anew(session=session, rows=rows)
    for row in rows:
        session.last_position = row.position
        if row.role == Role.ASSISTANT and row.kind == MessageKind.NORMAL and not row.is_sidechain:
            session.model = session.model or row.model
            session.last_assistant_at = row.sent_at
        if _is_shown(row):
            _count_row(session=session, row=row)
    moments = [row.sent_at for row in rows if row.sent_at] + [session.last_message_at or rows[0].sent_at or now]
    session.last_message_at = max(moments)
    _settle(session=session)


def _begin_anew(*, session: Session, rows: Sequence[Message]) -> None:
    """After a rewind: what the view shows without the new rows (which are stored already), and no usage to rest on."""
    shown = selectors.context_view(session=session).tokens
    session.view_tokens = shown - sum(row.tokens for row in rows if _is_shown(row))
    session.anchor = None


def _is_shown(row: Message) -> bool:
    return row.left_path_at is None and is_rendered(row.as_value())


def sendable_overhead(*, session: Session, policy: Policy) -> int:
    """The overhead that counts after a compaction of ours, in tokens.

    What was measured beyond the policy's figure is history that the client never gave, and that is not sent any more.
    """
    return min(session.overhead_tokens, policy.largest_overhead_tokens)


def recount_view(*, session: Session, view_tokens: int) -> None:
    """After the view changed as a whole: usage from before is void (known failure T11), the estimate stands."""
    session.view_tokens = view_tokens
    session.anchor = None
    _settle(session=session)


def _count_row(*, session: Session, row: Message) -> None:
    usage = Usage.from_json(row.usage) if row.role == Role.ASSISTANT else None
    if usage and usage.prompt_tokens:
        session.peak_prompt_tokens = max(session.peak_prompt_tokens, usage.prompt_tokens)
        _measure_overhead(session=session, prompt_tokens=usage.prompt_tokens)
    anchor = UsageAnchor(**session.anchor) if session.anchor else UsageAnchor.none()
    anchor = anchor.after(
        position=row.position,
        role=Role(row.role),
        message_id=row.message_id,
        usage=usage,
        tokens=row.tokens,
    )
    session.anchor = asdict(anchor) if anchor.position else None
    session.view_tokens += row.tokens


def _measure_overhead(*, session: Session, prompt_tokens: int) -> None:
    """What a prompt holds beyond the transcript: system prompt, tools, what its client adds.

    Measured on the first usage of a session and after each boundary, while little is estimated and so little of the
    estimate's error falls into the difference. Right after a client's own compaction its prompt holds restored state
    that is not in the transcript, so the smaller figure stands. A later prompt that has no room for the overhead beside
    what is shown proves it too large.
    """
    if session.overhead_due:
        hidden = max(prompt_tokens - session.view_tokens, 0)
        session.overhead_tokens = min(session.overhead_tokens, hidden) if session.overhead_measured else hidden
        session.overhead_measured, session.overhead_due = True, False
    surely_shown = int(session.view_tokens * (1 - Policy().estimate_tolerance_share))
    session.overhead_tokens = min(session.overhead_tokens, max(prompt_tokens - surely_shown, 0))


def _settle(*, session: Session) -> None:
    if session.anchor is None:
        session.context_tokens = session.overhead_tokens + session.view_tokens
        session.context_source = Session.ContextSource.ESTIMATE
        return
    anchor = UsageAnchor(**session.anchor)
    session.context_tokens = anchor.context_tokens
    session.context_source = anchor.source
