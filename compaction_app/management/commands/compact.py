"""Compact a session in the foreground."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from compaction_app import actions
from compaction_app.engine.command import Scope
from compaction_app.models import CompactionRun, RunStatus
from sessions_app.management.base import OneLineCommand
from sessions_app.management.terminal import Bar, find_session, printable
from sessions_app.models import Session

LOOK_EVERY = 1.0  # seconds; the run's row tells no oftener what a model has written


class Command(OneLineCommand):
    help = "Compacts a session now, with live progress, and prints what came of it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("session", help="the session's id, or its external id")
        parser.add_argument(
            "instructions",
            nargs="*",
            default=[],  # else argparse names them among what is required
            help='what the summary should pay attention to; also as it is typed elsewhere: "/compact keep the SQL"',
        )
        parser.add_argument("--dry-run", action="store_true", help="only tell what would be done")
        part = parser.add_mutually_exclusive_group()
        part.add_argument("--up-to", metavar="UUID", help="compact what is before this message")
        part.add_argument("--from", metavar="UUID", help="compact this message and what follows")

    def handle(self, *args: Any, **options: Any) -> None:
        session = find_session(options["session"])
        if options["dry_run"]:
            self._foretell(session, options)
            return
        with Bar(total=1, label="compacting", out=sys.stderr) as bar:
            try:
                run = actions.compact_now(
                    session=session,
                    wanted=actions.Wanted.from_typed(_typed(options)),
                    now=timezone.now(),
                    listener=_shown_by(bar, session),
                )
            except actions.ActiveRun as active:
                raise CommandError(f"the session has an active run already: {active}") from active
            except actions.CommandError as wrong:
                raise CommandError(str(wrong)) from wrong
            except actions.PartialRefused as refused:
                raise CommandError(f"{refused.code}: {refused}") from refused
        self._print(run)

    def _foretell(self, session: Session, options: dict[str, Any]) -> None:
        try:
            plan = actions.plan_compaction(session=session, wanted=actions.Wanted.from_typed(_typed(options)))
        except actions.CommandError as wrong:
            raise CommandError(str(wrong)) from wrong
        run = plan.run
        for name, step in run.forecast.trail if run else []:
            self.stdout.write(f"{name}: {printable(step.why)}")
        if plan.code or run is None:
            raise CommandError(f"nothing would be done: {plan.code}: {printable(plan.detail)}")
        if plan.cut and plan.cut.moved:
            self.stdout.write(f"cut: {plan.wanted.scope} {printable(plan.cut.uuid)}, the nearest place")
        usd = run.forecast.usd
        cost = f"; about {usd:,.4f} USD" if usd is not None else ""
        self.stdout.write(
            f"dry run: {run.forecast.tokens_before:,} -> {run.forecast.tokens_after:,} tokens (estimated); "
            f"{len(run.compacted)} messages replaced, {len(run.kept)} kept; by {run.summarizer}{cost}"
        )
        if run.awaits_approval:
            self.stdout.write("the run would wait for somebody who accepts its summary (approve_compactions)")

    def _print(self, run: CompactionRun) -> None:
        for step in run.steps.all():
            self.stdout.write(f"{step.link}: {printable(step.why)}")
        if run.status == RunStatus.FAILED:
            raise CommandError(f"{run.failure_reason}: {printable(run.detail)}")
        if run.status == RunStatus.AWAITING_APPROVAL:
            self.stdout.write(f"run {run.uuid} waits for somebody who accepts its summary (approve_compactions)")
            return
        if run.status != RunStatus.SUCCEEDED or run.boundary is None:
            raise CommandError(f"run {run.uuid} is {run.status}; a worker has taken it")
        if run.scope != Scope.WHOLE:
            moved = f", the nearest to {printable(run.scope_uuid)}" if run.cut_uuid != run.scope_uuid else ""
            self.stdout.write(f"cut: {run.scope} {printable(run.cut_uuid)}{moved}")
        if run.model:
            cost = f", {run.cost_usd:,.4f} USD" if run.cost_usd is not None else ""
            self.stdout.write(f"summary by {printable(run.boundary.model or run.boundary.summarizer)}{cost}")
        before, after = run.tokens_before or 0, run.tokens_after or 0
        freed = 100 * (before - after) / before if before else 0
        self.stdout.write(
            f"run {run.uuid}: {before:,} -> {after:,} tokens (estimated), {freed:.0f}% freed; "
            f"boundary {run.boundary.uuid}"
        )


def _typed(options: dict[str, Any]) -> str:
    """The words and options as one command. An option's value that is no uuid is refused with the rest."""
    words = " ".join(options["instructions"])
    for scope in ("up_to", "from"):
        if options[scope] is not None:
            return f"{scope}:{options[scope]} {words}"
    return words


def _shown_by(bar: Bar, session: Session) -> Callable[[str, float], None]:
    """A listener that draws the bar: the stage, and how much a model has written so far."""
    written, looked_at = 0, 0.0
    active = CompactionRun.objects.filter(session=session).active().values_list("tokens_streamed", flat=True)

    def listen(stage: str, fraction: float) -> None:
        nonlocal written, looked_at
        if not bar.live:
            return
        if time.monotonic() - looked_at >= LOOK_EVERY:
            written, looked_at = active.first() or 0, time.monotonic()
        bar.show(fraction, label=f"{stage}, about {written:,} tokens" if written else stage)

    return listen
