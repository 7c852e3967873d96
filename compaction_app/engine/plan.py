"""Which links run for which trigger, in which order, and when it is enough: the source's flowchart as a table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from compaction_app.engine.links.full import FULL
from compaction_app.engine.values import Situation, Step, Trigger


class Link(Protocol):
    @property
    def name(self) -> str: ...

    def attempt(self, situation: Situation) -> Step: ...


class Goal(Enum):
    """SUMMARIZED: a boundary with a summary is proposed."""

    SUMMARIZED = "summarized"

    def met(self, situation: Situation) -> bool:
        return situation.draft is not None and situation.draft.kind.summarizes


@dataclass(frozen=True, slots=True)
class Plan:
    links: tuple[Link, ...]
    goal: Goal


PLANS: dict[Trigger, Plan] = {
    Trigger.MANUAL: Plan((FULL,), Goal.SUMMARIZED),
    Trigger.AUTO: Plan((FULL,), Goal.SUMMARIZED),
}
