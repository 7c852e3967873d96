"""Time-based microcompaction (S2): once the prefix cache is cold, rewriting costs nothing, so old results go first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from compaction_app.engine.clearing import cleared_step, counted, in_thinking_round, passed
from compaction_app.engine.values import Situation, Step
from sessions_app.transcript.boundary import Clearing
from sessions_app.transcript.clearing import live, old_results


@dataclass(frozen=True, slots=True)
class TimeBasedLink:
    name: str = "time_based"

    def attempt(self, situation: Situation) -> Step:
        """Clear the old compactable results of a session whose last assistant message is older than the cache lives."""
        policy = situation.policy
        if not policy.time_based_enabled:
            return passed(situation, "switched off (time_based_enabled)")
        last = situation.last_assistant_at
        if last is None:
            return passed(situation, "no assistant message yet, so no prefix is cached")
        idle, lifetime = situation.now - last, timedelta(milliseconds=policy.time_based_idle_ms)
        told = f"idle {_span(idle)} of {_span(lifetime)}"
        if idle <= lifetime:
            return passed(situation, f"cache warm: {told}")
        keep = policy.time_based_keep_results
        results = live(situation.compactable)
        old = old_results(results=results, keep=keep)
        if not old:
            return passed(
                situation,
                f"cache cold: {told}; nothing to clear: {counted(len(results), of='compactable')} shown, "
                f"the most recent {keep} stay and short ones are left alone",
            )
        freed, least = sum(result.tokens_freed for result in old), policy.time_based_least_tokens
        if freed < least and any(result.cleared for result in situation.compactable):
            return passed(
                situation,
                f"cache cold: {told}; clearing {len(old)} more would free about {freed:,} tokens of {least:,}",
            )
        if in_thinking_round(situation.view.items):
            return passed(
                situation,
                f"cache cold: {told}; the round that is open began with thinking, which clearing would break: "
                "it waits for the round's end",
            )
        return cleared_step(situation, old=old, clearing=Clearing.PLACEHOLDER, reason=f"cache cold: {told}", keep=keep)


TIME_BASED = TimeBasedLink()


def _span(span: timedelta) -> str:
    seconds = span.total_seconds()
    if seconds >= 2 * 86_400:
        return f"{seconds / 86_400:,.0f} days"
    if seconds >= 2 * 3_600:
        return f"{seconds / 3_600:.0f} h"
    return f"{seconds:,.0f} s" if seconds >= 10 or seconds == int(seconds) else f"{seconds:.1f} s"
