"""One compaction by hand with the embedded summariser."""

from __future__ import annotations

import time

from django.utils import timezone

from compaction_app import actions
from tests.benchmarks.measuring import say
from tests.benchmarks.sample import import_sample


def run() -> None:
    session = import_sample().session
    began = time.perf_counter()
    done = actions.compact_now(
        session=session, wanted=actions.Wanted(), now=timezone.now(), listener=lambda stage, fraction: None
    )
    say(
        "compact_sample",
        seconds=round(time.perf_counter() - began, 2),
        tokens_before=done.tokens_before,
        tokens_after=done.tokens_after,
    )
