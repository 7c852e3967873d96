"""What is compacted, and what is preserved: the choice of a cut among the legal ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from sessions_app.transcript.boundary import Boundary, BoundaryKind, Placement, PreservedSegment
from sessions_app.transcript.messages import Message, Role, is_human_prompt, text_of
from sessions_app.transcript.rounds import Round, cut_points, group_by_api_round, waiting_approvals


@dataclass(frozen=True, slots=True)
class Segment:
    """`compacted` is replaced, `tail` stays verbatim after it; `covers_to`: the last position that is hidden.

    `preserved`: an older round that waits for a person's answer, kept between summary and tail (known failure T8); or,
    with `kept_before`, the early prefix that stays in front of the summary; or the begin of the tail where an earlier
    summary stands within it. `cut`: position at which the legal cut stands, 0 where nobody asked for one. `apart`:
    whoever summarises is not shown the tail. `base`: as in the boundary. `folded`: the earlier summaries that this one
    is to hold as well; None: all that are shown.
    """

    covers_to: int
    compacted: tuple[Message, ...]
    tail: tuple[Message, ...]
    preserved: PreservedSegment | None = None
    kind: BoundaryKind = BoundaryKind.FULL
    kept_before: tuple[Message, ...] = ()
    cut: int = 0
    apart: bool = False
    base: Boundary | None = None
    folded: tuple[Boundary, ...] | None = None

    @property
    def preserved_messages(self) -> tuple[Message, ...]:
        """Of what is compacted, what stays verbatim."""
        span = self.preserved
        return tuple(m for m in self.compacted if span and span.first <= m.position <= span.last)

    @property
    def kept(self) -> tuple[Message, ...]:
        """All that stays verbatim, oldest first."""
        return (*self.kept_before, *self.preserved_messages, *self.tail)

    @property
    def replaced_tokens(self) -> int:
        """Estimate of what is hidden."""
        return sum(message.tokens for message in self.compacted) - self.preserved_tokens

    @property
    def preserved_tokens(self) -> int:
        return sum(message.tokens for message in self.preserved_messages)


def whole_segment(
    *, messages: Sequence[Message], tail_tokens: int, waiting_tokens: int, behind: int = 0
) -> Segment | None:
    """Compact all but the newest rounds that fit `tail_tokens`. None when no legal cut leaves anything to compact.

    `messages`: what is shown verbatim, oldest first. A call that waits for its result stays whole with its round, and
    what a person has asked since the last response stays whole too, even where that is larger than the tail may be; a
    round that waits for a person's answer stays where it takes at most `waiting_tokens`. `behind`: the last position
    that is hidden already; a cut before it would bring back what is.
    """
    cuts = ends(messages=messages, behind=behind)
    if not cuts:
        return None
    pinned = waiting_round(messages=messages, most_tokens=waiting_tokens)
    cut = _choose_cut(messages=messages, cuts=cuts, tail_tokens=tail_tokens)
    preserved = None
    if pinned is not None and pinned.last < cut:
        preserved = PreservedSegment(first=pinned.first, last=pinned.last, placement=Placement.AFTER_SUMMARY)
    return Segment(
        covers_to=cut - 1,
        compacted=tuple(m for m in messages if m.position < cut),
        tail=tuple(m for m in messages if m.position >= cut),
        preserved=preserved,
    )


def peeled_segment(
    *, messages: Sequence[Message], within: Segment, before_tokens: int, tail_tokens: int, behind: int = 0
) -> Segment:
    """`within`, a cut through `messages`, with the newest rounds before it peeled off into the tail until what is left
    takes at most `before_tokens`. As it is where that would leave a tail of more than `tail_tokens`.

    `behind`: the last position that is hidden already.
    """
    numbers, sizes = places(messages), [message.tokens for message in messages]
    before, whole = [0, *accumulate(sizes)], sum(sizes)
    fitting = [
        cut
        for cut in cut_points(messages)
        if behind < cut <= within.covers_to
        and before[numbers[cut]] <= before_tokens
        and whole - before[numbers[cut]] <= tail_tokens
    ]
    if sum(message.tokens for message in within.compacted) <= before_tokens or not fitting:
        return within
    cut = fitting[-1]
    preserved = within.preserved if within.preserved and within.preserved.last < cut else None
    return replace(
        within,
        covers_to=cut - 1,
        compacted=tuple(m for m in messages if m.position < cut),
        tail=tuple(m for m in messages if m.position >= cut),
        preserved=preserved,
    )


def memory_segment(
    *,
    messages: Sequence[Message],
    covers_to: int,
    least_tokens: int,
    least_texts: int,
    most_tokens: int,
    waiting_tokens: int,
) -> Segment | None:
    """What a memory that covers all to `covers_to` can stand for (S6); None when no legal cut leaves anything.

    All that it does not cover stays, and what nobody has acted on yet. From there the tail grows backwards from one
    legal cut to the next, until it has `least_tokens` and `least_texts` messages with text, and never past
    `most_tokens` by that: it stays empty where the newest round alone is larger.
    """
    asked = unanswered_prompt(messages)
    cuts = [cut for cut in cut_points(messages) if (asked is None or cut <= asked) and cut <= covers_to + 1]
    if not cuts:
        return None
    chosen = cuts[-1]
    kept = sum(m.tokens for m in messages if m.position >= chosen)
    texts = sum(bool(text_of(m.content).strip()) for m in messages if m.position >= chosen)
    for cut in reversed(cuts[:-1]):
        if kept >= least_tokens and texts >= least_texts:
            break
        more = [m for m in messages if cut <= m.position < chosen]
        grown = kept + sum(m.tokens for m in more)
        if grown > most_tokens:
            break
        chosen, kept = cut, grown
        texts += sum(bool(text_of(m.content).strip()) for m in more)
    pinned = waiting_round(messages=messages, most_tokens=waiting_tokens)
    preserved = None
    if pinned is not None and pinned.last < chosen:
        preserved = PreservedSegment(first=pinned.first, last=pinned.last, placement=Placement.AFTER_SUMMARY)
    return Segment(
        covers_to=chosen - 1,
        compacted=tuple(m for m in messages if m.position < chosen),
        tail=tuple(m for m in messages if m.position >= chosen),
        preserved=preserved,
        kind=BoundaryKind.SESSION_MEMORY,
    )


def places(messages: Sequence[Message]) -> dict[int, int]:
    """Position -> number among the messages: how far two of them are apart, whatever lies hidden between."""
    return {message.position: number for number, message in enumerate(messages)}


def ends(*, messages: Sequence[Message], behind: int) -> list[int]:
    """Where what is compacted may end, ascending: legal cuts past what is hidden already, and past no prompt that
    nobody has acted on."""
    asked = unanswered_prompt(messages, behind=behind)
    legal = cut_points(messages)
    cuts = [cut for cut in legal if cut > behind and (asked is None or cut <= asked)]
    all_may_go = bool(legal) and legal[-1] > messages[-1].position
    return cuts or ([behind + 1] if all_may_go and asked is None else [])


def unanswered_prompt(messages: Sequence[Message], *, behind: int = 0) -> int | None:
    """Position of the first prompt since the last response: nobody has acted on it, so no summary may stand for it.

    Up to position `behind` all has been acted on: what did is hidden.
    """
    first = None
    for message in reversed(messages):
        if message.role == Role.ASSISTANT or message.position <= behind:
            break
        if is_human_prompt(message):
            first = message.position
    return first


def _choose_cut(*, messages: Sequence[Message], cuts: Sequence[int], tail_tokens: int) -> int:
    """The earliest legal cut whose tail fits; one at the start of a person's turn is taken first."""
    kept, fitting = 0, {messages[-1].position + 1, cuts[-1]}
    for message in reversed(messages):
        kept += message.tokens
        if kept > tail_tokens:
            break
        fitting.add(message.position)
    good = [cut for cut in cuts if cut in fitting]
    if not good:
        return cuts[-1]
    prompts = {m.position for m in messages if is_human_prompt(m)}
    turns = [cut for cut in good if cut in prompts]
    return turns[0] if turns else good[0]


def waiting_round(*, messages: Sequence[Message], most_tokens: int) -> Round | None:
    """The newest round that waits for a person's answer; None where there is none, or it is too big to be kept.

    It ends where the person says something else, and where positions have a gap: what lies in a gap is hidden, and a
    preserved segment must not bring it back.
    """
    waiting = waiting_approvals(messages)
    if not waiting:
        return None
    newest = waiting[-1].use_position
    whole = next(one for one in group_by_api_round(messages) if one.first <= newest <= one.last)
    kept: list[Message] = []
    for message in whole.messages:
        if kept and (message.position != kept[-1].position + 1 or is_human_prompt(message)):
            break
        kept.append(message)
    found = Round(messages=tuple(kept))
    return found if found.last >= newest and found.tokens <= most_tokens else None
