"""Context analysis of a long session with tool calls: seconds, and what it adds to the process's memory at its peak.

Each size in a process of its own, forked off, so that one's peak does not hide in the other's.
"""

from __future__ import annotations

import os
import resource
import sys
import time

from django.db import connections

from compaction_app import selectors
from sessions_app.models import Session
from sessions_app.services.append import append_messages
from tests.benchmarks.measuring import say, skip
from tests.factories import NOW, make_session, turns

SIZES = (10_000, 100_000)
BATCH_TURNS = 500
PEAK_UNIT_BYTES = 1 if sys.platform == "darwin" else 1_024


def run() -> None:
    if not hasattr(os, "fork"):
        skip("analysis_100k", why="processes can't be forked on this system")
        return
    sessions = {size: make_session() for size in SIZES}
    for size, session in sessions.items():
        fill(session, count=size)
    peaks = {}
    for size, session in sessions.items():
        seconds, peaks[size] = in_a_fork(session)
        say(
            "analysis_100k",
            history=size,
            seconds=round(seconds, 2),
            peak_growth_mb=round(peaks[size] / 1e6, 1),
            growth_above_shortest_mb=round((peaks[size] - peaks[min(peaks)]) / 1e6, 1),
        )


def in_a_fork(session: Session) -> tuple[float, int]:
    """Seconds of one analysis, and bytes by which it raised the peak of memory."""
    connections.close_all()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, "{} {}".format(*measure(session)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        told = stream.read().split()
    os.waitpid(child, 0)
    if len(told) != 2:
        raise RuntimeError("the analysis failed in its process; its error stands above")
    return float(told[0]), int(told[1])


def measure(session: Session) -> tuple[float, int]:
    fresh = Session.objects.select_related("team").get(pk=session.pk)
    before, began = peak_bytes(), time.perf_counter()
    selectors.analysis(session=fresh, now=NOW)
    return time.perf_counter() - began, peak_bytes() - before


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * PEAK_UNIT_BYTES


def fill(session: Session, *, count: int) -> None:
    """`count` messages in turns of four: a prompt, a Read, its result, an answer."""
    for start in range(0, count // 4, BATCH_TURNS):
        batch = list(turns(min(BATCH_TURNS, count // 4 - start), start=start))
        append_messages(session_id=session.pk, incoming=batch, now=NOW)
