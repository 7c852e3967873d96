"""The chain of responsibility: try each link, note why it ran or passed, stop when the goal is met."""

from __future__ import annotations

from compaction_app.engine.plan import Plan
from compaction_app.engine.values import Situation, Step

Trail = list[tuple[str, Step]]


def run_chain(*, plan: Plan, situation: Situation) -> tuple[Trail, Situation]:
    """The steps taken, in order with their link's name, and the situation after them. Only the goal stops the chain."""
    trail: Trail = []
    for link in plan.links:
        step = link.attempt(situation)
        situation = situation.after(step)
        trail.append((link.name, step))
        if plan.goal.met(situation):
            break
    return trail, situation
