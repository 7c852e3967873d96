"""Which part of a session a message stands for (S7): the nearest legal cut, and what is compacted on one side of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from compaction_app.engine.command import Scope
from compaction_app.engine.segment import Segment, ends, places, unanswered_prompt, waiting_round
from sessions_app.policy import Policy
from sessions_app.transcript.boundary import Boundary, BoundaryKind, Placement, PreservedSegment
from sessions_app.transcript.messages import Message, is_human_prompt
from sessions_app.transcript.rounds import cut_points, group_by_api_round, waiting_approvals
from sessions_app.transcript.view import ContextView


def part_segment(*, view: ContextView, scope: Scope, position: int, waiting_tokens: int) -> Segment | None:
    """The part at the legal cut that is nearest to the shown message at `position`; None where nothing that may go is
    on that side of it. Of two that are equally near, the earlier is taken.

    UP_TO: what is before the cut is compacted, the rest stays. FROM: what is before the cut stays in front of the
    summary; what follows is compacted as far as it may go: a call that waits for its result, a prompt that nobody has
    acted on and what comes after them stay behind the summary. `waiting_tokens`: as for a whole compaction.
    """
    if not view.messages:
        return None
    if scope is Scope.UP_TO:
        return _up_to(view=view, position=position, waiting_tokens=waiting_tokens)
    return _from(view=view, position=position)


def part_budget_tokens(*, policy: Policy, view: ContextView, segment: Segment) -> int:
    """Tokens for the summary of a part: as for the whole, measured by what it replaces alone."""
    replaced = shown_tokens(view=view, segment=segment)
    floor = min(policy.full_budget_floor_tokens, int(replaced * policy.full_floor_share))
    return min(max(int(replaced * policy.full_budget_share), floor), policy.full_budget_tokens)


def shown_tokens(*, view: ContextView, segment: Segment) -> int:
    """What the model is shown of all that the segment replaces, earlier summaries with it; an estimate."""
    kept = {message.position for message in segment.kept}
    gone = {message.position for message in segment.compacted} - kept
    folded = segment.folded if segment.folded is not None else view.boundary.chain if view.boundary else ()
    return sum(item.tokens for item in view.items if item.position in gone) + sum(map(inserted_tokens, folded))


def inserted_tokens(boundary: Boundary) -> int:
    """What a boundary's summary and the state that it has restored take."""
    return boundary.summary_tokens + sum(one.tokens for one in boundary.attachments)


def _up_to(*, view: ContextView, position: int, waiting_tokens: int) -> Segment | None:
    messages, head = view.messages, view.boundary
    behind = head.covers_to if head else 0
    asked = unanswered_prompt(messages, behind=behind)
    waiting = min((call.use_position for call in waiting_approvals(messages)), default=None)
    legal = [
        cut
        for cut in cut_points(messages)
        if cut <= messages[-1].position
        and (asked is None or cut <= asked)
        # An earlier summary stands behind such a cut; there is room for one kept range, so no question can be kept.
        and (cut > behind or waiting is None or cut <= waiting)
    ]
    if position <= messages[0].position or not legal:
        return None
    cut = _nearest(messages=messages, legal=legal, position=position)
    tail = tuple(m for m in messages if m.position >= cut)
    compacted = tuple(m for m in messages if m.position < cut)
    chain = head.chain if head else ()
    preserved = None
    if cut <= behind:
        last = max(m.position for m in tail if m.position <= behind)
        preserved = PreservedSegment(first=cut, last=last, placement=Placement.AFTER_SUMMARY)
    elif pinned := waiting_round(messages=compacted, most_tokens=waiting_tokens):
        preserved = PreservedSegment(first=pinned.first, last=pinned.last, placement=Placement.AFTER_SUMMARY)
    return Segment(
        covers_to=max(cut - 1, behind),
        compacted=compacted,
        tail=tail,
        preserved=preserved,
        kind=BoundaryKind.PARTIAL_UP_TO,
        cut=cut,
        base=head if cut <= behind else None,
        folded=tuple(one for one in chain if one.stands_before(cut)),
    )


def _from(*, view: ContextView, position: int) -> Segment | None:
    messages, head = view.messages, view.boundary
    behind = head.covers_to if head else 0
    waits = list(_waiting_spans(messages))
    within = next((last for first, last in waits if first <= position <= last), None)
    if within is not None:
        # What waits for a person can't be compacted: it is kept in front.
        position = next((m.position for m in messages if m.position > within), messages[-1].position + 1)
    legal = [cut for cut in cut_points(messages) if cut <= messages[-1].position]
    if _may_begin_with(messages[0].position, head=head):
        legal.insert(0, messages[0].position)
    if not legal or position > messages[-1].position:
        return None
    start = _nearest(messages=messages, legal=legal, position=position)
    may_end = ends(messages=messages, behind=behind)
    found = [
        _stretch(view=view, cut=cut, end=end)
        for cut, end in _stretches(start=start, legal=legal, may_end=may_end, waits=waits)
    ]
    return max(found, key=lambda one: one.replaced_tokens, default=None)


def _stretches(
    *, start: int, legal: Sequence[int], may_end: Sequence[int], waits: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Pairs (from, up to but without) that may be compacted from `start` on: none holds what waits for a person, since
    there is room for one kept range only, the prefix."""
    begin: int | None = start
    for first, last in waits:
        if begin is None or last < begin:
            continue
        end = max((cut for cut in may_end if begin < cut <= first), default=None)
        if end is not None:
            yield begin, end
        begin = min((cut for cut in legal if cut > last), default=None)
    if begin is not None and may_end and begin < may_end[-1]:
        yield begin, may_end[-1]


def _stretch(*, view: ContextView, cut: int, end: int) -> Segment:
    messages, head = view.messages, view.boundary
    before = tuple(m for m in messages if m.position < cut)
    preserved = None
    if before:
        preserved = PreservedSegment(first=before[0].position, last=cut - 1, placement=Placement.BEFORE_SUMMARY)
    return Segment(
        covers_to=end - 1,
        compacted=tuple(m for m in messages if cut <= m.position < end),
        tail=tuple(m for m in messages if m.position >= end),
        preserved=preserved,
        kind=BoundaryKind.PARTIAL_FROM,
        kept_before=before,
        cut=cut,
        base=_base_before(head, cut),
        folded=tuple(one for one in (head.chain if head else ()) if not one.stands_before(cut)),
    )


def _base_before(head: Boundary | None, cut: int) -> Boundary | None:
    """The boundary that what is shown before the cut is read through: not one whose summary stands behind it."""
    while head is not None and not head.stands_before(cut):
        head = head.base
    return head


def _may_begin_with(first: int, *, head: Boundary | None) -> bool:
    """Whether all that is shown verbatim may be compacted: a boundary without a prefix tells by its base alone which
    summaries stand in front of it."""
    base = _base_before(head, first)
    return base is None or all(one.stands_before(first) for one in base.chain)


def _waiting_spans(messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """First and last position of each round that waits for a person's answer, up to what the person says next."""
    rounds = group_by_api_round(messages)
    for call in waiting_approvals(messages):
        whole = next(one for one in rounds if one.first <= call.use_position <= one.last)
        rest = (m for m in whole.messages if m.position > call.use_position)
        last = max((m.position for m in takewhile(lambda m: not is_human_prompt(m), rest)), default=call.use_position)
        yield whole.first, last


def _nearest(*, messages: Sequence[Message], legal: Sequence[int], position: int) -> int:
    number = places(messages)
    return min(legal, key=lambda cut: (abs(number[cut] - number[position]), cut))
