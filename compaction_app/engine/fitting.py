"""A compaction whose result has to fit (S19): what can go, from what is wanted down to the least that must stay.

The sizes of all that stays are known before anybody writes, so a model is asked once, for what will fit. What it has
written is measured all the same; the embedded summariser can be asked again for less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from compaction_app.engine.clearing import cleared_step, in_thinking_round
from compaction_app.engine.model_summary.prompt import instruction
from compaction_app.engine.offer import compact_segment, view_after
from compaction_app.engine.outcome import CompactionRefused, FailureReason
from compaction_app.engine.past import budget_tokens
from compaction_app.engine.ports import Summarizer, SummaryRequest
from compaction_app.engine.room import Room, room_of, too_much
from compaction_app.engine.segment import Segment, peeled_segment, whole_segment
from compaction_app.engine.values import Situation, Step
from sessions_app.transcript.boundary import Clearing
from sessions_app.transcript.clearing import live, old_results
from sessions_app.transcript.tokens import estimate_text
from sessions_app.transcript.view import ViewItem, clear

ANALYSIS_FACTOR = 2  # a model's analysis is about as long as its summary
REFUSED = "the provider refused the request as too long"
NO_GAIN = frozenset({FailureReason.NOT_SMALLER, FailureReason.NOTHING_TO_COMPACT})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cut, with the situation that it is made in: some results may be placeholders there."""

    situation: Situation
    segment: Segment
    what: str

    @property
    def stays(self) -> list[ViewItem]:
        kept = {message.position for message in self.segment.kept}
        return [item for item in self.situation.view.items if item.position and item.position in kept]

    def left(self, room: Room) -> int:
        """Tokens, by our estimate, for the summary and what is restored; 0 where the bytes alone are too many."""
        if sum(item.content_bytes for item in self.stays) > room.content_bytes:
            return 0
        return room.left - sum(item.tokens for item in self.stays)


def fit_past(*, situation: Situation, summarizer: Summarizer | None, by_model: bool) -> Step:
    """Propose a boundary whose context fits. `by_model`: whoever summarises has a window of its own.

    Raises CompactionRefused: EXCEEDS_WINDOW where no summary makes it fit, with what alone is too large; else as
    `compact_segment` does.
    """
    room, budget = room_of(situation=situation), budget_tokens(situation=situation.as_found)
    has_doubt = room.unseen_tokens > 0 and _is_new(situation.as_found)
    for believed in (room, room.without_unseen()) if has_doubt else (room,):
        candidates = list(_candidates(situation, room=believed, by_model=by_model))
        for least in (max(budget // 4, _least(situation)), _least(situation)):
            for candidate in candidates:
                if candidate.left(believed) < least:
                    continue
                step = _tried(candidate, room=believed, budget=budget, summarizer=summarizer, by_model=by_model)
                if step is not None:
                    return step if believed is room else _doubted(step, room)
    return _cleared_whole(situation, room=room, candidate=candidates[-1] if candidates else None)


def _is_new(found: Situation) -> bool:
    """Whether anything is shown that was not there when the last boundary was written."""
    head, messages = found.view.boundary, found.view.messages
    return head is None or bool(messages and messages[-1].position > head.committed_at)


def _doubted(step: Step, room: Room) -> Step:
    told = (
        f"the refused request held about {room.unseen_tokens:,} tokens more than this session's messages explain; if "
        "the next one is refused too, they are not among the messages"
    )
    return replace(step, why=f"{step.why}; {told}")


def _least(situation: Situation) -> int:
    """Nine headings, and what stands around them."""
    return 2 * situation.policy.summary_least_tokens


def _tried(
    candidate: Candidate, *, room: Room, budget: int, summarizer: Summarizer | None, by_model: bool
) -> Step | None:
    """The step where it fits, None where it does not. What a model has written is not asked for again."""
    situation = candidate.situation
    wanted = min(budget, candidate.left(room))
    while wanted >= situation.policy.summary_least_tokens:
        try:
            step = compact_segment(
                situation=situation,
                segment=candidate.segment,
                budget_tokens=wanted,
                summarizer=summarizer,
                most_tokens=situation.overhead_tokens + room.left,
            )
        except CompactionRefused as refused:
            if refused.reason in NO_GAIN and not by_model:
                return None
            raise
        if step.draft and room.holds(view_after(situation=situation, draft=step.draft)):
            return replace(step, why=f"{step.why}{candidate.what}", tokens_before=situation.as_found.tokens)
        if by_model:
            detail = f"the summary that came leaves more than the {room.tokens:,} tokens that there is room for"
            raise CompactionRefused(reason=FailureReason.NOT_SMALLER, detail=detail)
        wanted //= 2
    return None


def _candidates(situation: Situation, *, room: Room, by_model: bool) -> Iterator[Candidate]:
    """From the usual tail of a full compaction down to the least that must stay. A summary takes the place of what was
    cleared just before (decision 17), as long as that leaves what fits."""
    found, policy = situation.as_found, situation.policy
    instead = "; in place of what was cleared before it" if situation.drafts else ""
    usual, waiting = int(budget_tokens(situation=found) * policy.full_tail_share), policy.waiting_round_tokens
    first = _segment(found, tail_tokens=min(usual, max(room.left, 0)), waiting_tokens=waiting)
    if first is None:
        return
    if by_model:
        peeled = _peeled(found, segment=first, room=room)
        more = len(peeled.tail) - len(first.tail)
        told = f"; {more} messages more are kept, so that the rest fits the request for its summary" if more else ""
        yield Candidate(found, replace(peeled, apart=True), f"{told}{instead}")
    yield Candidate(found, replace(first, apart=by_model), instead)
    for base, pinned, what in (
        (found, waiting, instead),
        (situation, waiting, "; old results in what is kept stay cleared"),
        (_all_cleared(situation), 0, "; all results in what is kept are cleared"),
    ):
        segment = _segment(base, tail_tokens=0, waiting_tokens=pinned)
        if segment is not None:
            yield Candidate(base, replace(segment, apart=by_model), what)


def _segment(situation: Situation, *, tail_tokens: int, waiting_tokens: int) -> Segment | None:
    """As for any full compaction. Where no cut leaves anything, the record of the last boundary is written anew."""
    messages, head = situation.view.messages, situation.view.boundary
    hidden = head.covers_to if head else 0
    segment = whole_segment(messages=messages, tail_tokens=tail_tokens, waiting_tokens=waiting_tokens, behind=hidden)
    if segment is not None and segment.compacted and segment.covers_to >= hidden:
        return segment
    if head is None or head.keeps_prefix:
        return None
    tail = tuple(message for message in messages if message.position > head.covers_to)
    compacted = tuple(message for message in messages if message.position <= head.covers_to)
    return Segment(covers_to=head.covers_to, compacted=compacted, tail=tail, preserved=head.preserved)


def _peeled(situation: Situation, *, segment: Segment, room: Room) -> Segment:
    """The cut moved back until what is before it fits a request of its own: with the instruction, and what is written.

    Not where the tail would then not surely fit: the request goes without its oldest rounds instead.
    """
    budget, policy, view = budget_tokens(situation=situation), situation.policy, situation.view
    chain = view.boundary.chain if view.boundary else ()
    told = situation.conversation
    asked = instruction(
        request=SummaryRequest(
            history=(),
            tail=segment.tail,
            compacted=segment.compacted,
            budget_tokens=budget,
            family=situation.family,
            policy=policy,
            instructions=situation.instructions,
            earlier_summary="\n\n".join(one.summary or "" for one in chain),
        )
    )
    # What the earlier summaries lack is told beside them.
    inserted = sum(item.tokens for item in view.items if not item.position) + (policy.facts_tokens if chain else 0)
    before = room.request_left(
        overhead_tokens=told.overhead_tokens if told else situation.overhead_tokens,
        output_tokens=max(policy.ptl_least_output_tokens, ANALYSIS_FACTOR * budget),
    )
    return peeled_segment(
        messages=view.messages,
        within=segment,
        before_tokens=before - inserted - estimate_text(text=asked, family=situation.family),
        tail_tokens=room.surely_left - budget,
        behind=view.boundary.covers_to if view.boundary else 0,
    )


def _all_cleared(situation: Situation) -> Situation:
    """As if every result that may be cleared were."""
    old = old_results(results=live(situation.compactable), keep=0)
    view = clear(
        view=situation.view,
        results=[(result.position, result.tool_use_id) for result in old],
        clearing=Clearing.PLACEHOLDER,
        family=situation.family,
    )
    return replace(situation, view=view)


def _cleared_whole(situation: Situation, *, room: Room, candidate: Candidate | None) -> Step:
    """Where no summary helps: all results that are left are cleared, if that is enough. Raises CompactionRefused."""
    cleared = _all_cleared(situation)
    old = old_results(results=live(situation.compactable), keep=0)
    if old and room.holds(cleared.view) and not in_thinking_round(situation.view.items):
        reason = f"{REFUSED}, and nothing of it could be summarised"
        return cleared_step(situation, old=old, clearing=Clearing.PLACEHOLDER, reason=reason, keep=0)
    stays = candidate.stays if candidate else [item for item in cleared.view.items if item.position]
    detail = too_much(situation=situation, stays=stays, room=room)
    raise CompactionRefused(reason=FailureReason.EXCEEDS_WINDOW, detail=detail)
