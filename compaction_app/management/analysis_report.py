"""A context analysis for a terminal: plain text, at most 91 columns, no colour needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from unicodedata import combining, east_asian_width

from compaction_app.engine.analysis import Report
from sessions_app.management.terminal import printable
from sessions_app.transcript.analysis import Part

WIDTH = 91
LABEL, BAR, WHAT = 38, 28, 28
ROWS = 10  # tools that are listed; the others are one row

LABELS = {
    Part.PROMPTS: "prompts",
    Part.INJECTED: "injected into user messages",
    Part.LOCAL_OUTPUT: "output of local commands",
    Part.ASSISTANT_TEXT: "assistant's text",
    Part.THINKING: "thinking",
    Part.SYSTEM_TEXT: "system messages",
    Part.TOOL_REQUESTS: "tool calls",
    Part.TOOL_RESULTS: "tool results",
    Part.MEDIA: "images and documents",
    Part.SUMMARY: "summary",
    Part.ATTACHMENTS: "attachments",
    Part.OTHER: "other blocks",
}


def lines(*, title: str, model: str, report: Report) -> Iterator[str]:
    """The report, line by line. Whatever comes from the transcript is made harmless."""
    yield fitted(f"{printable(title)}  ({printable(model) or 'unknown model'})", WIDTH).rstrip()
    if not report.shown.messages and not report.shown.tokens:
        yield "no message in it yet"
        return
    context = report.context
    filled = _bar(context.percent_used, whole=100, width=BAR)
    yield (
        f"context {context.tokens:,} of {context.context_window:,} tokens "
        f"[{filled:.<{BAR}}] {context.percent_used:.1f}%  {context.source}"
    )
    for section in (_parts, _tools, _attachments, _reads, _largest, _links):
        found = list(section(report))
        if found:
            yield from ("", *found)
    if report.remarks:
        yield from ("", "WHAT STANDS OUT")
        for remark in report.remarks:
            yield from _wrapped(remark, mark="  * ")


def _parts(report: Report) -> Iterator[str]:
    yield f"{'WHAT FILLS IT':<{LABEL}}{'tokens':>11}{'%':>8}"
    over = report.overhead
    how = "measured" if over.measured else "estimated"
    rows = [
        (f"system and tools ({how})", over.tokens, over.percent),
        *((LABELS[Part(name)], share.tokens, share.percent) for name, share in report.shown.parts.items()),
        ("difference to the estimates", report.difference.tokens, report.difference.percent),
    ]
    most = max(percent for _, _, percent in rows)
    for label, tokens, percent in sorted((row for row in rows if row[1]), key=lambda row: -row[1]):
        yield _row(label, tokens, percent, most)
        if label == rows[0][0] and (over.system.tokens or over.tools.tokens):
            for name, share in (("system prompt", over.system), ("tools", over.tools), ("other", over.other)):
                if share.tokens:
                    yield f"    {name:<{LABEL - 4}}{share.tokens:>11,}{share.percent:>8.1f}"
    yield f"{'  all together':<{LABEL}}{report.context.tokens:>11,}{_sum(report):>8.1f}"
    for name, found in (("image", report.images), ("document", report.documents)):
        if found.count:
            yield f"  {found.count:,} {name}{'' if found.count == 1 else 's'}: {found.tokens:,} tokens"
    cleared = report.cleared
    if cleared.count:
        yield f"  results cleared: {cleared.count:,}; in full they would take {cleared.tokens:,} tokens"


def _sum(report: Report) -> float:
    return 100.0 if report.context.tokens else 0.0


def _tools(report: Report) -> Iterator[str]:
    if not report.tools:
        return
    yield f"{'BY TOOL':<26}{'calls':>7}{'requests':>10}{'results':>10}{'%':>7}{'errors':>7}{'cleared':>8}"
    most = max(tool.percent for tool in report.tools)
    for tool in report.tools[:ROWS]:
        bar = _bar(tool.percent, whole=most, width=WIDTH - 77)
        yield (
            f"  {fitted(tool.name, 24)}{tool.calls:>7,}{tool.request_tokens:>10,}{tool.result_tokens:>10,}"
            f"{tool.percent:>7.1f}{tool.errors or '':>7}{tool.cleared or '':>8}  {bar}"
        ).rstrip()
    rest = report.tools[ROWS:]
    if rest:
        tokens = sum(tool.request_tokens + tool.result_tokens for tool in rest)
        yield f"  and {len(rest)} more tool{'s' if len(rest) > 1 else ''}: {tokens:,} tokens"


def _attachments(report: Report) -> Iterator[str]:
    if report.attachments:
        yield f"{'RESTORED AFTER THE SUMMARY':<{LABEL}}{'tokens':>11}{'%':>8}"
        most = max(row.percent for row in report.attachments)
        for row in report.attachments:
            yield _row(f"{row.count} x {row.kind}", row.tokens, row.percent, most)


def _reads(report: Report) -> Iterator[str]:
    found = report.repeated_reads
    if found.repeated:
        yield f"{'READ MORE THAN ONCE':<{LABEL}}{'wasted':>11}{'%':>8}{'reads':>7}"
        for row in found.files:
            yield f"  {fitted(row.path, LABEL - 2, end=True)}{row.wasted_tokens:>11,}{row.percent:>8.1f}{row.reads:>7,}"
        yield f"{'  of all files':<{LABEL}}{found.wasted_tokens:>11,}{found.percent:>8.1f}"


def _largest(report: Report) -> Iterator[str]:
    if not report.largest:
        return
    yield f"{'LARGEST MESSAGES':<{WHAT}}{'tokens':>9}{'%':>6}{'position':>10}  uuid"
    for row in report.largest:
        part = Part(row.what)
        what = {Part.TOOL_REQUESTS: "call of", Part.TOOL_RESULTS: "result of"}.get(part)
        words = (what, row.tool or "an unknown tool", row.target.rpartition("/")[2]) if what else (LABELS[part],)
        label = " ".join(word for word in words if word)
        uuid = fitted(row.uuid, WIDTH - WHAT - 27).rstrip()
        yield f"  {fitted(label, WHAT - 2)}{row.tokens:>9,}{row.percent:>6.1f}{row.position:>10,}  {uuid}"


def _links(report: Report) -> Iterator[str]:
    yield f"{'WHAT CLEARING COULD FREE':<{LABEL}}{'tokens':>11}{'results':>8}{'now':>6}"
    for link in report.links:
        yield f"  {link.link:<{LABEL - 2}}{link.tokens:>11,}{link.results:>8,}{'yes' if link.would_run else 'no':>6}"
        # Where it would run, its words are those of a link that has run; here nothing was done.
        yield from _wrapped(f"would: {link.why}" if link.would_run else link.why, mark="    ")


def _wrapped(text: str, *, mark: str) -> Iterator[str]:
    """The words on as many lines as they need, the first after the mark; a word that no line holds is cut."""
    line, room = mark, WIDTH - len(mark)
    left = room
    for word in printable(text).split(" "):
        shown = fitted(word, room) if columns(word) > room else word
        if columns(shown) > left:
            yield line.rstrip()
            line, left = " " * len(mark), room
        line += f"{shown} "
        left -= columns(shown) + 1
    yield line.rstrip()


def _row(label: str, tokens: int, percent: float, most: float) -> str:
    bar = _bar(percent, whole=most, width=BAR)
    return f"  {fitted(label, LABEL - 2)}{tokens:>11,}{percent:>8.1f}  {bar}".rstrip()


def _bar(part: float, *, whole: float, width: int) -> str:
    """As many marks as the part is of the whole; at least one of anything."""
    if part <= 0 or whole <= 0:
        return ""
    return "#" * max(1, min(width, round(width * part / whole)))


def fitted(text: str, width: int, *, end: bool = False) -> str:
    """The text made harmless and exactly so many columns wide; `end`: its end is kept where it is too long."""
    chars: Sequence[str] = printable(text)
    if columns(chars) > width:
        kept, left = [], width - 1
        for char in reversed(chars) if end else chars:
            left -= columns(char)
            if left < 0:
                break
            kept.append(char)
        chars = ["…", *reversed(kept)] if end else [*kept, "…"]
    return "".join(chars) + " " * (width - columns(chars))


def columns(chars: Iterable[str]) -> int:
    """How wide a terminal shows these characters: wide ones take two columns, combining ones none."""
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in chars)
