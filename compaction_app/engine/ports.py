"""What is asked of the outside: somebody who writes a summary, somewhere to report progress, somebody who counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from compaction_app.engine.command import Scope
from compaction_app.engine.overflow import Overflow
from sessions_app.catalog import ModelInfo, TokenizerFamily
from sessions_app.policy import Policy
from sessions_app.transcript.messages import Message
from sessions_app.transcript.request import MessagesRequest
from sessions_app.transcript.view import ContextView


@dataclass(frozen=True, slots=True)
class Conversation:
    """The conversation as its client sends it to the model, so that a summary request can share its cached prefix.

    `model`: the session's own, as the API takes it; "" where nobody told. `view`: with results that edits clear sent
    whole (and marked). `is_warm`: whether the provider still holds the prefix in its cache. `ratio`: billed tokens per
    estimated one. `overhead_tokens`: system prompt and tools.
    """

    model: str
    system: Any
    tools: Any
    view: ContextView
    limits: ModelInfo
    is_warm: bool
    overhead_tokens: int = 0
    ratio: float = 1.0


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """What a summary is wanted of.

    `history`: originals of all that it replaces, back to the session's begin, oldest first (read when it is looked at);
    `told_before()`: a client's own summary that stands before them, "" where there is none (it reads them);
    `compacted`: of these, what the model has been shown verbatim so far; `tail`: what stays verbatim after it;
    `earlier_summary`: that of the boundary at the view's head, "" where there is none. `budget_tokens`: most that the
    text may take. `instructions`: of whoever asks; `hook_instructions`: of the team's hooks. `conversation`: None where
    no model is to be called. `kept_before`: what stays verbatim in front of the summary (S7, from); `scope`: which part
    is compacted. `facts`: what must survive, in words of the originals, that `earlier_summary` lacks, in lines;
    `covered_facts`: of all that this summary is to stand for, as its boundary will carry them (facts.py). `generation`:
    of `earlier_summary`, 0 where there is none. `in_haste`: whether a client can't go on before it is there.
    """

    history: Sequence[Message]
    tail: Sequence[Message]
    budget_tokens: int
    family: TokenizerFamily
    policy: Policy
    instructions: str = ""
    hook_instructions: str = ""
    compacted: Sequence[Message] = ()
    earlier_summary: str = ""
    conversation: Conversation | None = None
    kept_before: Sequence[Message] = ()
    scope: Scope = Scope.WHOLE
    facts: Sequence[str] = ()
    covered_facts: Mapping[str, Any] = field(default_factory=dict)
    told_before: Callable[[], str] = str
    generation: int = 0
    in_haste: bool = False


@dataclass(frozen=True, slots=True)
class SummaryResult:
    """The text, who wrote it, and what the calls for it used.

    `usage`: of all calls together, as the API tells it; empty without a call. `model`, `response_id`: as the provider
    names them. `shared_prefix`: whether the call that wrote it shared the conversation's prefix; None without a call.
    `blocks`: a provider's signed block that stands for the summary, to the letter; `text` is then what a person reads
    of it. `from_originals`: no earlier summary was used; `generation`: of a text that was there before, 0 else.
    `note`: what the reader of the run should know, in words.
    """

    text: str
    summarizer: str
    usage: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    prompt_version: str = ""
    response_id: str = ""
    shared_prefix: bool | None = None
    blocks: tuple[Mapping[str, Any], ...] = ()
    from_originals: bool = False
    generation: int = 0
    note: str = ""


class Progress(Protocol):
    def report(self, *, stage: str, fraction: float, tokens: int = 0) -> None:
        """Say how far the work is, 0 to 1. Raises CompactionCancelled when it should stop.

        `tokens`: estimate of what a model has written so far. Who waits reports too, at least once a second: a report
        tells that somebody still works on the run.
        """


class Silent:
    """Progress that nobody watches."""

    def report(self, *, stage: str, fraction: float, tokens: int = 0) -> None:
        pass


class ProviderProblem(StrEnum):
    """Why a call to the provider gave nothing."""

    CREDENTIALS = "credentials"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    TOO_LONG = "too_long"
    TOO_LARGE = "too_large"
    REFUSED = "refused"
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    UNREADABLE = "unreadable"


class ProviderError(Exception):
    """A call to the provider gave nothing. `status`: of HTTP, None where there was no answer. `code`: the API's own
    name of the cause (`compaction_…`), "" where it gave none.

    `overflow`: for TOO_LONG and TOO_LARGE, what the provider told of it. `retry_after`: seconds to wait before another
    try, as it asked. `usage`: what was billed all the same, where an answer had begun.
    The text holds neither key nor content: a provider's own message may quote the transcript.
    """

    def __init__(
        self,
        *,
        problem: ProviderProblem,
        status: int | None = None,
        request_id: str = "",
        overflow: Overflow | None = None,
        retry_after: float | None = None,
        usage: Mapping[str, Any] | None = None,
        code: str = "",
    ) -> None:
        self.problem, self.status, self.request_id, self.code = problem, status, request_id, code
        self.overflow, self.retry_after, self.usage = overflow, retry_after, dict(usage or {})
        told = [problem.value, code, f"HTTP {status}" if status else "", f"request {request_id}" if request_id else ""]
        super().__init__(", ".join(part for part in told if part))


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request of the Messages API. `betas`: names for its header. `compaction`: asks for the API's own compaction of
    the messages in place of an answer; it goes with no `context_management`."""

    model: str
    max_tokens: int
    messages: Sequence[Mapping[str, Any]]
    system: Any = None
    tools: Any = None
    context_management: Mapping[str, Any] = field(default_factory=dict)
    compaction: Mapping[str, Any] = field(default_factory=dict)
    betas: tuple[str, ...] = ()

    def body(self) -> dict[str, Any]:
        """What is sent as JSON; parts that are not there are left out."""
        optional = {
            "system": self.system,
            "tools": self.tools,
            "context_management": dict(self.context_management),
            "compaction": dict(self.compaction),
        }
        return {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "messages": list(self.messages),
            **{name: part for name, part in optional.items() if part},
        }


@dataclass(frozen=True, slots=True)
class Completion:
    """A response that has come to its end, whatever that was.

    `text`: of all text blocks, joined. `stop_reason`: None where the stream ended without one (it was cut off).
    `blocks`: types of its content blocks, in order. `usage`: as the API tells it. Names are storable and bounded.
    `compactions`: its compaction blocks to the letter, where they were asked for.
    """

    text: str
    stop_reason: str | None
    model: str
    response_id: str
    request_id: str
    usage: Mapping[str, Any]
    blocks: tuple[str, ...]
    compactions: tuple[Mapping[str, Any], ...] = ()


class LanguageModel(Protocol):
    def complete(
        self, *, request: ModelRequest, seconds: float, silence_seconds: float, heard: Callable[[int], None]
    ) -> Completion:
        """Send the request, streamed, and wait for the end of the response.

        `seconds`: longest for the whole call; `silence_seconds`: longest without a byte, before the first one too.
        `heard(characters)`: called with all characters of text so far, about once a second, also while nothing comes;
        what it raises ends the call at once, its connection with it, and is passed on. Raises ProviderError.
        """


class TokenCounter(Protocol):
    def count(self, *, model: str, request: MessagesRequest) -> int:
        """Size of the whole context, system prompt and tools with it, in tokens. Raises ProviderError."""


class Summarizer(Protocol):
    def summarize(self, *, request: SummaryRequest, progress: Progress) -> SummaryResult:
        """The nine-section summary. Raises CompactionRefused with the reason when there is none to be had."""
