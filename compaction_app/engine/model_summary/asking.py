"""Asking a model for a summary: one owner of retries, one deadline, and a record of each call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from compaction_app.engine.model_summary.calls import OK, STOPPED, PromptCut, Way
from compaction_app.engine.model_summary.open_call import OpenCall
from compaction_app.engine.model_summary.problems import ADVICE, TOO_LONG, TRANSIENT
from compaction_app.engine.model_summary.prompt import PROMPT_VERSION
from compaction_app.engine.model_summary.ptl_retry import Shortened, preflight, shorten
from compaction_app.engine.model_summary.requests import ANALYSIS_FACTOR, Built, Material, build
from compaction_app.engine.outcome import CompactionRefused, FailureReason
from compaction_app.engine.overflow import Overflow, OverflowKind
from compaction_app.engine.ports import Completion, Progress, ProviderError, ProviderProblem, SummaryRequest
from compaction_app.engine.summary import accepted
from sessions_app.transcript.native import COMPACTION_BETA

if TYPE_CHECKING:
    from compaction_app.engine.model_summary.summarizer import ModelSummarizer

# Of a run's progress, reading and hooks come before and restoring after.
FIRST, SHARE = 0.1, 0.75
STAGE = "summarizing"
CHARS_PER_TOKEN = 3.2  # to tell how much was written (facts: Anthropic API, section 13: 3.08 to 3.27)
WINDOW_EXCEEDED = "model_context_window_exceeded"
TICK_SECONDS = 1.0  # a pause reports at least this often


# The API's names for causes that lie in the compaction block (facts: Anthropic API, section 7a).
BLOCK_CODES = "compaction_"


class BlockRefused(CompactionRefused):
    """The provider does not take back the compaction block that the conversation begins with; as text it may."""


class _CutOff(Exception):
    """The stream ended without an end: a broken connection that nobody has noticed."""

    def __init__(self, *, refused: CompactionRefused) -> None:
        self.refused = refused
        super().__init__(refused.detail)


@dataclass(slots=True)
class Asking:
    """Requests for one summary, or for parts of it, and what of the retries is left over all of them.

    `until`: by the owner's clock, when the time for it is over, and `time_over` says so. Of the progress, `done` is
    behind it, and the next request moves it on by `step`: shares of one. `digested`: API rounds of which the requests
    that were answered held a digest only, because they were too long.
    """

    owner: ModelSummarizer
    request: SummaryRequest
    name: str
    progress: Progress
    until: float
    time_over: str
    done: float = 0.0
    step: float = 1.0
    cuts: int = 0
    again: int = 0
    digested: int = 0
    told: float = FIRST
    usages: list[Mapping[str, Any]] = field(default_factory=list)

    def ask(self, material: Material) -> tuple[str, Completion]:
        """A summary of the material that was accepted, however often it took. Raises CompactionRefused."""
        self._report(0)
        built, cut, is_new = build(material=material), None, False
        shorter = preflight(material=material, built=built)
        while True:
            if shorter is not None:
                material, built, cut, is_new, shorter = shorter.material, shorter.built, shorter.cut, True, None
            try:
                answer = self._call(material.way, built, cut, is_new)
                self.digested += cut.dropped_groups if cut else 0
                return answer
            except ProviderError as error:
                if error.problem in TOO_LONG:
                    shorter = self._shorten(material, built, error)
                elif COMPACTION_BETA in built.request.betas and _is_of_the_block(error):
                    told = f"the provider does not take its compaction block back ({error})"
                    raise BlockRefused(reason=FailureReason.API_ERROR, detail=told) from None
                else:
                    self._wait_for(error)
            except _CutOff as cut_off:
                if self.again >= self.request.policy.summary_retries:
                    raise cut_off.refused from None
                self._wait(self._backoff(), why=cut_off.refused.detail)
            is_new = False

    def _shorten(self, material: Material, built: Built, error: ProviderError) -> Shortened:
        most = self.request.policy.ptl_retries
        self.cuts += 1
        kind = OverflowKind.BYTES if error.problem is ProviderProblem.TOO_LARGE else OverflowKind.TOKENS
        overflow = error.overflow or Overflow(kind=kind)
        shorter = None
        if self.cuts <= most:
            shorter = shorten(material=material, built=built, overflow=overflow, retry=self.cuts)
        if shorter is None:
            tries = f"after {most} retries with less" if self.cuts > most else "and nothing is left that could go"
            detail = f"the summary request of about {built.tokens:,} tokens is too long for {self.name}, {tries}"
            raise CompactionRefused(reason=FailureReason.PROMPT_TOO_LONG, detail=detail)
        return shorter

    def _call(self, way: Way, built: Built, cut: PromptCut | None, is_new: bool) -> tuple[str, Completion]:
        """One call, recorded whatever comes of it. Raises ProviderError, CompactionRefused, and what stops the run."""
        policy, clock = self.request.policy, self.owner.clock
        left = self._left()
        if left <= 0:
            raise self._too_late()
        entry = OpenCall(
            book=self.owner.calls,
            clock=clock,
            policy=policy,
            usages=self.usages,
            way=way,
            model=self.name,
            prompt_version=PROMPT_VERSION,
            built=built,
            began=clock(),
            at=self.owner.now(),
            cut=cut,
            is_new_cut=is_new,
        )
        try:
            completion = self.owner.model.complete(
                request=built.request,
                seconds=left,
                silence_seconds=min(policy.summary_silence_seconds, left),
                heard=self._report,
            )
        except ProviderError as error:
            entry.close(outcome=error.problem.value, detail=str(error), error=error)
            raise
        except BaseException as stopped:
            entry.close(outcome=STOPPED, detail=type(stopped).__name__)
            raise
        if completion.stop_reason == WINDOW_EXCEEDED:
            problem, overflow = ProviderProblem.TOO_LONG, Overflow(kind=OverflowKind.TOKENS)
            detail = "the response ran into the window's end"
            entry.close(outcome=problem.value, detail=detail, completion=completion, said=completion.text)
            raise ProviderError(problem=problem, request_id=completion.request_id, overflow=overflow)
        try:
            text = accepted(completion=completion)
        except CompactionRefused as refused:
            entry.close(
                outcome=refused.reason.value, detail=refused.detail, completion=completion, said=completion.text
            )
            if completion.stop_reason is None:
                raise _CutOff(refused=refused) from None
            raise
        entry.close(outcome=OK, completion=completion)
        return text, completion

    def _wait_for(self, error: ProviderError) -> None:
        """Wait before the call is made again. Raises CompactionRefused where that is no use."""
        policy, advice = self.request.policy, ADVICE.get(error.problem, error.problem.value)
        told = f"{advice} ({error})"
        if error.problem not in TRANSIENT:
            raise CompactionRefused(reason=FailureReason.API_ERROR, detail=told)
        if self.again >= policy.summary_retries:
            raise CompactionRefused(reason=FailureReason.API_ERROR, detail=f"{told}, after {self.again} retries")
        wait = error.retry_after if error.retry_after is not None else self._backoff()
        if wait > policy.summary_longest_pause_seconds:
            detail = (
                f"{told}; it asks to wait {wait:,.0f} s, and {policy.summary_longest_pause_seconds:g} s are allowed"
            )
            raise CompactionRefused(reason=FailureReason.API_ERROR, detail=detail)
        self._wait(wait, why=told)

    def _backoff(self) -> float:
        policy = self.request.policy
        return min(policy.summary_retry_seconds * 2.0**self.again, policy.summary_longest_pause_seconds)

    def _wait(self, seconds: float, *, why: str) -> None:
        """Pause in small steps, so that the run is kept and can be cancelled. Raises CompactionRefused where the run's
        time would be over before the next try; `why` there is one is told then."""
        self.again += 1
        if seconds >= self._left():
            raise self._too_late(after=f"{why}; before the next try ")
        ends = self.owner.clock() + seconds
        while (rest := ends - self.owner.clock()) > 0:
            self._report(0)
            self.owner.pause(min(rest, TICK_SECONDS))

    def _left(self) -> float:
        return self.until - self.owner.clock()

    def _too_late(self, *, after: str = "") -> CompactionRefused:
        return CompactionRefused(reason=FailureReason.API_ERROR, detail=f"{after}{self.time_over}")

    def _report(self, characters: int) -> None:
        tokens = round(characters / CHARS_PER_TOKEN)
        expected = max(self.request.budget_tokens * ANALYSIS_FACTOR, 1)
        share = self.done + self.step * min(tokens / expected, 1.0)
        self.told = max(self.told, FIRST + SHARE * share)
        self.progress.report(stage=STAGE, fraction=self.told, tokens=tokens)


def _is_of_the_block(error: ProviderError) -> bool:
    """A refusal names its cause, or comes of a model or a relay that does not know such blocks."""
    return error.problem is ProviderProblem.REFUSED or error.code.startswith(BLOCK_CODES)
