"""Whether compaction starts by itself, and what is said about it: one decision after each appended message."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from compaction_app.engine.breaker import BreakerState, advised, as_told, may_start, told
from sessions_app.policy import ResolvedPolicy
from sessions_app.transcript.window import Level, Window


class Outcome(StrEnum):
    """What was decided near a threshold. REQUESTED: a run was queued; APPLIED: a light link cleared something; the
    others say why nothing was done."""

    REQUESTED = "requested"
    APPLIED = "applied"
    BELOW_THRESHOLD = "below_threshold"
    NO_ASSISTANT_MESSAGE = "no_assistant_message"
    COMPACTION_DISABLED = "compaction_disabled"
    AUTO_COMPACT_DISABLED = "auto_compact_disabled"
    UNREACHABLE = "unreachable"
    BREAKER_OPEN = "breaker_open"
    ACTIVE_RUN = "active_run"
    NOTHING_TO_COMPACT = "nothing_to_compact"
    NOTHING_TO_CLEAR = "nothing_to_clear"
    ERROR = "error"


# What a run of the session that is active already takes the place of.
WAITS_FOR_A_RUN = frozenset({Outcome.REQUESTED, Outcome.BREAKER_OPEN, Outcome.NOTHING_TO_COMPACT})

# Kept only near a threshold: far from one they are what always happens.
QUIET = frozenset(
    {
        Outcome.BELOW_THRESHOLD,
        Outcome.NO_ASSISTANT_MESSAGE,
        Outcome.COMPACTION_DISABLED,
        Outcome.AUTO_COMPACT_DISABLED,
        Outcome.NOTHING_TO_CLEAR,
    }
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a decision looks at, from the columns of one session. Tokens are of the whole context.

    `breaker`: as it is stored. `shown_tokens`: estimate of what the model is shown, without system prompt and tools.
    `ignored_prompt_tokens`: prompt of the last response, where that was plainly of another context than ours, else 0.
    """

    context_tokens: int
    overhead_tokens: int
    window: Window
    level: Level
    percent_left: int
    resolved: ResolvedPolicy
    breaker: BreakerState
    context_bytes: int = 0
    shown_tokens: int = 0
    ignored_prompt_tokens: int = 0

    @property
    def told_breaker(self) -> BreakerState:
        """The breaker as it is told: open while the threshold is out of reach, and not for that once it is not."""
        return as_told(state=self.breaker, unreachable=self.level is Level.UNREACHABLE)

    @property
    def is_near(self) -> bool:
        """Whether the context is near its lowest threshold, or beyond it."""
        window = self.window
        lowest = min(window.warning_threshold, window.error_threshold, window.auto_compact_threshold)
        share = self.resolved.policy.decision_near_share
        return self.context_tokens >= share * lowest or self.context_bytes >= share * window.auto_compact_bytes

    @property
    def is_over(self) -> bool:
        return self.context_tokens >= self.window.auto_compact_threshold or self.is_over_in_bytes

    @property
    def is_over_in_bytes(self) -> bool:
        """Whether a request is nearly as large as the API takes one (decision 13)."""
        return self.context_bytes >= self.window.auto_compact_bytes


@dataclass(frozen=True, slots=True)
class Verdict:
    """`why`: in words with figures. `is_try`: the run would be the one that an open breaker allows."""

    outcome: Outcome
    why: str
    is_try: bool = False


def switched_off(*, resolved: ResolvedPolicy, automatic: bool) -> str | None:
    """That nothing may be compacted, and who says so, in words; None where it may. `automatic`: by itself."""
    if not resolved.policy.compaction_enabled:
        return f"compaction is switched off by the {resolved.origin('compaction_enabled')}"
    if automatic and not resolved.policy.auto_compact_enabled:
        return f"automatic compaction is switched off by the {resolved.origin('auto_compact_enabled')}"
    return None


def _switched_off(facts: Facts) -> Verdict | None:
    why = switched_off(resolved=facts.resolved, automatic=True)
    if why is None:
        return None
    enabled = facts.resolved.policy.compaction_enabled
    return Verdict(Outcome.AUTO_COMPACT_DISABLED if enabled else Outcome.COMPACTION_DISABLED, why)


def _below(facts: Facts) -> Verdict | None:
    if facts.is_over or facts.level is Level.UNREACHABLE:
        return None
    threshold = facts.window.auto_compact_threshold
    parts = (
        f"{facts.context_tokens:,} tokens",
        f"automatic compaction starts at {threshold:,}",
        elsewhere(facts=facts),
    )
    return Verdict(Outcome.BELOW_THRESHOLD, "; ".join(part for part in parts if part))


def _unreachable(facts: Facts) -> Verdict | None:
    if facts.level is not Level.UNREACHABLE:
        return None
    why = (
        f"system prompt and tools alone take {facts.overhead_tokens:,} tokens, which is not below the threshold of "
        f"{facts.window.auto_compact_threshold:,}: no compaction helps, but fewer tools or a larger window do"
    )
    return Verdict(Outcome.UNREACHABLE, why)


def _nothing_new(facts: Facts) -> Verdict | None:
    """A change in either direction counts: what makes it smaller is a boundary or a rewind, and then all is new.

    What is shown counts, not the context's size: that one grows with each response of a client whose prompts hold what
    it never gave, and a compaction could do nothing about it.
    """
    found, least = facts.breaker.nothing_at_tokens, facts.resolved.policy.auto_retry_tokens
    if found is None or not facts.is_over or abs(facts.shown_tokens - found) >= least:
        return None
    why = (
        f"a run found nothing to compact, or nothing that was accepted, in the {found:,} tokens that were shown; the "
        f"next one waits until they have changed by {least:,} (now {facts.shown_tokens:,})"
    )
    return Verdict(Outcome.NOTHING_TO_COMPACT, why)


def decide(*, facts: Facts, answered: bool, now: datetime) -> Verdict:
    """What to do after an append. `answered`: a response of the model was among what came. The first gate that answers
    decides.

    REQUESTED means that a run is to be queued; whether one is active already is for the database to say, which goes
    before every verdict of WAITS_FOR_A_RUN.
    """
    if not answered:
        return Verdict(Outcome.NO_ASSISTANT_MESSAGE, "no response of the model was appended; the next one decides")
    for gate in (_switched_off, _below, _unreachable):
        if verdict := gate(facts):
            return verdict
    permission = may_start(state=facts.breaker, policy=facts.resolved.policy, now=now)
    if not permission.allowed:
        return Verdict(Outcome.BREAKER_OPEN, permission.why)
    return _nothing_new(facts) or _requested(facts, is_try=permission.is_try)


def _requested(facts: Facts, *, is_try: bool) -> Verdict:
    if facts.is_over_in_bytes:
        why = f"{facts.context_bytes:,} bytes; the threshold of {facts.window.auto_compact_bytes:,} bytes is reached"
    else:
        why = f"{facts.context_tokens:,} tokens; the threshold of {facts.window.auto_compact_threshold:,} is reached"
    if is_try:
        why += f"; the one try after the cool-down of a {told(state=facts.breaker)}"
    return Verdict(Outcome.REQUESTED, why, is_try=is_try)


def hindrance(*, facts: Facts) -> str | None:
    """Why automatic compaction would not start, whatever the context's size; None where nothing stops it."""
    for gate in (_switched_off, _unreachable):
        if verdict := gate(facts):
            return verdict.why
    if facts.told_breaker.is_open:
        return advised(state=facts.told_breaker, policy=facts.resolved.policy)
    waiting = _nothing_new(facts)
    return waiting.why if waiting else None


def elsewhere(*, facts: Facts) -> str | None:
    """That the client's prompts are of another context than the one that is handed out, in words; None where not."""
    if not facts.ignored_prompt_tokens:
        return None
    return (
        f"the last response's prompt had {facts.ignored_prompt_tokens:,} tokens, but what is handed out has about "
        f"{facts.context_tokens:,}: the client goes on without context/ or prepare/"
    )
