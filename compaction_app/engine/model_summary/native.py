"""The provider's own compaction as a summariser: a signed block, or else a summary of our own in the same run.

The block stands for the summary to the letter. Whatever keeps it from coming is told in a note, and the model is asked
in our own way: within the same deadline, with the same book of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from compaction_app.engine.command import Scope
from compaction_app.engine.model_summary.asking import FIRST, STAGE, TICK_SECONDS, WINDOW_EXCEEDED
from compaction_app.engine.model_summary.calls import OK, STOPPED, Way
from compaction_app.engine.model_summary.cost import total_usage
from compaction_app.engine.model_summary.native_request import MOST_INSTRUCTIONS, native_request, wanted_output
from compaction_app.engine.model_summary.open_call import OpenCall
from compaction_app.engine.model_summary.problems import ADVICE, TRANSIENT
from compaction_app.engine.model_summary.rebuild import is_due
from compaction_app.engine.model_summary.requests import Built
from compaction_app.engine.model_summary.summarizer import ModelSummarizer
from compaction_app.engine.outcome import CompactionRefused, FailureReason
from compaction_app.engine.ports import (
    Completion,
    Conversation,
    Progress,
    ProviderError,
    ProviderProblem,
    SummaryRequest,
    SummaryResult,
)
from sessions_app.transcript.native import is_signed, readable

NAME = "anthropic_native"
COMPACTED = "compaction"  # the stop reason of an answer that holds a block
PROVIDERS_PROMPT, OWN_PROMPT = "provider", "native-1"  # whose words asked for it; a change of ours is a new number
TRIES = 2
# Stop reason of an answer without a block -> how the call is told of, and why there is none.
EMPTY: dict[str, tuple[str, str]] = {
    "max_tokens": (FailureReason.TRUNCATED.value, "its summary was cut off at the longest output"),
    WINDOW_EXCEEDED: (ProviderProblem.TOO_LONG.value, "the window has no room for it"),
    "tool_use": (FailureReason.NO_SUMMARY.value, "the model called a tool"),
    "refusal": (FailureReason.REFUSED.value, "the model refused"),
    "end_turn": (FailureReason.NO_SUMMARY.value, "the model wrote nothing"),
}


class NoBlock(Exception):
    """There is no block to be had; `why` in words, `outcome` as the call is told of."""

    def __init__(self, *, why: str, outcome: str = FailureReason.NO_SUMMARY.value) -> None:
        self.why, self.outcome = why, outcome
        super().__init__(why)


@dataclass(slots=True)
class NativeSummarizer:
    """`own`: writes where no block comes; its deadline, its calls and its clock are those of both.

    `can_compact(model)`: False where it is known that no block will come.
    """

    own: ModelSummarizer
    name: str = NAME
    can_compact: Callable[[str], bool] = lambda model: True

    def summarize(self, *, request: SummaryRequest, progress: Progress) -> SummaryResult:
        """A signed block with its readable text, else what `own` writes. Raises as that does."""
        asking = _Asking(own=self.own, request=request, progress=progress)
        try:
            model = request.conversation.model if request.conversation else ""
            if model and not self.can_compact(model):
                raise NoBlock(why=f"{model} has no such compaction")
            return asking.answer(name=self.name)
        except NoBlock as nothing:
            why = nothing.why
        told = f"the provider's own compaction gave no block: {why}"
        try:
            result = self.own.summarize(request=request, progress=progress)
        except CompactionRefused as refused:
            raise CompactionRefused(reason=refused.reason, detail=f"{refused.detail}; before that, {told}") from None
        used = total_usage([*asking.usages, result.usage]) if asking.usages else result.usage
        return replace(result, usage=used, note="; ".join(part for part in (told, result.note) if part))


def block_of(*, completion: Completion) -> Mapping[str, Any]:
    """The one signed block of an answer. Raises NoBlock."""
    stopped = completion.stop_reason
    if stopped in EMPTY:
        outcome, why = EMPTY[stopped]
        raise NoBlock(why=why, outcome=outcome)
    if stopped != COMPACTED:
        raise NoBlock(why=f"the answer ended with {stopped}")
    if len(completion.blocks) != 1 or len(completion.compactions) != 1:
        raise NoBlock(why=f"{len(completion.blocks)} blocks came in place of one")
    block = completion.compactions[0]
    if not is_signed(block):
        raise NoBlock(why="the block is not signed, or says nothing")
    return block


def hindrance(*, request: SummaryRequest, conversation: Conversation | None, override_model: str) -> str:
    """Why the provider is not even asked; "" where it is."""
    if request.scope is Scope.FROM or request.kept_before:
        return "what stays verbatim would stand in front of it, and a block comes first"
    if conversation is None or not conversation.model:
        return "no model is known"
    if override_model and override_model != conversation.model:
        return f"COMPACTION_MODEL names another model than the session's ({conversation.model})"
    if is_due(request=request):
        return f"{request.generation} summaries lie between the originals and the next, so that one is made from them"
    return ""


@dataclass(slots=True)
class _Asking:
    """One block: at most two calls of the same request."""

    own: ModelSummarizer
    request: SummaryRequest
    progress: Progress
    usages: list[Mapping[str, Any]] = field(default_factory=list)

    def answer(self, *, name: str) -> SummaryResult:
        conversation, request = self.request.conversation, self.request
        why = hindrance(request=request, conversation=conversation, override_model=self.own.override_model)
        if why or conversation is None:
            raise NoBlock(why=why)
        if self.own.until is None:
            self.own.until = self.own.clock() + request.policy.summary_deadline_seconds
        limits = self.own.limits_of(conversation.model)
        built = native_request(request=request, conversation=conversation, limits=limits)
        self._refuse_what_can_not_be_sent(
            built, least=min(request.policy.ptl_least_output_tokens, wanted_output(request=request, limits=limits))
        )
        block, completion = self._ask(built)
        return SummaryResult(
            text=readable(block),
            summarizer=name,
            usage=total_usage(self.usages),
            model=completion.model or conversation.model,
            prompt_version=_prompt_version(built),
            response_id=completion.response_id,
            shared_prefix=True,
            blocks=(block,),
        )

    def _refuse_what_can_not_be_sent(self, built: Built, *, least: int) -> None:
        policy, asked = self.request.policy, built.request.compaction.get("instructions", "")
        if not built.request.messages:
            raise NoBlock(why="there is nothing to be summarised")
        if built.request.max_tokens < least:
            raise NoBlock(why=f"about {built.tokens:,} tokens leave the window no room for a summary")
        if built.size_bytes > policy.request_bytes:
            raise NoBlock(why=f"the request of {built.size_bytes:,} bytes is too large")
        if len(asked) > MOST_INSTRUCTIONS:
            raise NoBlock(why=f"with our own words the instructions have more than {MOST_INSTRUCTIONS:,} characters")

    def _ask(self, built: Built) -> tuple[Mapping[str, Any], Completion]:
        """What the first call that gives a block gives; what may pass by itself is tried once more. Raises NoBlock."""
        # Measured once: what is left behind it is for the other way.
        until = self.own.clock() + self._left() * self.request.policy.native_deadline_share
        for number in range(1, TRIES + 1):
            self._report(0)
            try:
                return self._call(built, until=until)
            except ProviderError as error:
                told = f"{ADVICE.get(error.problem, error.problem.value)} ({error})"
                wait = error.retry_after if error.retry_after is not None else self.request.policy.summary_retry_seconds
                is_last = number == TRIES or error.problem not in TRANSIENT
            longest = min(self.request.policy.summary_longest_pause_seconds, until - self.own.clock())
            if is_last or wait > longest:
                raise NoBlock(why=told)
            self._pause(wait)
        raise AssertionError("the last try ends it")

    def _call(self, built: Built, *, until: float) -> tuple[Mapping[str, Any], Completion]:
        """One call, recorded whatever comes of it. Raises ProviderError, NoBlock, and what stops the run."""
        clock, left = self.own.clock, until - self.own.clock()
        if left <= 0:
            raise NoBlock(why="the run's time for a model is over")
        call = OpenCall(
            book=self.own.calls,
            clock=clock,
            policy=self.request.policy,
            usages=self.usages,
            way=Way.NATIVE,
            model=built.request.model,
            prompt_version=_prompt_version(built),
            built=built,
            began=clock(),
            at=self.own.now(),
        )
        try:
            completion = self.own.model.complete(
                request=built.request,
                seconds=left,
                silence_seconds=min(self.request.policy.summary_silence_seconds, left),
                heard=self._report,
            )
        except ProviderError as error:
            call.close(outcome=error.problem.value, detail=str(error), error=error)
            raise
        except BaseException as stopped:
            call.close(outcome=STOPPED, detail=type(stopped).__name__)
            raise
        if completion.stop_reason is None:
            detail = "the stream ended before the response did"
            call.close(outcome=FailureReason.TRUNCATED.value, detail=detail, completion=completion)
            raise ProviderError(problem=ProviderProblem.UNREACHABLE, request_id=completion.request_id)
        try:
            block = block_of(completion=completion)
        except NoBlock as nothing:
            call.close(outcome=nothing.outcome, detail=nothing.why, completion=completion)
            raise
        call.close(outcome=OK, completion=completion)
        return block, completion

    def _left(self) -> float:
        return (self.own.until or 0.0) - self.own.clock()

    def _pause(self, seconds: float) -> None:
        """In small steps, so that the run is kept and can be cancelled."""
        ends = self.own.clock() + seconds
        while (rest := ends - self.own.clock()) > 0:
            self._report(0)
            self.own.pause(min(rest, TICK_SECONDS))

    def _report(self, characters: int) -> None:
        """A block comes at once, so there is no more to tell than that it is waited for."""
        self.progress.report(stage=STAGE, fraction=FIRST)


def _prompt_version(built: Built) -> str:
    return OWN_PROMPT if "instructions" in built.request.compaction else PROVIDERS_PROMPT
