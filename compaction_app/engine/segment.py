"""What is compacted, and what is preserved: the choice of a cut among the legal ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sessions_app.transcript.boundary import Placement, PreservedSegment
from sessions_app.transcript.messages import Message, Role, is_human_prompt
from sessions_app.transcript.rounds import Round, cut_points, group_by_api_round, waiting_approvals


@dataclass(frozen=True, slots=True)
class Segment:
    """`compacted` is replaced, `tail` stays verbatim after it; `covers_to`: the last position that is hidden.

    `preserved`: an older round that waits for a person's answer, kept between summary and tail (known failure T8).
    """

    covers_to: int
    compacted: tuple[Message, ...]
    tail: tuple[Message, ...]
    preserved: PreservedSegment | None = None

    @property
    def preserved_messages(self) -> tuple[Message, ...]:
        span = self.preserved
        return tuple(m for m in self.compacted if span and span.first <= m.position <= span.last)

    @property
    def preserved_tokens(self) -> int:
        return sum(message.tokens for message in self.preserved_messages)


def whole_segment(*, messages: Sequence[Message], tail_tokens: int, waiting_tokens: int) -> Segment | None:
    """Compact all but the newest rounds that fit `tail_tokens`. None when no legal cut leaves anything to compact.

    `messages`: what is shown verbatim, oldest first. A call that waits for its result stays whole with its round, and
    what a person has asked since the last response stays whole too, even where that is larger than the tail may be; a
    round that waits for a person's answer stays where it takes at most `waiting_tokens`.
    """
    asked = _unanswered_prompt(messages)
    cuts = [cut for cut in cut_points(messages) if asked is None or cut <= asked]
    if not cuts:
        return None
    pinned = _waiting_round(messages=messages, most_tokens=waiting_tokens)
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


def _unanswered_prompt(messages: Sequence[Message]) -> int | None:
    """Position of the first prompt since the last response: nobody has acted on it, so no summary may stand for it."""
    first = None
    for message in reversed(messages):
        if message.role == Role.ASSISTANT:
            break
        if is_human_prompt(message):
            first = message.position
    return first


def _choose_cut(*, messages: Sequence[Message], cuts: Sequence[int], tail_tokens: int) -> int:
    """The earliest legal cut whose tail fits; one at the start of a person's turn is taken first."""
    kept, fitting = 0, {messages[-1].position + 1}
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


def _waiting_round(*, messages: Sequence[Message], most_tokens: int) -> Round | None:
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
