"""How a run that gave no summary of a model ended, told as a story: what happened, what was tried, what to do now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compaction_app.admin.model_calls import tried
from compaction_app.admin.rendering.text import visible
from compaction_app.engine.links.last_resort import LAST_RESORT
from compaction_app.engine.outcome import PROVIDER_FAILURES, FailureReason
from compaction_app.engine.ports import ProviderProblem
from compaction_app.models import CompactionRun, ModelCall, RunStatus, RunStep

HAPPENED = {
    FailureReason.NOTHING_TO_COMPACT: "There was nothing that could be compacted.",
    FailureReason.NO_SUMMARY: "The model answered, but not with a summary.",
    FailureReason.TRUNCATED: "The model's answer was cut off before its end.",
    FailureReason.REFUSED: "The model declined to write the summary.",
    FailureReason.PROMPT_TOO_LONG: "The summary request was too long for the model, also without its oldest rounds.",
    FailureReason.API_ERROR: "The provider gave no answer that could be used.",
    FailureReason.REFUSED_BY_HOOK: "A hook of the team refused this compaction.",
    FailureReason.HOOK_FAILED: "A hook without whose answer nothing is compacted did not give one.",
    FailureReason.NOT_SMALLER: "The context would not have become smaller.",
    FailureReason.INVALID_CONTEXT: "The context that would have come of it is not one that the API takes.",
    FailureReason.STALE_VIEW: "The session was compacted or rewound by somebody else meanwhile.",
    FailureReason.EXCEEDS_WINDOW: "What can not go is larger than the room that there is.",
    FailureReason.COMPACTION_DISABLED: "Compaction is switched off.",
    FailureReason.WORKER_LOST: "The workers that took this run went silent, one after another.",
    FailureReason.ERROR: "The service met an error of its own.",
}
AGAIN = "Compact again"
NEXT = {
    FailureReason.NOTHING_TO_COMPACT: "Nothing is to be done: the session goes on, and may be compacted as it grows.",
    FailureReason.NO_SUMMARY: f"Read below what the model said. {AGAIN}, or name another model (COMPACTION_MODEL).",
    FailureReason.TRUNCATED: f"{AGAIN}. If it comes back, let the summary have more room (summary_output_tokens) or "
    "name another model (COMPACTION_MODEL).",
    FailureReason.REFUSED: "Read below what it said. Name another model (COMPACTION_MODEL), or have the embedded "
    "summariser write (COMPACTION_SUMMARIZER=extractive).",
    FailureReason.PROMPT_TOO_LONG: "Name a model with a larger window (COMPACTION_MODEL), allow more retries "
    "(ptl_retries), or have the embedded summariser write (COMPACTION_SUMMARIZER=extractive).",
    FailureReason.API_ERROR: f"{AGAIN} once the provider answers. See the detail for what it told.",
    FailureReason.REFUSED_BY_HOOK: "The hook's deliveries tell what it answered. Mend the hook or its rule, then "
    "compact again.",
    FailureReason.HOOK_FAILED: "The hook's deliveries tell why. Mend it, or let the hook be skipped when it is down "
    "(“required” off), then compact again.",
    FailureReason.NOT_SMALLER: "Nothing is to be done: what is left is recent, or is not part of the transcript.",
    FailureReason.INVALID_CONTEXT: "This should not happen: report it with the run's uuid.",
    FailureReason.STALE_VIEW: f"{AGAIN} if the context is still full.",
    FailureReason.EXCEEDS_WINDOW: "The detail names the messages: send less at once, or take a larger window.",
    FailureReason.COMPACTION_DISABLED: "Switch it on (compaction_enabled, or DISABLE_COMPACT in the environment).",
    FailureReason.WORKER_LOST: f"Look at the workers: were they stopped, or out of memory? {AGAIN} then.",
    FailureReason.ERROR: "Report it with this detail; the worker's log has the place.",
}
# What the last call has met says more about what to do than that it failed.
NEXT_BY_PROBLEM = {
    ProviderProblem.CREDENTIALS: f"Set a key that the provider takes (ANTHROPIC_API_KEY). {AGAIN} then.",
    ProviderProblem.RATE_LIMITED: f"{AGAIN} later, or have the provider raise the limit.",
    ProviderProblem.OVERLOADED: f"{AGAIN} later: the provider is overloaded.",
    ProviderProblem.REFUSED: "Look at the model's name (COMPACTION_MODEL) and at ANTHROPIC_BASE_URL: the provider does "
    "not take the request.",
    ProviderProblem.SERVER_ERROR: f"{AGAIN} later: the error is the provider's own.",
    ProviderProblem.TIMEOUT: f"{AGAIN} later, or allow more time (summary_deadline_seconds, summary_silence_seconds).",
    ProviderProblem.UNREACHABLE: f"Look at the network and at ANTHROPIC_BASE_URL. {AGAIN} then.",
    ProviderProblem.UNREADABLE: "Look at ANTHROPIC_BASE_URL: what answers does not speak the Messages API.",
}
UNTOUCHED = "Nothing: no message was changed, and the context is as it was, but for results that a light link cleared."


@dataclass(frozen=True, slots=True)
class Story:
    """`tried` is empty where no model was to be called, `lost` where nobody would ask."""

    title: str
    happened: str
    tried: str
    next: str
    lost: str
    failed: bool


def story_of(*, run: CompactionRun, steps: Sequence[RunStep], calls: Sequence[ModelCall]) -> Story | None:
    """None for a run that ended as it should, or has not ended."""
    if run.status == RunStatus.FAILED:
        return _failure(run, calls)
    if run.status == RunStatus.SUCCEEDED and steps and steps[-1].link == LAST_RESORT.name and steps[-1].ran:
        why = run.boundary.why if run.boundary else ""
        return Story(
            title="How it ended",
            happened="The provider gave no summary, so the embedded summariser wrote it as the last resort. "
            + visible(why),
            tried=tried(calls),
            next="Nothing has to be done. The next compaction asks the model again.",
            lost="",
            failed=False,
        )
    return None


def _failure(run: CompactionRun, calls: Sequence[ModelCall]) -> Story:
    reason = reason_of(run.failure_reason)
    is_providers = reason in PROVIDER_FAILURES
    return Story(
        title="Why it failed",
        happened=HAPPENED.get(reason, "It failed."),
        tried=tried(calls) if calls or is_providers else "",
        next=_next(reason, calls),
        lost=UNTOUCHED,
        failed=True,
    )


def reason_of(stored: str) -> FailureReason:
    """What an earlier release stored may have no name any more."""
    return FailureReason(stored) if stored in set(FailureReason) else FailureReason.ERROR


def _next(reason: FailureReason, calls: Sequence[ModelCall]) -> str:
    if reason is FailureReason.API_ERROR and calls and calls[-1].outcome in set(ProviderProblem):
        return NEXT_BY_PROBLEM.get(ProviderProblem(calls[-1].outcome), NEXT[reason])
    return NEXT.get(reason, "")
