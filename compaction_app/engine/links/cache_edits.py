"""Cache-edit microcompaction (S3): the API clears the oldest results; what is stored and sent stays as it is."""

from __future__ import annotations

from dataclasses import dataclass

from compaction_app.engine.clearing import cleared_step, counted, passed
from compaction_app.engine.values import Situation, Step
from sessions_app.transcript.boundary import Clearing
from sessions_app.transcript.clearing import live, old_results
from sessions_app.transcript.native import leads


@dataclass(frozen=True, slots=True)
class CacheEditsLink:
    name: str = "cache_edits"

    def attempt(self, situation: Situation) -> Step:
        """Clear the oldest compactable results once there are many, in a batch large enough to pay for the rewrite."""
        policy = situation.policy
        if not policy.cache_edits_enabled:
            return passed(situation, "switched off (cache_edits_enabled)")
        if situation.view.items and leads(situation.view.items[0].content):
            return passed(
                situation, "the context begins with the provider's own compaction block, which takes no edits"
            )
        results = live(situation.compactable)
        trigger, keep = policy.cache_edit_trigger_results, policy.cache_edit_keep_results
        shown = counted(len(results), of="compactable")
        if len(results) <= trigger:
            return passed(situation, f"{shown} shown; edits begin above {trigger}")
        old = old_results(results=results, keep=keep)
        freed = sum(result.tokens_freed for result in old)
        if not old or freed < policy.clear_least_tokens:
            return passed(
                situation,
                f"{shown}, above {trigger}; clearing {len(old)} of them would free about "
                f"{freed:,} tokens of the {policy.clear_least_tokens:,} that pay for a rewritten prefix",
            )
        reason = f"{shown}, above {trigger}"
        return cleared_step(situation, old=old, clearing=Clearing.API_EDIT, reason=reason, keep=keep)


CACHE_EDITS = CacheEditsLink()
