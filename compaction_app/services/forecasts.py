"""A dry run: what a compaction of a session would do now. Nothing is stored, nobody is asked, no model is called."""

from __future__ import annotations

from dataclasses import dataclass, replace

from django.conf import settings
from django.utils import timezone

from compaction_app.engine.command import Scope
from compaction_app.engine.decision import switched_off
from compaction_app.engine.forecast import ExpectedCall, Forecast, Foreteller, foretell
from compaction_app.engine.model_summary import native
from compaction_app.engine.outcome import CompactionRefused, FailureReason
from compaction_app.engine.ports import Progress, Summarizer, SummaryRequest, SummaryResult
from compaction_app.engine.values import Reported, Trigger
from compaction_app.llm.factory import MODELS, SUMMARIZERS, as_text, make_last_resort, summarizer_name
from compaction_app.services import catalog
from compaction_app.services.candidates import wants_approval
from compaction_app.services.situations import situation_as_found
from sessions_app import selectors as transcripts
from sessions_app.catalog import api_name
from sessions_app.models import Session
from sessions_app.transcript.messages import Message
from sessions_app.transcript.view import ContextView


@dataclass(frozen=True, slots=True)
class DryRun:
    """`compacted`, `kept`: messages that would be replaced, and that would stay; `summarizer`: who would write;
    `awaits_approval`: whether the run would then stop until somebody has consented."""

    forecast: Forecast
    summarizer: str
    compacted: tuple[Message, ...]
    kept: tuple[Message, ...]
    awaits_approval: bool = False


def dry_run(
    *,
    session: Session,
    trigger: Trigger,
    instructions: str,
    scope: Scope,
    scope_uuid: str,
    summarizer: str,
    reported: Reported | None,
) -> DryRun:
    """`session`: with its team loaded. `summarizer`: in place of the one that the settings name, "" for that one."""
    resolved = transcripts.effective_policy(team=session.team, session=session)
    name = summarizer_name(setting=summarizer or settings.COMPACTION_SUMMARIZER, key_set=settings.ANTHROPIC_KEY_SET)
    view = transcripts.context_view(session=session)
    if off := switched_off(resolved=resolved, automatic=False):
        refused = CompactionRefused(reason=FailureReason.COMPACTION_DISABLED, detail=off)
        tokens = session.context_tokens
        nothing = Forecast(trail=[], draft=None, tokens_before=tokens, tokens_after=tokens, refused=refused)
        return DryRun(forecast=nothing, summarizer=name, compacted=(), kept=view.messages)
    calls: list[ExpectedCall] = []
    found = situation_as_found(session=session, view=view, policy=resolved.policy, trigger=trigger)
    situation = replace(
        found,
        summarizer=_writer(name=name, session=session, calls=calls),
        last_resort=make_last_resort(name=name),
        instructions=instructions,
        names_summarizer=bool(summarizer),
        scope=scope,
        scope_uuid=scope_uuid,
        reported=reported,
    )
    forecast = foretell(situation=situation, calls=calls)
    compacted, kept = _parted(view=view, forecast=forecast)
    draft = forecast.draft
    return DryRun(
        forecast=forecast,
        summarizer=draft.summarizer if draft and draft.summarizer else name,
        compacted=compacted,
        kept=kept,
        awaits_approval=draft is not None
        and draft.kind.summarizes
        and wants_approval(policy=resolved.policy, trigger=trigger),
    )


def _writer(*, name: str, session: Session, calls: list[ExpectedCall]) -> Summarizer:
    """The embedded summariser itself, because it calls nobody; somebody who foretells in the place of any other."""
    if name not in MODELS:
        return SUMMARIZERS[name]()
    if not settings.ANTHROPIC_KEY_SET:
        return _Keyless()
    model = settings.COMPACTION_MODEL
    limits = transcripts.model_limits(model=model or api_name(session.model))
    gives_block = name == native.NAME and catalog.can_compact(model=api_name(session.model))
    block_by = native.NAME if gives_block else ""
    return Foreteller(name=as_text(name=name), model=model, limits=limits, block_by=block_by, calls=calls)


class _Keyless:
    """What comes of a model that nobody may call, which is known without calling it."""

    def summarize(self, *, request: SummaryRequest, progress: Progress) -> SummaryResult:
        detail = "no model can be called: neither ANTHROPIC_API_KEY nor ANTHROPIC_AUTH_TOKEN is set"
        raise CompactionRefused(reason=FailureReason.API_ERROR, detail=detail)


def _parted(*, view: ContextView, forecast: Forecast) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    draft = forecast.draft
    if draft is None or not draft.kind.summarizes:
        return (), view.messages
    boundary = draft.as_boundary(committed_at=draft.covers_to, created_at=timezone.now(), sequence=0)
    hidden = tuple(m for m in view.messages if boundary.hides(m.position))
    gone = {m.position for m in hidden}
    return hidden, tuple(m for m in view.messages if m.position not in gone)
