"""The light links dropped in (S19): every old result goes at once, because the provider has refused the request."""

from __future__ import annotations

from dataclasses import dataclass

from compaction_app.engine.clearing import cleared_step, counted, in_thinking_round, passed
from compaction_app.engine.room import room_of
from compaction_app.engine.values import Situation, Step
from sessions_app.transcript.boundary import Clearing
from sessions_app.transcript.clearing import live, old_results


@dataclass(frozen=True, slots=True)
class ReactiveClearingLink:
    name: str = "reactive_clearing"

    def attempt(self, situation: Situation) -> Step:
        """Clear all compactable results but the newest, however warm the cache is: it holds nothing that fits."""
        room = room_of(situation=situation)
        if room.is_old and room.holds(situation.view):
            return passed(situation, "the context has been compacted since the request that was refused, and fits")
        results = live(situation.compactable)
        keep = situation.policy.time_based_keep_results
        old = old_results(results=results, keep=keep)
        if not old:
            shown = counted(len(results), of="compactable")
            return passed(situation, f"nothing to clear: {shown} shown, the most recent {keep} stay")
        if in_thinking_round(situation.view.items):
            return passed(situation, "the round that is open began with thinking, which clearing would break")
        reason = "the provider refused the request as too long"
        return cleared_step(situation, old=old, clearing=Clearing.PLACEHOLDER, reason=reason, keep=keep)


REACTIVE_CLEARING = ReactiveClearingLink()
