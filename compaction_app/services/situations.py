"""What a run finds when it looks at its session: all that the links of the chain may know."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from compaction_app import selectors
from compaction_app.engine.chain import Trail
from compaction_app.engine.command import Scope
from compaction_app.engine.ports import Conversation, Progress, Silent, Summarizer
from compaction_app.engine.values import Reported, Situation, Trigger
from compaction_app.llm.factory import Outside, make_last_resort, make_summarizer
from compaction_app.models import CompactionRun
from compaction_app.services import catalog, hooks
from compaction_app.services.calls import RunCalls
from compaction_app.services.claims import Claim
from sessions_app import selectors as transcripts
from sessions_app.catalog import api_name, tokenizer_family
from sessions_app.models import CompactBoundary, Session
from sessions_app.policy import Policy
from sessions_app.services.accounting import sendable_overhead
from sessions_app.transcript.boundary import Boundary
from sessions_app.transcript.messages import Message
from sessions_app.transcript.view import ContextView
from sessions_app.transcript.window import window_of


@dataclass(slots=True)
class Attempt:
    """What the newest try has found and done so far: the session as it was read, and the steps of the chain.

    `head_id`, `newest_id`: the head boundary of the view and the newest boundary of any kind, None where there is none.
    `summarizer`: one for all tries of a worker, because its deadline is one. `asked`: what the hooks have answered.
    `as_of`: last position that was read; None: the session's own.
    """

    session: Session
    view: ContextView | None = None
    head_id: int | None = None
    newest_id: int | None = None
    as_of: int | None = None
    trail: Trail = field(default_factory=list)
    summarizer: Summarizer | None = None
    asked: list[str] = field(default_factory=list)

    @property
    def last_read(self) -> int:
        return self.session.last_position if self.as_of is None else self.as_of

    def begin_anew(self) -> None:
        self.view, self.head_id, self.newest_id, self.trail = None, None, None, []


def situation_of(*, run: CompactionRun, held: Claim, attempt: Attempt, policy: Policy, progress: Progress) -> Situation:
    """The situation of `attempt.session` as `attempt.view` shows it, for the run."""
    if attempt.view is None:
        raise ValueError("the view was not read")
    if attempt.summarizer is None:
        attempt.summarizer = make_summarizer(name=run.summarizer, outside=_outside(run=run, held=held))
    found = situation_as_found(session=attempt.session, view=attempt.view, policy=policy, trigger=Trigger(run.trigger))
    return replace(
        found,
        summarizer=attempt.summarizer,
        last_resort=make_last_resort(name=run.summarizer),
        pre_compact=_pre_compact(run=run, attempt=attempt, progress=progress),
        progress=progress,
        instructions=run.instructions,
        names_summarizer=run.names_summarizer,
        scope=Scope(run.scope),
        scope_uuid=run.scope_uuid,
        reported=_reported(run) if run.trigger == Trigger.REACTIVE else None,
    )


def situation_as_found(*, session: Session, view: ContextView, policy: Policy, trigger: Trigger) -> Situation:
    """What a compaction finds, whoever asks: nobody is there yet to write, to be asked, or to watch."""
    # Messages may have arrived between the reading of the session's row and of the view.
    last_position = max(session.last_position, *(message.position for message in view.messages), 0)
    return Situation(
        view=view,
        tokens=session.context_tokens,
        overhead_tokens=sendable_overhead(session=session, policy=policy),
        last_position=last_position,
        policy=policy,
        family=tokenizer_family(session.model),
        trigger=trigger,
        now=timezone.now(),
        window=window_of(policy=policy, model=transcripts.model_limits(model=session.model)),
        last_assistant_at=session.last_assistant_at,
        ratio=transcripts.estimate_ratio(session=session),
        shown_ratio=transcripts.shown_ratio(session=session),
        originals=originals_of(session=session, policy=policy, last_position=last_position),
        on_files=lambda up_to: transcripts.touched_files(
            session=session, up_to=up_to, most_calls=policy.attached_calls_read
        ),
        facts_of=_facts_of(session=session),
        client_state=selectors.state_value(session=session),
        conversation=conversation_of(session=session, view=view, policy=policy),
        memory=selectors.memory_value(session=session),
        newest=_newest(session=session) if trigger is Trigger.REACTIVE else None,
        summarizer=None,
        progress=Silent(),
    )


def _newest(*, session: Session) -> Boundary | None:
    newest = transcripts.newest_boundary(session=session)
    return newest.as_value() if newest else None


def _reported(run: CompactionRun) -> Reported:
    return Reported(tokens=run.reported_tokens, limit=run.reported_limit, output=run.reported_output)


def _outside(*, run: CompactionRun, held: Claim) -> Outside:
    return Outside(
        calls=RunCalls(run=run, held=held),
        override_model=settings.COMPACTION_MODEL,
        limits_of=lambda model: transcripts.model_limits(model=model),
        now=timezone.now,
        can_compact=lambda model: catalog.can_compact(model=model),
    )


def originals_of(*, session: Session, policy: Policy, last_position: int) -> Callable[[int], list[Message]]:
    """Gives the stored messages of the live path at positions 1 to what is asked for; read once, when first asked."""

    @functools.cache
    def past() -> list[Message]:
        return transcripts.covered_history(
            session=session, up_to=last_position, most_messages=policy.summary_source_messages
        )

    return lambda up_to: [message for message in past() if message.position <= up_to]


def _facts_of(*, session: Session) -> Callable[[Sequence[Boundary]], Sequence[Mapping[str, Any] | None]]:
    """Reads the one column that nobody else wants, of a few rows and once: appends and views are spared it."""
    known: dict[int, Mapping[str, Any] | None] = {}

    def facts_of(boundaries: Sequence[Boundary]) -> list[Mapping[str, Any] | None]:
        if wanted := [one.sequence for one in boundaries if one.sequence not in known]:
            rows = CompactBoundary.objects.filter(session=session, pk__in=wanted).values_list("pk", "facts")
            known.update(rows)
        return [known.get(one.sequence) for one in boundaries]

    return facts_of


def conversation_of(*, session: Session, view: ContextView, policy: Policy) -> Conversation:
    """As `prepare/` gives it to the client, so that what the provider holds in its cache is what is sent."""
    if policy.cache_edits_enabled and any(item.cleared for item in view.items):
        view = transcripts.context_view(session=session, edits_at_api=True)
    told_at = session.last_assistant_at
    cold_after = timedelta(milliseconds=policy.time_based_idle_ms)
    return Conversation(
        model=api_name(session.model),
        system=session.system,
        tools=session.tools,
        view=view,
        limits=transcripts.model_limits(model=session.model),
        is_warm=told_at is not None and timezone.now() - told_at <= cold_after,
        overhead_tokens=session.given_overhead_tokens,
        ratio=transcripts.estimate_ratio(session=session),
    )


def _pre_compact(*, run: CompactionRun, attempt: Attempt, progress: Progress) -> Callable[[], str]:
    """Asks once for a run, whatever it has to do twice."""

    def ask() -> str:
        if not attempt.asked:
            answer = hooks.ask_pre_compact(
                run=run,
                session=attempt.session,
                trigger=run.trigger,
                tokens=attempt.session.context_tokens,
                instructions=run.instructions,
                now=timezone.now(),
                beat=lambda: progress.report(stage="hooks", fraction=0.08),
            )
            attempt.asked.append(answer)
        return attempt.asked[0]

    return ask
