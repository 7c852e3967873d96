"""What one can do about failed compactions, beside trying them again one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from compaction_app.actions.compacting import NothingToCompact
from compaction_app.actions.runs import retry_run
from compaction_app.models import CompactionRun, FailureGroup, FailureNote
from compaction_app.services import failure_reviews
from compaction_app.services.approvals import Decider
from compaction_app.services.cancelling import WrongStatus
from compaction_app.services.partial import PartialRefused
from compaction_app.services.runs import ActiveRun
from sessions_app.models import Session


@dataclass(slots=True)
class Retried:
    """What came of trying several runs again: those that were queued; for each other one, why not."""

    queued: list[CompactionRun] = field(default_factory=list)
    passed: list[tuple[CompactionRun, str]] = field(default_factory=list)


def acknowledge_failures(*, groups: Iterable[FailureGroup], by: Decider, note: str = "", now: datetime) -> int:
    """Out of the queue until it happens again; how many were in it. `groups`: as whoever asks has seen them."""
    return failure_reviews.acknowledge(groups=groups, by=by, note=note, now=now)


def reopen_failures(*, group: FailureGroup, by: Decider, note: str = "", now: datetime) -> bool:
    """Back into the queue; False where it is there."""
    return failure_reviews.reopen(group=group, by=by, note=note, now=now)


def note_on_failures(*, group: FailureGroup, by: Decider, note: str, now: datetime) -> FailureNote:
    """A word for whoever looks at the group next."""
    return failure_reviews.write_note(group=group, kind=FailureNote.Kind.NOTE, text=note, by=by, now=now)


def retry_failures(
    *, group: FailureGroup, runs: Sequence[CompactionRun], by: Decider, summarizer: str | None, now: datetime
) -> Retried:
    """Try several runs of a group again, each by itself: one that can not be keeps back no other.

    `runs`: with session and team loaded. A session is tried once, by its newest run. `summarizer`: None as it was.
    """
    done, seen = Retried(), set[int]()
    for run in sorted(runs, key=lambda one: -one.pk):
        if run.session_id in seen:
            done.passed.append((run, "a newer run of the same session was chosen too"))
            continue
        seen.add(run.session_id)
        try:
            queued = retry_run(
                run=run, summarizer=summarizer, now=now, source=CompactionRun.Source.ADMIN, requested_by=by.user
            )
        except (ActiveRun, NothingToCompact, PartialRefused, WrongStatus, Session.DoesNotExist) as refused:
            done.passed.append((run, str(refused)))
        else:
            done.queued.append(queued)
    if done.queued:
        told = f"{len(done.queued)} of {len(runs)} runs" + (f", by {summarizer}" if summarizer else "")
        failure_reviews.write_note(group=group, kind=FailureNote.Kind.RETRIED, text=told, by=by, now=now)
    return done
