"""A dry run: what a compaction would do, and nothing done."""

from __future__ import annotations

from dataclasses import dataclass

from compaction_app.actions.compacting import NothingToCompact, ReactiveRefused, Wanted, check_wanted
from compaction_app.engine.command import Scope
from compaction_app.engine.values import Trigger
from compaction_app.services import forecasts, partial
from compaction_app.services.forecasts import DryRun
from compaction_app.services.partial import Cut, PartialRefused
from compaction_app.services.runs import ActiveRun
from sessions_app.models import Session


@dataclass(frozen=True, slots=True)
class Plan:
    """What would come of what is wanted. `run`: None where it is refused before there would be a run; `code`, `detail`:
    why nothing would be done, "" where something would; `cut`: None for the whole."""

    wanted: Wanted
    run: DryRun | None
    cut: Cut | None = None
    code: str = ""
    detail: str = ""


def plan_compaction(*, session: Session, wanted: Wanted) -> Plan:
    """What `request_compaction` would lead to now; every refusal is part of it. `session`: with its team loaded."""
    cut: Cut | None = None
    try:
        check_wanted(session=session, wanted=wanted)
        if wanted.scope is not Scope.WHOLE:
            cut = partial.find_cut(session=session, scope=wanted.scope, uuid=wanted.scope_uuid)
    except ActiveRun as active:
        return Plan(wanted=wanted, run=None, code="active_run", detail=str(active))
    except NothingToCompact as nothing:
        return Plan(wanted=wanted, run=None, code="nothing_to_compact", detail=str(nothing))
    except (PartialRefused, ReactiveRefused) as refused:
        return Plan(wanted=wanted, run=None, code=refused.code, detail=str(refused))
    run = forecasts.dry_run(
        session=session,
        trigger=Trigger(wanted.trigger),
        instructions=wanted.instructions,
        scope=wanted.scope,
        scope_uuid=wanted.scope_uuid,
        summarizer=wanted.summarizer,
        reported=wanted.reported,
    )
    told = run.forecast.refused
    code, detail = (told.reason.value, told.detail) if told else ("", "")
    return Plan(wanted=wanted, run=run, cut=cut, code=code, detail=detail)
