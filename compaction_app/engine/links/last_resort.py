"""The last resort (decision 11): where the provider has failed, the embedded summariser ends an automatic run, and one
that a client waits for because its request was refused.

A session that nobody watches must not grow over its window because a provider is down. A person who asks for a
compaction is told instead, and can choose.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compaction_app.engine.fitting import fit_past
from compaction_app.engine.outcome import PROVIDER_FAILURES, FailureReason
from compaction_app.engine.past import replace_past
from compaction_app.engine.values import Situation, Step, Trigger

# A model's summary that is too long is one more reason where the context has to fit.
TOO_LONG = frozenset({FailureReason.NOT_SMALLER, FailureReason.NOTHING_TO_COMPACT})


@dataclass(frozen=True, slots=True)
class LastResortLink:
    name: str = "last_resort"

    def takes(self, situation: Situation) -> bool:
        """Whether there is a failure that it stands in for."""
        refused = situation.refused
        if refused is None or not situation.policy.last_resort or situation.last_resort is None:
            return False
        must_fit = situation.trigger is Trigger.REACTIVE
        return refused.reason in PROVIDER_FAILURES or (must_fit and refused.reason in TOO_LONG)

    def attempt(self, situation: Situation) -> Step:
        """Propose a boundary that says why no model has written it. Raises CompactionRefused."""
        refused = situation.refused
        because = f"{refused.reason.value}: {refused.detail}" if refused else "no model was there"
        if situation.trigger is Trigger.REACTIVE:
            step = fit_past(situation=situation, summarizer=situation.last_resort, by_model=False)
        else:
            step = replace_past(situation=situation, summarizer=situation.last_resort)
        if step.draft is None:
            return step
        told = f"last resort, without a model, because of {because}"
        return replace(step, why=f"{step.why}; {told}", draft=replace(step.draft, why=told))


LAST_RESORT = LastResortLink()
