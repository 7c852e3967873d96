"""A model that answers from a script, and requests for summaries to put to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from compaction_app.engine.model_summary.calls import CallRecord, Way
from compaction_app.engine.model_summary.summarizer import ModelSummarizer
from compaction_app.engine.ports import Completion, Conversation, ModelRequest, ProviderError, Silent, SummaryRequest
from compaction_app.engine.summary import SECTIONS, heading
from sessions_app.catalog import ModelInfo, TokenizerFamily, model_info
from sessions_app.policy import Policy
from sessions_app.transcript.messages import Message
from sessions_app.transcript.validation import validate_messages
from sessions_app.transcript.view import ContextView, fold
from tests.build import FAMILY

MODEL = "claude-sonnet-4-5"
OUR_WAYS = [Way.CACHED_PREFIX, Way.STANDALONE]  # the provider's own has no material that could be cut
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SUMMARY = "\n".join(f"{heading(number)}\n- part {number}" for number in range(1, len(SECTIONS) + 1))
USAGE = {"input_tokens": 1_000, "output_tokens": 200}


def said(text: str = f"<analysis>a</analysis><summary>\n{SUMMARY}\n</summary>", **more: Any) -> Completion:
    values: dict[str, Any] = {
        "stop_reason": "end_turn",
        "model": MODEL,
        "response_id": "msg_1",
        "request_id": "req_1",
        "usage": USAGE,
        "blocks": ("text",),
    }
    return Completion(text=text, **{**values, **more})


@dataclass
class Clock:
    """Moves only where somebody pauses."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class ScriptedModel:
    """Answers in turn; the last answer for ever. Refuses a request that the API would refuse."""

    answers: list[Completion | Exception]
    clock: Clock = field(default_factory=Clock)
    takes_seconds: float = 0.0
    requests: list[ModelRequest] = field(default_factory=list)

    def complete(
        self, *, request: ModelRequest, seconds: float, silence_seconds: float, heard: Callable[[int], None]
    ) -> Completion:
        assert validate_messages(messages=request.messages) == []
        assert request.compaction or request.messages[-1]["role"] == "user"
        assert seconds > 0
        self.requests.append(request)
        self.clock.now += self.takes_seconds
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        heard(len(answer.text))
        return answer


@dataclass
class Book:
    calls: list[CallRecord] = field(default_factory=list)

    def record(self, *, call: CallRecord) -> None:
        self.calls.append(call)

    @property
    def outcomes(self) -> list[str]:
        return [call.outcome for call in self.calls]


@dataclass
class Heard(Silent):
    """Progress that is remembered."""

    told: list[tuple[str, float, int]] = field(default_factory=list)

    def report(self, *, stage: str, fraction: float, tokens: int = 0) -> None:
        self.told.append((stage, fraction, tokens))


def conversation_of(
    messages: Sequence[Message], *, view: ContextView | None = None, warm: bool = True, **more: Any
) -> Conversation:
    values: dict[str, Any] = {"model": MODEL, "system": "be careful", "tools": None, "limits": model_info(MODEL)}
    return Conversation(
        view=view or fold(messages=messages, boundaries=[], family=FAMILY), is_warm=warm, **{**values, **more}
    )


def request_of(
    messages: Sequence[Message], *, tail: int = 0, policy: Policy | None = None, **more: Any
) -> SummaryRequest:
    """A summary of all but the last `tail` messages."""
    compacted = list(messages[: len(messages) - tail])
    values: dict[str, Any] = {
        "history": compacted,
        "compacted": compacted,
        "tail": list(messages[len(messages) - tail :]),
        "budget_tokens": 4_000,
        "family": FAMILY,
        "policy": policy or Policy(),
        "conversation": conversation_of(messages),
    }
    return SummaryRequest(**{**values, **more})


@dataclass
class Asked:
    """A summariser with all that it touches."""

    model: ScriptedModel
    book: Book = field(default_factory=Book)
    progress: Heard = field(default_factory=Heard)
    override: str = ""
    limits: ModelInfo | None = None

    def __post_init__(self) -> None:
        self.summarizer = ModelSummarizer(
            model=self.model,
            calls=self.book,
            limits_of=lambda name: self.limits or model_info(name),
            now=lambda: NOW,
            override_model=self.override,
            clock=self.model.clock,
            pause=self.model.clock.pause,
        )

    def summarize(self, request: SummaryRequest) -> Any:
        return self.summarizer.summarize(request=request, progress=self.progress)


def asking(*answers: Completion | Exception, **more: Any) -> Asked:
    return Asked(model=ScriptedModel(answers=list(answers) or [said()]), **more)


def small_window(tokens: int) -> ModelInfo:
    return ModelInfo(tokens, 8_000, TokenizerFamily.UNTIL_OPUS_4_6)


def failed(problem: Any, **more: Any) -> ProviderError:
    return ProviderError(problem=problem, **more)
