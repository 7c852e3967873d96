"""Benchmarks: one JSON object a line. Run by `make bench`, on a database of their own.

Everything is compared side by side in one run, so the ratios hold on a noisy machine; single figures do not.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import django

FOLDER = tempfile.TemporaryDirectory()
os.environ["DATA_DIR"] = FOLDER.name
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "compaction_site.settings")
django.setup()

from django.core.management import call_command  # noqa: E402
from django.utils import timezone  # noqa: E402

from compaction_app import actions  # noqa: E402
from sessions_app import selectors  # noqa: E402
from sessions_app.models import Session  # noqa: E402
from sessions_app.policy import Policy  # noqa: E402
from sessions_app.services.append import append_messages  # noqa: E402
from sessions_app.services.boundaries import commit_boundary  # noqa: E402
from sessions_app.services.transcripts import import_transcript  # noqa: E402
from sessions_app.transcript.boundary import BoundaryDraft, BoundaryKind  # noqa: E402
from sessions_app.transcript.request import build_request  # noqa: E402
from tests.build import res, use  # noqa: E402
from tests.factories import assistant, bulk_history, make_session, make_team, user  # noqa: E402

SAMPLE = Path(__file__).resolve().parent.parent.parent / "samples" / "coding-session.jsonl"
SIZES = (100, 10_000, 100_000)
ROUNDS = 60


def say(name: str, **figures: Any) -> None:
    print(json.dumps({"benchmark": name, **figures}), flush=True)


def milliseconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return 1_000 * (time.perf_counter() - began)


def by_size(name: str, act: Callable[[Session, int], object], sessions: dict[int, Session]) -> None:
    """The same act on histories of several lengths in turn; the ratio of medians to the shortest."""
    taken: dict[int, list[float]] = {size: [] for size in sessions}
    for number in range(ROUNDS):
        for size, session in sessions.items():
            taken[size].append(milliseconds(lambda s=session, n=number: act(s, n)))  # type: ignore[misc]
    medians = {size: statistics.median(values) for size, values in taken.items()}
    shortest = medians[min(medians)]
    for size, median in medians.items():
        say(name, history=size, median_ms=round(median, 2), ratio_to_shortest=round(median / shortest, 2))


def append_pair(session: Session, number: int) -> object:
    call = f"c{number}"
    turn = [
        assistant([use(call)], uuid=f"a{number}", message_id=f"bench{number}"),
        user([res(call)], uuid=f"u{number}"),
    ]
    return append_messages(session_id=session.pk, incoming=turn, now=timezone.now())


def read_context(session: Session, number: int) -> object:
    return build_request(view=selectors.context_view(session=session))


def hide_all_but(session: Session, *, shown: int) -> None:
    """A boundary after which every session shows the same number of messages, whatever lies before."""
    session.refresh_from_db()
    draft = BoundaryDraft(kind=BoundaryKind.FULL, covers_to=session.last_position - shown, summary="what was")
    commit_boundary(
        session_id=session.pk,
        draft=draft,
        trigger="manual",
        expected_head_id=None,
        as_of=session.last_position,
        tokens_before=session.context_tokens,
        now=timezone.now(),
    )


def flat_cost() -> None:
    sessions = {size: make_session() for size in SIZES}
    for size, session in sessions.items():
        bulk_history(session, count=size)
    by_size("append_two_messages", append_pair, sessions)
    for session in sessions.values():
        hide_all_but(session, shown=50)
    by_size("read_context_after_boundary", read_context, sessions)


def import_speed() -> None:
    lines = SAMPLE.read_bytes().splitlines()
    parse = min(milliseconds(lambda: [json.loads(line) for line in lines]) for _ in range(3))

    def load() -> None:
        with SAMPLE.open("rb") as stream:
            import_transcript(team=make_team(), stream=stream, name=SAMPLE.name, policy=Policy(), now=timezone.now())

    took = min(milliseconds(load) for _ in range(3))
    say("import_sample", ms=round(took), json_loads_alone_ms=round(parse, 1), ratio=round(took / parse, 1))


def compaction_of_the_sample() -> None:
    with SAMPLE.open("rb") as stream:
        report = import_transcript(
            team=make_team(), stream=stream, name=SAMPLE.name, policy=Policy(), now=timezone.now()
        )
    began = time.perf_counter()
    run = actions.compact_now(
        session=report.session, instructions="", now=timezone.now(), listener=lambda stage, fraction: None
    )
    say(
        "compact_sample",
        seconds=round(time.perf_counter() - began, 2),
        tokens_before=run.tokens_before,
        tokens_after=run.tokens_after,
    )


if __name__ == "__main__":
    call_command("migrate", verbosity=0)
    flat_cost()
    import_speed()
    compaction_of_the_sample()
    FOLDER.cleanup()
