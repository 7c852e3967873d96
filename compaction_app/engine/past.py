"""What a whole compaction replaces (S5): budget, cut, and whether there is anything to do.

Two links share it: the full one, and the last resort behind it. What is then made of the cut is `offer.py`.
"""

from __future__ import annotations

from dataclasses import replace

from compaction_app.engine.offer import compact_segment
from compaction_app.engine.outcome import FailureReason
from compaction_app.engine.ports import Summarizer
from compaction_app.engine.segment import Segment, whole_segment
from compaction_app.engine.values import Situation, Step
from sessions_app.transcript.boundary import Boundary


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
        behind=hidden_to(situation=situation),
    )
    if budget < situation.policy.summary_least_tokens:
        return passed_over(situation, f"the {situation.view.tokens:,} tokens that are shown are too few for a summary")
    passed = nothing_to_do(situation=situation, segment=segment)
    if passed or segment is None:
        return passed or passed_over(situation, "no legal cut leaves anything to compact")
    kept = sum(message.tokens for message in segment.tail)
    left = max(budget - min(kept, int(budget * situation.policy.full_tail_share)), 1)
    step = compact_segment(situation=situation, segment=segment, budget_tokens=left, summarizer=summarizer)
    return replace(step, why=f"{step.why}; in place of what was cleared before it") if cleared_before else step


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


def hidden_to(*, situation: Situation) -> int:
    """The last position that is hidden already; 0 where none is."""
    return situation.view.boundary.covers_to if situation.view.boundary else 0


def passed_over(situation: Situation, why: str) -> Step:
    """The step of a link that finds nothing to compact."""
    return Step(
        why=why,
        tokens_before=situation.tokens,
        tokens_after=situation.tokens,
        reason=FailureReason.NOTHING_TO_COMPACT,
    )


def nothing_to_do(*, situation: Situation, segment: Segment | None) -> Step | None:
    """The step that says so where a cut would change nothing; None where there is something to compact."""
    head = situation.view.boundary
    if not situation.view.messages:
        return passed_over(situation, "the session has no message that could be compacted")
    if segment is None or not segment.compacted:
        return passed_over(
            situation,
            "all that is shown waits for a tool result or an answer: there is no legal cut before it",
        )
    if head is not None and _is_as_it_was(situation=situation, segment=segment, head=head):
        return passed_over(situation, "nothing new since the last compaction but what is kept verbatim")
    return None


def _is_as_it_was(*, situation: Situation, segment: Segment, head: Boundary) -> bool:
    """Whether the cut would only write the last boundary anew. One of a part, or by memory, has kept more than it
    must."""
    if head.kind.keeps_what_may_go:
        return segment.covers_to < head.covers_to or not segment.replaced_tokens
    newest = situation.view.messages[-1].position
    return segment.covers_to <= head.covers_to or newest <= head.committed_at
