"""The chain of responsibility: try each link, note why it ran or passed, stop when the goal is met."""

from __future__ import annotations

from compaction_app.engine.outcome import CompactionCancelled, CompactionRefused, FailureReason
from compaction_app.engine.plan import Plan
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
    so that a run that ends with one can still be explained, and what was cleared before it be kept (decision 1).
    """
    for link in plan.links:
        try:
            step = link.attempt(situation)
        except CompactionRefused as refused:
            step = Step(refused.detail, situation.tokens, situation.tokens, reason=refused.reason)
            trail.append((link.name, step))
            raise
        except CompactionCancelled:
            raise
        except Exception as error:
            # Its kind only: an error's text may quote the transcript.
            why = f"met an unexpected {type(error).__name__}"
            trail.append((link.name, Step(why, situation.tokens, situation.tokens, reason=FailureReason.ERROR)))
            raise
        situation = situation.after(step)
        trail.append((link.name, step))
        if plan.goal.met(situation):
            break
    return situation
