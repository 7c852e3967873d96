"""Say what fills a session's context."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.utils import timezone

from compaction_app import selectors
from compaction_app.management.analysis_report import lines
from sessions_app.management.base import OneLineCommand
from sessions_app.management.terminal import find_session


class Command(OneLineCommand):
    help = "Prints what fills a session's context now, as a report, or as data with --json. Changes nothing."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("session", help="the session's id, or its external id")
        parser.add_argument("--json", action="store_true", help="as data, the same as the API gives")

    def handle(self, *args: Any, **options: Any) -> None:
        session = find_session(options["session"])
        report = selectors.analysis(session=session, now=timezone.now())
        if options["json"]:
            self.stdout.write(json.dumps(report.as_json(), indent=2))
        else:
            self.stdout.write("\n".join(lines(title=str(session), model=session.model, report=report)))
