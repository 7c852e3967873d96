"""A summary by a model: one deadline for a run, two ways to ask, and a third where it is made anew from originals."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from compaction_app.engine.model_summary.asking import FIRST, Asking, BlockRefused
from compaction_app.engine.model_summary.calls import CallBook, Way
from compaction_app.engine.model_summary.cost import total_usage
from compaction_app.engine.model_summary.prompt import PROMPT_VERSION
from compaction_app.engine.model_summary.rebuild import NoRebuild, is_due, plan_of, rebuild
from compaction_app.engine.model_summary.requests import first_material
from compaction_app.engine.outcome import CompactionRefused, FailureReason
from compaction_app.engine.ports import (
    Completion,
    Conversation,
    LanguageModel,
    Progress,
    SummaryRequest,
    SummaryResult,
)
from sessions_app.catalog import ModelInfo

# A first answer that was no summary may be the fault of the way it was asked for.
ASK_OTHERWISE = frozenset({FailureReason.NO_SUMMARY, FailureReason.TRUNCATED, FailureReason.REFUSED})


@dataclass(slots=True)
class ModelSummarizer:
    """One for a run: its deadline counts from the first call on, over all that the run asks for.

    `override_model`: writes in place of the session's own model; "": that one. `limits_of`: model -> its limits.
    """

    model: LanguageModel
    calls: CallBook
    limits_of: Callable[[str], ModelInfo]
    now: Callable[[], datetime]
    name: str = "anthropic"
    override_model: str = ""
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    until: float | None = None

    def summarize(self, *, request: SummaryRequest, progress: Progress) -> SummaryResult:
        """The nine-section summary. Raises what `progress` raises.

        Raises CompactionRefused with NO_SUMMARY, TRUNCATED, REFUSED, PROMPT_TOO_LONG or API_ERROR.
        """
        conversation, name = who_writes(request=request, override_model=self.override_model)
        if self.until is None:
            self.until = self.clock() + request.policy.summary_deadline_seconds
        answering = _Answering(owner=self, request=request, conversation=conversation, name=name, progress=progress)
        return answering.answer()


def who_writes(*, request: SummaryRequest, override_model: str) -> tuple[Conversation, str]:
    """The conversation to ask about, and the model to ask. Raises CompactionRefused where either is missing."""
    conversation = request.conversation
    if conversation is None:
        raise CompactionRefused(reason=FailureReason.API_ERROR, detail="there is no conversation to ask a model about")
    name = override_model or conversation.model
    if not name:
        detail = "no model is known that could write: set COMPACTION_MODEL, or give the session a model"
        raise CompactionRefused(reason=FailureReason.API_ERROR, detail=detail)
    return conversation, name


def ways(*, request: SummaryRequest, conversation: Conversation, name: str) -> tuple[Way, ...]:
    """The ways to ask the model `name`, the first choice first: a prefix is shared with the same model only."""
    shares = request.policy.cache_prefix and name == conversation.model
    return (Way.CACHED_PREFIX, Way.STANDALONE) if shares else (Way.STANDALONE,)


@dataclass(slots=True)
class _Answering:
    """One summary: made anew from originals where it is time for that, else in one way or the other."""

    owner: ModelSummarizer
    request: SummaryRequest
    conversation: Conversation
    name: str
    progress: Progress
    usages: list[Mapping[str, Any]] = field(default_factory=list)
    told: float = FIRST

    def answer(self) -> SummaryResult:
        if not is_due(request=self.request):
            return self._ordinary()
        try:
            return self._rebuilt()
        except NoRebuild as nothing:
            why = nothing.told
        try:
            result = self._ordinary()
        except CompactionRefused as refused:
            raise CompactionRefused(reason=refused.reason, detail=f"{refused.detail}; before that, {why}") from None
        return replace(result, note=why)

    def _rebuilt(self) -> SummaryResult:
        """Raises NoRebuild."""
        policy, limits = self.request.policy, self.owner.limits_of(self.name)
        plan = plan_of(request=self.request, conversation=self.conversation, model=self.name, limits=limits)
        asking = self._asking(
            share=policy.rebuild_deadline_share,
            over="the share of the run's time that this may take is over (rebuild_deadline_share)",
        )
        try:
            text, completion = rebuild(plan=plan, asking=asking)
        finally:
            self.told = asking.told
        result = self._result(text, completion, shared=False)
        left = f"; {asking.digested:,} rounds were too much for that and told by a digest" if asking.digested else ""
        return replace(result, from_originals=True, note=f"{plan.told}{left}")

    def _ordinary(self) -> SummaryResult:
        asking = self._asking()
        chosen = ways(request=self.request, conversation=self.conversation, name=self.name)
        for way in chosen:
            material = first_material(
                request=self.request,
                conversation=self.conversation,
                way=way,
                model=self.name,
                limits=self.owner.limits_of(self.name),
            )
            try:
                text, completion = asking.ask(material)
            except CompactionRefused as refused:
                is_of_the_way = refused.reason in ASK_OTHERWISE or isinstance(refused, BlockRefused)
                if not is_of_the_way or way is chosen[-1]:
                    raise
                continue
            return self._result(text, completion, shared=way is Way.CACHED_PREFIX)
        raise AssertionError("there is always a last way")

    def _asking(self, *, share: float = 1.0, over: str = "") -> Asking:
        """`share`: of the time that is left; `over`: what is said once that is gone."""
        now, until = self.owner.clock(), self.owner.until or 0.0
        seconds = self.request.policy.summary_deadline_seconds
        return Asking(
            owner=self.owner,
            request=self.request,
            name=self.name,
            progress=self.progress,
            until=now + (until - now) * share,
            time_over=over or f"the run's {seconds:,} s for a model are over (summary_deadline_seconds)",
            told=self.told,
            usages=self.usages,
        )

    def _result(self, text: str, completion: Completion, *, shared: bool) -> SummaryResult:
        return SummaryResult(
            text=text,
            summarizer=self.owner.name,
            usage=total_usage(self.usages),
            model=completion.model or self.name,
            prompt_version=PROMPT_VERSION,
            response_id=completion.response_id,
            shared_prefix=shared,
        )
