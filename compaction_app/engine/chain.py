"""The chain of responsibility: try each link, note why it ran or passed, stop when the goal is met."""

from __future__ import annotations

from dataclasses import replace

from compaction_app.engine.outcome import CompactionCancelled, CompactionRefused, FailureReason
from compaction_app.engine.plan import Link, Plan
from compaction_app.engine.values import Situation, Step
from sessions_app.transcript.boundary import BoundaryDraft

Trail = list[tuple[str, Step]]


def light_drafts(trail: Trail) -> list[BoundaryDraft]:
    """What the links of a trail have cleared, in order."""
    drafts = (step.draft for _, step in trail)
    return [draft for draft in drafts if draft is not None and not draft.kind.summarizes]


def run_chain(*, plan: Plan, situation: Situation, trail: Trail) -> Situation:
    """The situation after the links. Only the goal stops the chain, or a link that raises.

    The steps taken, in order with their link's name, are added to `trail` as they are taken; a refusal and a bug too,
    so that a run that ends with one can still be explained, and what was cleared before it be kept (decision 1). Where
    the plan has a last resort that takes a refusal, that one is tried; what it could not mend is raised as it was.
    """
    for link in plan.links:
        try:
            situation = _attempt(link=link, situation=situation, trail=trail)
        except CompactionRefused as refused:
            situation = _last_resort(plan=plan, situation=replace(situation, refused=refused), trail=trail)
        if plan.goal.met(situation):
            break
    return situation


def _last_resort(*, plan: Plan, situation: Situation, trail: Trail) -> Situation:
    """The situation once the plan's last resort has stood in. Raises what was refused where that does not help."""
    refused = situation.refused
    if refused is None or plan.last_resort is None or not plan.last_resort.takes(situation):
        raise refused or ValueError("nothing was refused")
    try:
        after = _attempt(link=plan.last_resort, situation=situation, trail=trail)
    except CompactionRefused as last:
        # What alone takes more than the room is told before what the provider has said.
        raise (last if last.reason is FailureReason.EXCEEDS_WINDOW else refused) from None
    if after.summary_draft is None:
        raise refused
    return after


def _attempt(*, link: Link, situation: Situation, trail: Trail) -> Situation:
    try:
        step = link.attempt(situation)
    except CompactionRefused as refused:
        trail.append((link.name, Step(refused.detail, situation.tokens, situation.tokens, reason=refused.reason)))
        raise
    except CompactionCancelled:
        raise
    except Exception as error:
        # Its kind only: an error's text may quote the transcript.
        why = f"met an unexpected {type(error).__name__}"
        trail.append((link.name, Step(why, situation.tokens, situation.tokens, reason=FailureReason.ERROR)))
        raise
    trail.append((link.name, step))
    return situation.after(step)
