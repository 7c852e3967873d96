"""Light links outside a run: what `prepare` applies, and what is told of every clearing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from compaction_app import telemetry
from compaction_app.engine.chain import Trail, run_chain
from compaction_app.engine.plan import PLANS
from compaction_app.engine.ports import Silent
from compaction_app.engine.values import Situation, Step, Trigger
from compaction_app.models import CompactionRun
from sessions_app import selectors as transcripts
from sessions_app.catalog import tokenizer_family
from sessions_app.models import CompactBoundary, Session
from sessions_app.policy import Policy
from sessions_app.services.accounting import sendable_overhead
from sessions_app.services.boundaries import InvalidContext, StaleView, commit_boundary
from sessions_app.transcript.boundary import BoundaryKind
from sessions_app.transcript.view import ContextView
from sessions_app.transcript.window import window_of


@dataclass(frozen=True, slots=True)
class Applied:
    """What one light link did, why it passed, or why it was not tried.

    `cleared`: how many results; `tokens_freed`: an estimate.
    """

    link: str
    ran: bool
    why: str
    cleared: int
    tokens_freed: int
    boundary: str | None = None


@dataclass(frozen=True, slots=True)
class LightLinks:
    """What each light link did, in their order. `view`: what they have looked at, as a request shows it (edits of the
    API's side whole); None where something was written since, or nothing was read."""

    applied: tuple[Applied, ...]
    view: ContextView | None = None


def light_situation(*, session: Session, policy: Policy, view: ContextView, now: datetime) -> Situation:
    """What the light links are told: no model may be called, and no history is read but what is shown."""
    return Situation(
        view=view,
        tokens=session.context_tokens,
        overhead_tokens=sendable_overhead(session=session, policy=policy),
        last_position=session.last_position,
        policy=policy,
        family=tokenizer_family(session.model),
        trigger=Trigger.PREPARE,
        now=now,
        window=window_of(policy=policy, model=transcripts.model_limits(model=session.model)),
        last_assistant_at=session.last_assistant_at,
        ratio=transcripts.estimate_ratio(session=session),
        shown_ratio=transcripts.shown_ratio(session=session),
        originals=lambda up_to: (),
        summarizer=None,
        progress=Silent(),
    )


def apply_light_links(*, session: Session, now: datetime) -> LightLinks:
    """Run the light links as of now and write what they clear (`session` with its team loaded; refreshed by it).

    Where something else was written meanwhile the links look again, once.
    """
    try:
        return _apply_twice(session=session, now=now)
    except StaleView as stale:
        session.refresh_from_db()
        return skip_light_links(why=f"the context changed while it was looked at: {stale}")
    except InvalidContext as invalid:
        return skip_light_links(why=f"clearing would give a context that the API refuses: {invalid}")


def skip_light_links(*, why: str) -> LightLinks:
    """What is told of the light links where none of them has done anything."""
    return LightLinks(applied=tuple(_skipped(link=link.name, why=why) for link in PLANS[Trigger.PREPARE].links))


def _skipped(*, link: str, why: str) -> Applied:
    return Applied(link=link, ran=False, why=why, cleared=0, tokens_freed=0)


def _apply_twice(*, session: Session, now: datetime) -> LightLinks:
    try:
        return _apply(session=session, now=now)
    except StaleView:
        session.refresh_from_db()
        return _apply(session=session, now=now)


def _apply(*, session: Session, now: datetime) -> LightLinks:
    policy = transcripts.effective_policy(team=session.team, session=session).policy
    # Before the view: a boundary that is written between the two is noticed then.
    newest_id = transcripts.newest_boundary_id(session=session)
    view = transcripts.context_view(session=session, edits_at_api=policy.cache_edits_enabled)
    situation = light_situation(session=session, policy=policy, view=view, now=now)
    trail: Trail = []
    run_chain(plan=PLANS[Trigger.PREPARE], situation=situation, trail=trail)
    boundaries: dict[str, CompactBoundary] = {}
    for link, step in trail:
        if step.draft is not None:
            boundaries[link] = commit_boundary(
                session_id=session.pk,
                draft=step.draft,
                trigger=CompactBoundary.Trigger.PREPARE,
                expected_head_id=view.boundary.sequence if view.boundary else None,
                expected_newest_id=newest_id,
                as_of=situation.last_position,
                tokens_before=session.context_tokens,
                now=now,
            )
            tell_cleared(boundary=boundaries[link], session=session, now=now)
    if boundaries:
        session.refresh_from_db()
    told = [_told(link, step, boundaries.get(link)) for link, step in trail]
    return LightLinks(applied=(*told, *_not_tried(trail)), view=None if boundaries else view)


def _not_tried(trail: Trail) -> list[Applied]:
    """The links behind the one that has cleared enough."""
    last = trail[-1][0]
    links = PLANS[Trigger.PREPARE].links[len(trail) :]
    return [_skipped(link=link.name, why=f"not tried: {last} has cleared already") for link in links]


def _told(link: str, step: Step, boundary: CompactBoundary | None) -> Applied:
    return Applied(
        link=link,
        ran=step.draft is not None,
        why=step.why,
        cleared=len(step.draft.cleared_results) if step.draft else 0,
        tokens_freed=step.tokens_before - step.tokens_after,
        boundary=str(boundary.uuid) if boundary else None,
    )


def note_prepared(*, session: Session) -> None:
    """A client has asked what to send since the newest boundary, so its usages are of that (services/accounting.py).

    Written once for each boundary; one that has landed since `session` was read begins anew.
    """
    if session.compacted_from_tokens and not session.prepared:
        asked = Session.objects.filter(pk=session.pk, boundary_count=session.boundary_count)
        session.prepared = bool(asked.update(prepared=True))


def tell_cleared(
    *, boundary: CompactBoundary, session: Session, now: datetime, run: CompactionRun | None = None
) -> None:
    """The telemetry event of a boundary that clears results; nothing for one that summarises."""
    if boundary.cleared_results and boundary.kind == BoundaryKind.MICROCOMPACT:
        telemetry.emit_cleared(boundary=boundary, session=session, run=run, now=now)
