"""Say what fills a session's context."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from sessions_app import selectors
from sessions_app.catalog import tokenizer_family
from sessions_app.management.base import OneLineCommand
from sessions_app.management.terminal import find_session, printable
from sessions_app.models import Session
from sessions_app.transcript.analysis import ContextAnalysis, analyze_context

BAR = 30
ROWS = 10


class Command(OneLineCommand):
    help = "Prints what fills a session's context now, as a report, or as data with --json. Changes nothing."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("session", help="the session's id, or its external id")
        parser.add_argument("--json", action="store_true", help="as data")

    def handle(self, *args: Any, **options: Any) -> None:
        session = find_session(options["session"])
        view = selectors.context_view(session=session)
        analysis = analyze_context(view=view, family=tokenizer_family(session.model))
        if options["json"]:
            totals = {
                "session": str(session.uuid),
                "context_tokens": session.context_tokens,
                "context_source": session.context_source,
                "overhead_tokens": session.overhead_tokens,
            }
            self.stdout.write(json.dumps({**totals, **analysis.as_json()}, indent=2))
            return
        self.stdout.write("\n".join(_report(session, analysis)))


def _report(session: Session, found: ContextAnalysis) -> Iterator[str]:
    yield printable(str(session))
    if not found.messages and not found.summary_tokens:
        yield "no message in it yet"
        return
    yield f"context {session.context_tokens:,} tokens ({session.context_source})"
    yield f"shown to the model {found.view_tokens:,} tokens (estimated)"
    yield ""
    rows = [
        ("system, tools and the like", session.overhead_tokens),
        ("summary", found.summary_tokens),
        ("attachments", found.attachments_tokens),
        ("user texts", found.roles["user"]),
        ("assistant texts", found.roles["assistant"]),
        ("thinking", found.thinking_tokens),
        *((f"tool {tool.name}: calls", tool.request_tokens) for tool in found.tools[:ROWS]),
        *((f"tool {tool.name}: results", tool.result_tokens) for tool in found.tools[:ROWS]),
    ]
    most = max((tokens for _, tokens in rows), default=1) or 1
    for label, tokens in sorted((row for row in rows if row[1]), key=lambda row: -row[1]):
        yield f"  {printable(label)[:36]:<36} {tokens:>9,}  {'#' * max(1, BAR * tokens // most)}"
    if found.repeated_reads:
        yield ""
        yield "files read more than once (tokens of all but the newest reading)"
        for read in found.repeated_reads[:ROWS]:
            yield f"  {read.reads:>3} x {read.wasted_tokens:>9,}  {printable(read.path)}"
    yield ""
    yield "largest messages"
    for one in found.largest:
        yield f"  position {one.position:>6} {one.role:<10} {one.tokens:>9,}"
