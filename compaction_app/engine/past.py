"""A summary in place of the past (S5): what is replaced, what stays, what is restored; judged, then offered.

Two links share it: the full one, and the last resort behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import overload

from compaction_app.engine.attachments import restore_attachments
from compaction_app.engine.outcome import CompactionRefused, FailureReason
from compaction_app.engine.ports import Summarizer, SummaryRequest
from compaction_app.engine.segment import Segment, whole_segment
from compaction_app.engine.summary import check_summary
from compaction_app.engine.values import Situation, Step
from sessions_app.transcript.boundary import BoundaryDraft, BoundaryKind
from sessions_app.transcript.messages import Message, MessageKind
from sessions_app.transcript.tokens import estimate_text
from sessions_app.transcript.view import fold, summary_content


def replace_past(*, situation: Situation, summarizer: Summarizer | None) -> Step:
    """Propose a boundary. Raises CompactionRefused when the summary is not acceptable or saves nothing.

    It replaces what was cleared just before as well, so it looks at the context as it was found (decision 16).
    """
    cleared_before, situation = bool(situation.drafts), situation.as_found
    budget = budget_tokens(situation=situation)
    segment = whole_segment(
        messages=situation.view.messages,
        tail_tokens=int(budget * situation.policy.full_tail_share),
        waiting_tokens=situation.policy.waiting_round_tokens,
    )
    if budget < situation.policy.summary_least_tokens:
        return _pass(situation, f"the {situation.view.tokens:,} tokens that are shown are too few for a summary")
    passed = _nothing_to_do(situation=situation, segment=segment)
    if passed or segment is None:
        return passed or _pass(situation, "no legal cut leaves anything to compact")
    step = _compact(situation=situation, segment=segment, budget=budget, summarizer=summarizer)
    return replace(step, why=f"{step.why}; in place of what was cleared before it") if cleared_before else step


@dataclass(frozen=True, slots=True, eq=False)
class Unread(Sequence[Message]):
    """Messages that are read when somebody looks at them, once."""

    read: Callable[[], Sequence[Message]]
    _found: list[Sequence[Message]] = field(default_factory=list)

    def _messages(self) -> Sequence[Message]:
        if not self._found:
            self._found.append(self.read())
        return self._found[0]

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        return self._messages()[index]

    def __len__(self) -> int:
        return len(self._messages())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def budget_tokens(*, situation: Situation) -> int:
    """Tokens for summary and kept tail together.

    A share of what they replace, at least a floor where the context is small, and never so much that the whole context
    would pass the target share of what it was.
    """
    policy, shown, head = situation.policy, situation.view.tokens, situation.view.boundary
    # What came before the last boundary is told by the boundary: reading it would cost more with each generation.
    past = shown + (head.tokens_before if head else 0)
    wanted = max(int(past * policy.full_budget_share), policy.full_budget_floor_tokens)
    room = int(situation.estimated_tokens * policy.full_target_share) - situation.overhead_tokens
    floor = min(policy.full_budget_floor_tokens, int(shown * policy.full_floor_share))
    return min(wanted, policy.full_budget_tokens, max(room, int(shown * policy.full_small_share), floor))


def _pass(situation: Situation, why: str) -> Step:
    return Step(
        why=why,
        tokens_before=situation.tokens,
        tokens_after=situation.tokens,
        reason=FailureReason.NOTHING_TO_COMPACT,
    )


def _nothing_to_do(*, situation: Situation, segment: Segment | None) -> Step | None:
    head = situation.view.boundary
    if not situation.view.messages:
        return _pass(situation, "the session has no message that could be compacted")
    if segment is None or not segment.compacted:
        return _pass(
            situation,
            "all that is shown waits for a tool result or an answer: there is no legal cut before it",
        )
    newest = situation.view.messages[-1].position
    if head is not None and (segment.covers_to <= head.covers_to or newest <= head.committed_at):
        return _pass(situation, "nothing new since the last compaction but what is kept verbatim")
    return None


def _compact(*, situation: Situation, segment: Segment, budget: int, summarizer: Summarizer | None) -> Step:
    policy, family = situation.policy, situation.family
    if summarizer is None:
        raise CompactionRefused(reason=FailureReason.NO_SUMMARY, detail="nobody is there to write a summary")
    kept = sum(m.tokens for m in segment.tail)
    left = max(budget - min(kept, int(budget * policy.full_tail_share)), 1)
    request = _summary_request(situation=situation, segment=segment, budget_tokens=left)
    result = summarizer.summarize(request=request, progress=situation.progress)
    check_summary(text=result.text)
    situation.progress.report(stage="attachments", fraction=0.9)
    summary_tokens = estimate_text(text=summary_content(summary=result.text), family=family)
    standing = situation.overhead_tokens + kept + segment.preserved_tokens + summary_tokens
    attachments = restore_attachments(
        history=_touched(situation=situation, segment=segment, history=request.history),
        tail=(*segment.preserved_messages, *segment.tail),
        state=situation.client_state,
        policy=policy,
        family=family,
        room_tokens=int(situation.estimated_tokens * policy.full_target_share) - standing,
    )
    draft = BoundaryDraft(
        kind=BoundaryKind.FULL,
        covers_to=segment.covers_to,
        summary=result.text,
        summary_tokens=summary_tokens,
        summarizer=result.summarizer,
        instructions=situation.instructions,
        preserved=segment.preserved,
        attachments=attachments,
        model=result.model,
        prompt_version=result.prompt_version,
        response_id=result.response_id,
        usage=result.usage,
    )
    shown = _shown_tokens(situation=situation, draft=draft)
    _refuse_what_saves_nothing(situation=situation, shown=shown)
    return Step(
        why=_why(segment=segment, attachments=len(attachments), summarizer=result.summarizer),
        tokens_before=situation.tokens,
        tokens_after=situation.overhead_tokens + round(shown * situation.ratio),
        draft=draft,
        usage=result.usage,
        shared_prefix=result.shared_prefix,
    )


def _summary_request(*, situation: Situation, segment: Segment, budget_tokens: int) -> SummaryRequest:
    def past() -> Sequence[Message]:
        return [m for m in situation.originals(segment.covers_to) if m.kind == MessageKind.NORMAL]

    head = situation.view.boundary
    return SummaryRequest(
        history=Unread(read=past),
        tail=segment.tail,
        budget_tokens=budget_tokens,
        family=situation.family,
        policy=situation.policy,
        instructions=situation.instructions,
        hook_instructions=situation.pre_compact() if situation.pre_compact else "",
        compacted=segment.compacted,
        earlier_summary=(head.summary or "") if head else "",
        conversation=situation.conversation,
    )


def _touched(*, situation: Situation, segment: Segment, history: Sequence[Message]) -> Sequence[Message]:
    """Where files and the plan are looked for: a bounded part of the past, where it is told apart from the whole."""
    if situation.on_files is None:
        return history
    known = {message.position for message in segment.compacted}
    older = (m for m in situation.on_files(segment.covers_to) if m.position not in known)
    return sorted([*older, *segment.compacted], key=lambda message: message.position)


def _shown_tokens(*, situation: Situation, draft: BoundaryDraft) -> int:
    """What the model would be shown, by the same fold that will read the boundary."""
    sequence = situation.view.boundary.sequence + 1 if situation.view.boundary else 1
    boundary = draft.as_boundary(committed_at=situation.last_position, created_at=situation.now, sequence=sequence)
    return fold(messages=situation.view.messages, boundaries=[boundary], family=situation.family).tokens


def _refuse_what_saves_nothing(*, situation: Situation, shown: int) -> None:
    """Estimate against estimate: a usage that its client reports wrongly decides nothing here."""
    before = situation.view.tokens
    if shown < before:
        return
    small = before <= situation.policy.full_budget_floor_tokens
    raise CompactionRefused(
        reason=FailureReason.NOTHING_TO_COMPACT if small else FailureReason.NOT_SMALLER,
        detail=f"what is shown would go from {before:,} to {shown:,} tokens; nothing was changed",
    )


def _why(*, segment: Segment, attachments: int, summarizer: str) -> str:
    tail = f"{len(segment.tail)} recent messages kept verbatim" if segment.tail else "no recent message kept verbatim"
    waiting = "; an older round that waits for an answer kept too" if segment.preserved else ""
    return (
        f"{len(segment.compacted)} messages up to position {segment.covers_to} replaced by a summary ({summarizer}); "
        f"{tail}{waiting}; {attachments} attachments"
    )
