"""The session's counters: how full the context is, from the last usage and from estimates of what came after.

Stored estimates are raw. What this session's responses taught about them (calibration) is laid on where a size is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from sessions_app import selectors
from sessions_app.catalog import tokenizer_family
from sessions_app.models import Message, Session
from sessions_app.policy import Policy
from sessions_app.transcript.calibration import Calibration
from sessions_app.transcript.messages import SYNTHETIC_MODEL, MessageKind, Role, Usage, tool_uses
from sessions_app.transcript.tokens import UsageAnchor, context_tokens
from sessions_app.transcript.view import ContextView, is_rendered
from sessions_app.transcript.window import warning_state, window_of

FIGURES = Policy()  # those of the whole service, which nobody overrides


def count_appended(*, session: Session, rows: Sequence[Message], rewound: bool, now: datetime) -> None:
    """Take the stored rows into the counters. Costs what the rows cost; a rewind costs one sum over the view."""
    if rewound:
        _begin_anew(session=session, rows=rows)
    family = tokenizer_family(session.model)
    for row in rows:
        session.last_position = row.position
        if row.role == Role.ASSISTANT and row.kind == MessageKind.NORMAL and not row.is_sidechain:
            session.model = session.model or row.model
            session.last_assistant_at = _not_ahead(row.sent_at, now)
        if _is_shown(row):
            session.appended_tokens += row.tokens
            session.appended_calls += sum(1 for _ in tool_uses(row.content)) if row.role == Role.ASSISTANT else 0
            _count_row(session=session, row=row)
    if session.boundary_count and tokenizer_family(session.model) != family:
        # The model has become known just now: summary and placeholders are priced by its tokenizer.
        view = selectors.context_view(session=session)
        session.view_tokens, session.view_bytes = view.tokens, view.content_bytes
    moments = [_not_ahead(row.sent_at, now) for row in rows] + [session.last_message_at]
    session.last_message_at = max(moment for moment in moments if moment is not None)
    settle(session=session)


def _not_ahead(moment: datetime | None, now: datetime) -> datetime:
    """A client's clock may be ahead; what it says is stored, but nothing waits for it."""
    return min(moment, now) if moment else now


def _begin_anew(*, session: Session, rows: Sequence[Message]) -> None:
    """After a rewind: what the view shows without the new rows (which are stored already), and no usage to rest on."""
    session.prepared = False
    view, fresh = selectors.context_view(session=session), [row for row in rows if _is_shown(row)]
    session.view_tokens = view.tokens - sum(row.tokens for row in fresh)
    session.view_bytes = view.content_bytes - sum(row.content_bytes for row in fresh)
    session.anchor = None
    head = view.boundary
    session.compacted_from_tokens = head.tokens_before if head else 0
    session.compacted_view_tokens = min(session.compacted_view_tokens, session.view_tokens) if head else 0


def _is_shown(row: Message) -> bool:
    return row.left_path_at is None and is_rendered(row.as_value())


def sendable_overhead(*, session: Session, policy: Policy) -> int:
    """The overhead that counts after a compaction of ours, in tokens.

    What was measured beyond the policy's figure, and beyond what the client gave as system prompt and tools, is history
    that it never gave, and that is not sent any more.
    """
    return min(session.overhead_tokens, max(policy.largest_overhead_tokens, session.given_overhead_tokens))


def recount_overhead(*, session: Session, given_tokens: int) -> None:
    """After system prompt, tools or model were changed; `given_tokens`: estimate of what the client gives now.

    What was measured is of the old ones: the difference is laid on it until the next usage measures anew.
    """
    change = given_tokens - session.given_overhead_tokens
    session.given_overhead_tokens = given_tokens
    if not session.overhead_measured:
        session.overhead_tokens = given_tokens
    elif change:
        session.overhead_tokens = max(session.overhead_tokens + change, 0)
        session.overhead_measured, session.overhead_due = False, True
        anchor = _anchor(session)
        if anchor.position:
            _keep_anchor(session=session, anchor=anchor.changed(tokens=change))
    settle(session=session)


def recount_view(*, session: Session, view: ContextView) -> None:
    """After the view changed as a whole: usage from before is void (known failure T11), the estimate stands."""
    session.view_tokens, session.view_bytes = view.tokens, view.content_bytes
    _keep_anchor(session=session, anchor=UsageAnchor.none(void_message_id=session.round_message_id))
    settle(session=session)


def recount_as_before(*, session: Session, view: ContextView) -> None:
    """After a boundary was taken back: `view` is what is shown again, through the boundary that is the head now."""
    session.prepared = False
    session.ignored_prompt_tokens = 0
    head = view.boundary
    session.compacted_from_tokens = head.tokens_before if head else 0
    session.compacted_view_tokens = min(session.compacted_view_tokens, view.tokens) if head else 0
    recount_view(session=session, view=view)


def recount_cleared(*, session: Session, view: ContextView) -> None:
    """After results were cleared and nothing else changed.

    The last usage still tells the rest, so it stays, less the estimate of what was cleared. The context never grows by
    it; the next response with a usage anchors anew.
    """
    anchor = _anchor(session)
    if anchor.position:
        _keep_anchor(session=session, anchor=anchor.cleared(tokens=session.view_tokens - view.tokens))
    session.view_tokens, session.view_bytes = view.tokens, view.content_bytes
    settle(session=session)


def settle(*, session: Session) -> None:
    """Size, what it rests on, and level, from the counters. Reads the team's figures: no query where it is loaded."""
    tokens, source = _size(session)
    session.context_tokens, session.context_source = tokens, source
    policy = selectors.effective_policy(team=session.team, session=session).policy
    window = window_of(policy=policy, model=selectors.model_limits(model=session.model))
    state = warning_state(
        window=window,
        context_tokens=tokens,
        overhead_tokens=session.fixed_overhead_tokens(policy=policy),
        context_bytes=session.view_bytes,
    )
    session.level = state.level.value


def _size(session: Session) -> tuple[int, str]:
    """Tokens of the context that would be sent now, and what that rests on."""
    return context_tokens(
        anchor=_anchor(session),
        view_tokens=session.view_tokens,
        overhead_tokens=session.overhead_tokens,
        ratio=_ratio(session),
    )


def _anchor(session: Session) -> UsageAnchor:
    return UsageAnchor(**session.anchor) if session.anchor else UsageAnchor.none()


def _keep_anchor(*, session: Session, anchor: UsageAnchor) -> None:
    session.anchor = asdict(anchor) if anchor.position or anchor.message_id else None


def _ratio(session: Session) -> float:
    return selectors.estimate_ratio(session=session)


def _count_row(*, session: Session, row: Message) -> None:
    told = row.role == Role.ASSISTANT and row.model != SYNTHETIC_MODEL
    usage = Usage.from_json(row.usage) if told else None
    if usage and usage.prompt_tokens:
        is_old = _is_of_the_old_context(session=session, prompt_tokens=usage.prompt_tokens)
        session.ignored_prompt_tokens = usage.prompt_tokens if is_old else 0
        usage = None if is_old else usage
    before = _anchor(session)
    anchor = before.after(
        position=row.position,
        role=Role(row.role),
        message_id=row.message_id,
        usage=usage,
        tokens=row.tokens,
    )
    session.peak_prompt_tokens = max(session.peak_prompt_tokens, anchor.prompt_tokens)
    if usage and anchor.position == row.position:
        _calibrate(session=session, model=row.model or session.model, before=before, prompt_tokens=usage.prompt_tokens)
        _measure_overhead(session=session, prompt_tokens=usage.prompt_tokens)
    _keep_anchor(session=session, anchor=anchor)
    session.view_tokens += row.tokens
    session.view_bytes += row.content_bytes


def _is_of_the_old_context(*, session: Session, prompt_tokens: int) -> bool:
    """Whether a usage that comes after a boundary is of the context before it (known failure T11).

    A request that was under way when the boundary was written was made from that context, and a client that only
    records goes on with it for good. The prompt tells: about as large as that context would have grown to, where the
    two lie apart. What counts here is the context that would be sent now. A client that has asked what to send since
    is believed, whatever it tells.
    """
    if not session.compacted_from_tokens or session.prepared:
        return False
    grown = session.compacted_from_tokens + session.view_tokens - session.compacted_view_tokens
    shown, _ = _size(session)
    apart = grown > (1 + FIGURES.old_context_share) * shown
    return apart and prompt_tokens >= (1 - FIGURES.estimate_tolerance_share) * grown


def _calibrate(*, session: Session, model: str, before: UsageAnchor, prompt_tokens: int) -> None:
    """Learn from the step that ends with a new response: its prompt less that of the response `before`, against our
    estimate of what lies between.

    There is no such step without an anchor (the session's begin, a boundary, a rewind), nor when results were cleared
    since. Each response with a usage leaves its model here, so another model begins anew.
    """
    calibration = Calibration.from_json(session.calibration)
    if calibration is None or calibration.model != model:
        calibration = Calibration.begun(model=model, figures=FIGURES)
    elif before.position and not before.cleared_tokens:
        calibration = calibration.learned(
            billed=prompt_tokens - before.prompt_tokens, estimated=before.step_tokens, figures=FIGURES
        )
    session.calibration = calibration.as_json()


def _measure_overhead(*, session: Session, prompt_tokens: int) -> None:
    """What a prompt holds beyond the transcript: system prompt, tools, what its client adds.

    Measured on the first usage of a session and after each boundary, while little is estimated and so little of the
    estimate's error falls into the difference. Right after a client's own compaction its prompt holds restored state
    that is not in the transcript, so the smaller figure stands. A later prompt that has no room for the overhead beside
    what is shown proves it too large; a ratio above 1 is no such proof, because it holds what clients add unseen.
    """
    ratio = _ratio(session)
    if session.overhead_due:
        hidden = max(prompt_tokens - round(session.view_tokens * ratio), 0)
        session.overhead_tokens = min(session.overhead_tokens, hidden) if session.overhead_measured else hidden
        session.overhead_measured, session.overhead_due = True, False
    surely_shown = int(session.view_tokens * min(ratio, 1) * (1 - FIGURES.estimate_tolerance_share))
    session.overhead_tokens = min(session.overhead_tokens, max(prompt_tokens - surely_shown, 0))
