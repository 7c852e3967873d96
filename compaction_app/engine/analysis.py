"""The context analysis as it is told (S13): each row with its share of the context, and remarks in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from compaction_app.engine.clearing import counted
from compaction_app.engine.relief import Relief
from sessions_app.policy import Policy
from sessions_app.transcript.analysis import ContextAnalysis, Counted, LargeMessage, Part, ToolShare
from sessions_app.transcript.repeated_reads import RepeatedRead


@dataclass(frozen=True, slots=True)
class Totals:
    """What the session's row tells, in tokens. `system_tokens`, `tools_tokens`: estimates of what the client gave."""

    context_tokens: int
    source: str
    context_window: int
    overhead_tokens: int
    overhead_measured: bool
    system_tokens: int
    tools_tokens: int


@dataclass(frozen=True, slots=True)
class Share:
    """Tokens, and per cent of the context."""

    tokens: int
    percent: float


@dataclass(frozen=True, slots=True)
class CountedShare:
    count: int
    tokens: int
    percent: float


@dataclass(frozen=True, slots=True)
class Context:
    tokens: int
    source: str
    context_window: int
    percent_used: float


@dataclass(frozen=True, slots=True)
class Overhead:
    """`system`, `tools`, `other` add up to `tokens`."""

    tokens: int
    percent: float
    measured: bool
    system: Share
    tools: Share
    other: Share


@dataclass(frozen=True, slots=True)
class Shown:
    """`parts` add up to `tokens`."""

    messages: int
    tokens: int
    percent: float
    parts: dict[str, Share]


@dataclass(frozen=True, slots=True)
class ToolRow:
    name: str
    calls: int
    request_tokens: int
    results: int
    result_tokens: int
    errors: int
    cleared: int
    percent: float


@dataclass(frozen=True, slots=True)
class AttachmentRow:
    kind: str
    count: int
    tokens: int
    percent: float


@dataclass(frozen=True, slots=True)
class ReadRow:
    path: str
    reads: int
    repeated: int
    wasted_tokens: int
    percent: float


@dataclass(frozen=True, slots=True)
class RepeatedReads:
    repeated: int
    wasted_tokens: int
    percent: float
    files: list[ReadRow]


@dataclass(frozen=True, slots=True)
class LargestRow:
    position: int
    uuid: str
    role: str
    what: str
    tool: str
    target: str
    tokens: int
    percent: float


@dataclass(frozen=True, slots=True)
class Report:
    """`overhead`, `shown` and `difference` add up to the context.

    `difference`: what was measured beyond the estimates, below zero where it was less.
    """

    context: Context
    overhead: Overhead
    shown: Shown
    difference: Share
    tools: list[ToolRow]
    attachments: list[AttachmentRow]
    images: CountedShare
    documents: CountedShare
    repeated_reads: RepeatedReads
    cleared: CountedShare
    largest: list[LargestRow]
    links: list[Relief]
    remarks: list[str]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def report(*, totals: Totals, found: ContextAnalysis, links: Sequence[Relief], policy: Policy) -> Report:
    """Lay what was found beside the context's size."""
    of = _Of(totals.context_tokens)
    return Report(
        context=Context(
            tokens=totals.context_tokens,
            source=totals.source,
            context_window=totals.context_window,
            percent_used=_Of(totals.context_window).percent(totals.context_tokens),
        ),
        overhead=_overhead(totals, of),
        shown=Shown(
            messages=found.messages,
            tokens=found.view_tokens,
            percent=of.percent(found.view_tokens),
            parts={part.value: of.share(tokens) for part, tokens in found.parts.items()},
        ),
        difference=of.share(totals.context_tokens - totals.overhead_tokens - found.view_tokens),
        tools=[of.tool(tool) for tool in found.tools],
        attachments=[
            AttachmentRow(kind, counted.count, counted.tokens, of.percent(counted.tokens))
            for kind, counted in sorted(found.attachments.items(), key=lambda row: -row[1].tokens)
        ],
        images=of.counted(found.images),
        documents=of.counted(found.documents),
        repeated_reads=RepeatedReads(
            repeated=found.repeated,
            wasted_tokens=found.wasted_tokens,
            percent=of.percent(found.wasted_tokens),
            files=[of.read(read) for read in found.repeated_reads],
        ),
        cleared=of.counted(found.cleared),
        largest=[of.message(message) for message in found.largest],
        links=list(links),
        remarks=list(_remarks(totals=totals, found=found, links=links, policy=policy)),
    )


class _Of:
    """Rows as shares of a whole."""

    def __init__(self, whole: int) -> None:
        self._whole = whole

    def percent(self, tokens: int) -> float:
        """One digit after the point; 0 of an empty context."""
        return round(100 * tokens / self._whole, 1) if self._whole > 0 else 0.0

    def share(self, tokens: int) -> Share:
        return Share(tokens=tokens, percent=self.percent(tokens))

    def counted(self, found: Counted) -> CountedShare:
        return CountedShare(count=found.count, tokens=found.tokens, percent=self.percent(found.tokens))

    def tool(self, tool: ToolShare) -> ToolRow:
        return ToolRow(**asdict(tool), percent=self.percent(tool.tokens))

    def read(self, read: RepeatedRead) -> ReadRow:
        return ReadRow(**asdict(read), percent=self.percent(read.wasted_tokens))

    def message(self, message: LargeMessage) -> LargestRow:
        return LargestRow(**asdict(message), percent=self.percent(message.tokens))


def _overhead(totals: Totals, of: _Of) -> Overhead:
    """System prompt and tools as estimated; scaled down where what was measured has no room for both."""
    told = totals.system_tokens + totals.tools_tokens
    fits = min(1.0, totals.overhead_tokens / told) if told else 1.0
    system = int(totals.system_tokens * fits)
    tools = int(totals.tools_tokens * fits)
    return Overhead(
        tokens=totals.overhead_tokens,
        percent=of.percent(totals.overhead_tokens),
        measured=totals.overhead_measured,
        system=of.share(system),
        tools=of.share(tools),
        other=of.share(totals.overhead_tokens - system - tools),
    )


def _remarks(*, totals: Totals, found: ContextAnalysis, links: Sequence[Relief], policy: Policy) -> Iterator[str]:
    """What stands out, in plain sentences; nothing where nothing does."""
    whole = totals.context_tokens
    if not whole:
        return
    if totals.overhead_tokens >= policy.analysis_large_share * totals.context_window:
        share = _percent(totals.overhead_tokens, totals.context_window)
        yield f"System prompt and tools take {share} of the window; no compaction makes them smaller."
    notable = policy.analysis_notable_share * whole
    if found.wasted_tokens >= notable and found.repeated_reads:
        worst = found.repeated_reads[0]
        told = _told(found.wasted_tokens, whole)
        yield f"Repeated reads waste {told}; most of it {worst.path}, read {worst.reads} times."
    yield from _link_remarks([link for link in links if link.results and link.tokens >= notable])
    for name, tokens in (
        ("Images and documents", found.images.tokens + found.documents.tokens),
        ("Outputs of local commands", found.parts[Part.LOCAL_OUTPUT]),
    ):
        if tokens >= notable:
            yield f"{name} take {_told(tokens, whole)}."
    yield from _large_remarks(found, whole=whole, large=policy.analysis_large_share * whole)
    difference = whole - totals.overhead_tokens - found.view_tokens
    if abs(difference) >= policy.analysis_large_share * whole:
        way = "more" if difference > 0 else "fewer"
        yield f"The context holds {abs(difference):,} tokens {way} than the estimates of its parts add up to."


def _large_remarks(found: ContextAnalysis, *, whole: int, large: float) -> Iterator[str]:
    for tool in found.tools:
        if tool.tokens >= large:
            yield f"{tool.name} takes {_told(tool.tokens, whole)}; {tool.result_tokens:,} of them are results."
    for message in found.largest[:1]:
        if message.tokens >= large and found.messages > 1:
            yield f"One message, at position {message.position}, takes {_told(message.tokens, whole)}."


def _link_remarks(links: Sequence[Relief]) -> Iterator[str]:
    """The first that would run, since a preparation stops there; else why the first of them does not."""
    ready = [link for link in links if link.would_run]
    for link in (ready or links)[:1]:
        if link.would_run:
            yield f"The {link.link} link could free {link.tokens:,} tokens now, in {counted(link.results)}."
        else:
            yield f"The {link.link} link could free {link.tokens:,} tokens, but does not run now: {link.why}."


def _told(tokens: int, whole: int) -> str:
    return f"{tokens:,} tokens: {_percent(tokens, whole)} of the context"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}%"
