"""Compact a session in the foreground."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from compaction_app import actions
from compaction_app.models import CompactionRun, RunStatus
from sessions_app.management.base import OneLineCommand
from sessions_app.management.terminal import Bar, find_session, printable


class Command(OneLineCommand):
    help = "Compacts a session now, with live progress, and prints what came of it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("session", help="the session's id, or its external id")
        parser.add_argument("instructions", nargs="*", help="what the summary should pay attention to")

    def handle(self, *args: Any, **options: Any) -> None:
        session = find_session(options["session"])
        with Bar(total=1, label="compacting", out=sys.stderr) as bar:

            def listen(stage: str, fraction: float) -> None:
                bar.show(fraction, label=stage)

            try:
                run = actions.compact_now(
                    session=session,
                    instructions=" ".join(options["instructions"]),
                    now=timezone.now(),
                    listener=listen,
                )
            except actions.ActiveRun as active:
                raise CommandError(f"the session has an active run already: {active.run.uuid}") from active
        self._print(run)

    def _print(self, run: CompactionRun) -> None:
        for step in run.steps.all():
            self.stdout.write(f"{step.link}: {printable(step.why)}")
        if run.status == RunStatus.FAILED:
            raise CommandError(f"{run.failure_reason}: {printable(run.detail)}")
        if run.status != RunStatus.SUCCEEDED or run.boundary is None:
            raise CommandError(f"run {run.uuid} is {run.status}; a worker has taken it")
        before, after = run.tokens_before or 0, run.tokens_after or 0
        freed = 100 * (before - after) / before if before else 0
        self.stdout.write(
            f"run {run.uuid}: {before:,} -> {after:,} tokens (estimated), {freed:.0f}% freed; "
            f"boundary {run.boundary.uuid}"
        )
