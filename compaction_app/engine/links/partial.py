"""Partial compaction (S7): what is before a message, or the message and what follows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from compaction_app.engine.command import Scope
from compaction_app.engine.offer import compact_segment
from compaction_app.engine.outcome import CompactionRefused, FailureReason
from compaction_app.engine.parts import part_budget_tokens, part_segment, shown_tokens
from compaction_app.engine.past import passed_over
from compaction_app.engine.values import Situation, Step

SIDES = {Scope.UP_TO: "before", Scope.FROM: "from"}


@dataclass(frozen=True, slots=True)
class PartialLink:
    name: str = "partial"

    def attempt(self, situation: Situation) -> Step:
        """Propose a boundary for the part that was asked for. Raises CompactionRefused: STALE_VIEW where the message,
        which was there when the run was asked for, is not shown any more; else as `compact_segment` does."""
        view, policy = situation.view, situation.policy
        asked = next((m for m in view.messages if m.uuid == situation.scope_uuid), None)
        if asked is None:
            detail = (
                "the message that it was asked for by is not shown any more: it was compacted or left behind meanwhile"
            )
            raise CompactionRefused(reason=FailureReason.STALE_VIEW, detail=detail)
        side = f"{SIDES[situation.scope]} position {asked.position}"
        segment = part_segment(
            view=view, scope=situation.scope, position=asked.position, waiting_tokens=policy.waiting_round_tokens
        )
        if segment is None:
            return passed_over(situation, f"nothing can be compacted {side}")
        budget = part_budget_tokens(policy=policy, view=view, segment=segment)
        if budget < policy.summary_least_tokens:
            few = shown_tokens(view=view, segment=segment)
            return passed_over(situation, f"the {few:,} tokens {side} are too few for a summary")
        step = compact_segment(
            situation=situation, segment=segment, budget_tokens=budget, summarizer=situation.summarizer
        )
        moved = "" if segment.cut == asked.position else f", the nearest place to {asked.position} where one may cut"
        return replace(step, why=f"{step.why}; {situation.scope.value} position {segment.cut}{moved}")


PARTIAL = PartialLink()
