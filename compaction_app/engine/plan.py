"""Which links run for which trigger, in which order, and when it is enough: the source's flowchart as a table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from compaction_app.engine.command import Scope
from compaction_app.engine.links.cache_edits import CACHE_EDITS
from compaction_app.engine.links.full import FULL
from compaction_app.engine.links.last_resort import LAST_RESORT, LastResortLink
from compaction_app.engine.links.partial import PARTIAL
from compaction_app.engine.links.reactive import REACTIVE
from compaction_app.engine.links.reactive_clearing import REACTIVE_CLEARING
from compaction_app.engine.links.session_memory import SESSION_MEMORY
from compaction_app.engine.links.time_based import TIME_BASED
from compaction_app.engine.room import room_of
from compaction_app.engine.values import Situation, Step, Trigger


class Link(Protocol):
    @property
    def name(self) -> str: ...

    def attempt(self, situation: Situation) -> Step: ...


class Goal(Enum):
    """When a plan has done enough.

    SUMMARIZED: a boundary with a summary is proposed. FITS: that, or clearing alone has brought the context well
    below its threshold. ANY_EDIT: anything was cleared; the next request decides about more. HAS_ROOM: as
    SUMMARIZED, or clearing alone has made the context fit where the provider had refused it.
    """

    SUMMARIZED = "summarized"
    FITS = "fits"
    ANY_EDIT = "any_edit"
    HAS_ROOM = "has_room"

    def met(self, situation: Situation) -> bool:
        if self is Goal.ANY_EDIT:
            return bool(situation.drafts)
        if self is Goal.FITS and situation.drafts and situation.is_light_enough:
            return True
        if self is Goal.HAS_ROOM and situation.drafts and room_of(situation=situation).surely_holds(situation.view):
            return True
        return situation.summary_draft is not None


@dataclass(frozen=True, slots=True)
class Plan:
    """`last_resort`: what stands in where a provider has failed one of the links; None: nothing does (decision 11)."""

    links: tuple[Link, ...]
    goal: Goal
    last_resort: LastResortLink | None = None


PLANS: dict[Trigger, Plan] = {
    Trigger.PREPARE: Plan((TIME_BASED, CACHE_EDITS), Goal.ANY_EDIT),
    Trigger.AUTO: Plan((TIME_BASED, CACHE_EDITS, SESSION_MEMORY, FULL), Goal.FITS, LAST_RESORT),
    Trigger.MANUAL: Plan((SESSION_MEMORY, TIME_BASED, CACHE_EDITS, FULL), Goal.SUMMARIZED),
    Trigger.REACTIVE: Plan((REACTIVE_CLEARING, REACTIVE), Goal.HAS_ROOM, LAST_RESORT),
}
PART = Plan((PARTIAL,), Goal.SUMMARIZED)


def plan_for(*, trigger: Trigger, scope: Scope) -> Plan:
    """The plan of a run. A part of the session that somebody asked for by a message has one of its own."""
    return PLANS[trigger] if scope is Scope.WHOLE else PART
