"""Full compaction (S5): a summary of the whole past, recent rounds verbatim, state restored; judged, then offered."""

from __future__ import annotations

from dataclasses import dataclass, replace

from compaction_app.engine.attachments import restore_attachments
from compaction_app.engine.outcome import CompactionRefused, FailureReason
from compaction_app.engine.ports import SummaryRequest
from compaction_app.engine.segment import Segment, whole_segment
from compaction_app.engine.summary import check_summary
from compaction_app.engine.values import Situation, Step
from sessions_app.transcript.boundary import BoundaryDraft, BoundaryKind
from sessions_app.transcript.messages import MessageKind
from sessions_app.transcript.tokens import estimate_text
from sessions_app.transcript.view import fold, summary_content


@dataclass(frozen=True, slots=True)
class FullLink:
    name: str = "full"

    def attempt(self, situation: Situation) -> Step:
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
        step = _compact(situation=situation, segment=segment, budget=budget)
        return replace(step, why=f"{step.why}; in place of what was cleared before it") if cleared_before else step


FULL = FullLink()


def budget_tokens(*, situation: Situation) -> int:
    """Tokens for summary and kept tail together.

    A share of what they replace, at least a floor where the context is small, and never so much that the whole context
    would pass the target share of what it was.
    """
    policy, shown = situation.policy, situation.view.tokens
    past = sum(m.tokens for m in situation.originals(situation.last_position))
    wanted = max(int(max(past, shown) * policy.full_budget_share), policy.full_budget_floor_tokens)
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


def _compact(*, situation: Situation, segment: Segment, budget: int) -> Step:
    policy, family, summarizer = situation.policy, situation.family, situation.summarizer
    if summarizer is None:
        raise CompactionRefused(reason=FailureReason.NO_SUMMARY, detail="nobody is there to write a summary")
    history = [m for m in situation.originals(segment.covers_to) if m.kind == MessageKind.NORMAL]
    kept = sum(m.tokens for m in segment.tail)
    request = SummaryRequest(
        history=history,
        tail=segment.tail,
        budget_tokens=max(budget - min(kept, int(budget * policy.full_tail_share)), 1),
        family=family,
        policy=policy,
        instructions=situation.instructions,
    )
    result = summarizer.summarize(request=request, progress=situation.progress)
    check_summary(text=result.text)
    situation.progress.report(stage="attachments", fraction=0.9)
    summary_tokens = estimate_text(text=summary_content(summary=result.text), family=family)
    standing = situation.overhead_tokens + kept + segment.preserved_tokens + summary_tokens
    room = int(situation.estimated_tokens * policy.full_target_share) - standing
    attachments = restore_attachments(
        history=history, tail=segment.tail, policy=policy, family=family, room_tokens=room
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
    )
    shown = _shown_tokens(situation=situation, draft=draft)
    _refuse_what_saves_nothing(situation=situation, shown=shown)
    return Step(
        why=_why(segment=segment, attachments=len(attachments), summarizer=result.summarizer),
        tokens_before=situation.tokens,
        tokens_after=situation.overhead_tokens + round(shown * situation.ratio),
        draft=draft,
        usage=result.usage,
    )


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
