"""What a compaction would do, without doing it (B7): the same chain, with somebody who foretells as its writer."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from compaction_app.engine.chain import Trail, run_chain
from compaction_app.engine.model_summary.calls import Way
from compaction_app.engine.model_summary.cost import Cost, cost_of
from compaction_app.engine.model_summary.native import hindrance
from compaction_app.engine.model_summary.native_request import native_request
from compaction_app.engine.model_summary.ptl_retry import preflight
from compaction_app.engine.model_summary.rebuild import NoRebuild, Plan, is_due, plan_of, with_records
from compaction_app.engine.model_summary.requests import ANALYSIS_FACTOR, Built, build, first_material
from compaction_app.engine.model_summary.summarizer import ways, who_writes
from compaction_app.engine.outcome import CompactionRefused, FailureReason
from compaction_app.engine.plan import plan_for
from compaction_app.engine.ports import Conversation, Progress, SummaryRequest, SummaryResult
from compaction_app.engine.summary import SECTIONS, heading
from compaction_app.engine.values import Situation
from sessions_app.catalog import ModelInfo
from sessions_app.transcript.boundary import BoundaryDraft
from sessions_app.transcript.tokens import estimate_text

LINE = "what the session has shown so far"


@dataclass(frozen=True, slots=True)
class ExpectedCall:
    """A call of a model that would be made. Tokens are estimates as they are billed; costs None without a price."""

    model: str
    way: Way
    request_tokens: int
    output_tokens: int
    cost: Cost | None


@dataclass(slots=True)
class Foreteller:
    """In the place of a summariser that calls a model: builds the request, prices it, and gives a text of the size that
    a summary may have at most.

    `name`: of the summariser; `model`: who would write, "": the session's own; `limits`: of that one. `block_by`: the
    name of the provider's own compaction where that is asked first, "" where it is not.
    """

    name: str
    model: str
    limits: ModelInfo
    block_by: str = ""
    calls: list[ExpectedCall] = field(default_factory=list)

    def summarize(self, *, request: SummaryRequest, progress: Progress) -> SummaryResult:
        """Raises CompactionRefused where no model is known that could write."""
        conversation, name = who_writes(request=request, override_model=self.model)
        why = hindrance(request=request, conversation=conversation, override_model=self.model) if self.block_by else ""
        if self.block_by and not why:
            return self._block(request, conversation)
        if is_due(request=request):
            try:
                plan = plan_of(request=request, conversation=conversation, model=name, limits=self.limits)
                return self._made_anew(plan, request)
            except NoRebuild as nothing:
                why = "; ".join(filter(None, (why, nothing.told)))
        way = ways(request=request, conversation=conversation, name=name)[0]
        material = first_material(request=request, conversation=conversation, way=way, model=name, limits=self.limits)
        built = build(material=material)
        if shorter := preflight(material=material, built=built):
            built = shorter.built
        warm = way is Way.CACHED_PREFIX and conversation.is_warm and material.is_whole
        self._expect(request, built, way=way, model=name, warm=warm)
        return SummaryResult(text=_of_size(request), summarizer=self.name, model=name, note=why)

    def _block(self, request: SummaryRequest, conversation: Conversation) -> SummaryResult:
        built = native_request(request=request, conversation=conversation, limits=self.limits)
        self._expect(request, built, way=Way.NATIVE, model=conversation.model, warm=conversation.is_warm)
        return SummaryResult(text=_of_size(request), summarizer=self.block_by, model=conversation.model)

    def _made_anew(self, plan: Plan, request: SummaryRequest) -> SummaryResult:
        for read in plan.reads:
            self._expect(read.request, build(material=read), way=read.way, model=read.model)
        if plan.merging:
            records = [_of_size(read.request) for read in plan.reads]
            merging = with_records(merging=plan.merging, records=records)
            self._expect(merging.request, build(material=merging), way=merging.way, model=merging.model)
        model = plan.reads[0].model
        return SummaryResult(
            text=_of_size(request), summarizer=self.name, model=model, from_originals=True, note=plan.told
        )

    def _expect(self, asked: SummaryRequest, built: Built, *, way: Way, model: str, warm: bool = False) -> None:
        output = min(ANALYSIS_FACTOR * asked.budget_tokens, built.request.max_tokens)
        kind = "cache_read_input_tokens" if warm else "input_tokens"
        usage = {"input_tokens": 0, kind: built.tokens, "output_tokens": output}
        cost = cost_of(usage=usage, model=model, policy=asked.policy)
        self.calls.append(
            ExpectedCall(model=model, way=way, request_tokens=built.tokens, output_tokens=output, cost=cost)
        )


def _of_size(request: SummaryRequest) -> str:
    """Nine sections of about the size that the summary may have."""
    bare = "\n".join(f"{heading(number)}\n{LINE}" for number in range(1, len(SECTIONS) + 1))
    line = max(estimate_text(text=LINE, family=request.family), 1)
    left = request.budget_tokens - estimate_text(text=bare, family=request.family)
    return bare + f"\n{LINE}" * max(left // (line + 1), 0)


@dataclass(frozen=True, slots=True)
class Forecast:
    """`trail`: what each link would do; `draft`: what would be stored, None where nothing would be; `refused`: why not;
    `tokens_after`: the whole context then, an estimate. `calls`: that would be made, in order."""

    trail: Trail
    draft: BoundaryDraft | None
    tokens_before: int
    tokens_after: int
    refused: CompactionRefused | None
    calls: tuple[ExpectedCall, ...] = ()

    @property
    def usd(self) -> Decimal | None:
        """What the calls would cost; None without one, or where a model has no price."""
        return sum((call.cost.usd for call in self.calls if call.cost), Decimal(0)) if self._is_priced else None

    @property
    def uncached_usd(self) -> Decimal | None:
        """The same without any cache."""
        return (
            sum((call.cost.uncached_usd for call in self.calls if call.cost), Decimal(0)) if self._is_priced else None
        )

    @property
    def _is_priced(self) -> bool:
        return bool(self.calls) and all(call.cost for call in self.calls)


def foretell(*, situation: Situation, calls: list[ExpectedCall]) -> Forecast:
    """Run the chain of the situation. `calls`: those of the foreteller that writes in it, empty for one that calls
    nobody."""
    trail: Trail = []
    refused: CompactionRefused | None = None
    after = situation
    try:
        plan = plan_for(trigger=situation.trigger, scope=situation.scope)
        after = run_chain(plan=plan, situation=situation, trail=trail)
    except CompactionRefused as told:
        refused = told
    draft = after.summary_draft or (after.drafts[-1] if after.drafts else None)
    if draft is None and refused is None:
        last = trail[-1][1]
        refused = CompactionRefused(reason=last.reason or FailureReason.NOTHING_TO_COMPACT, detail=last.why)
    return Forecast(
        trail=trail,
        draft=draft,
        tokens_before=situation.tokens,
        tokens_after=after.tokens if draft else situation.tokens,
        refused=refused if draft is None else None,
        calls=tuple(calls),
    )
