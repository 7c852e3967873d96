"""Text made to be slow to search: the work stays linear. Bounds are far above what is measured (0.1 s)."""

from __future__ import annotations

import time

import pytest

from compaction_app.engine.extractive import summarize
from compaction_app.engine.ports import SummaryRequest
from sessions_app.policy import Policy
from tests.build import FAMILY, Talk, res, use


@pytest.mark.parametrize("unit", ["a.", "a", "A1b2", "a/", "--a", "_a", " a", "\n", "x" * 499 + " ", "é."])
def test_hostile_text_takes_no_time(unit: str) -> None:
    hostile = unit * (60_000 // len(unit))
    talk = Talk().u("go " + hostile).a(hostile, use("c", "Bash", command=f"echo '<{hostile}>' > x.txt"))
    talk.u(res("c", hostile, is_error=True)).a("ok")
    began = time.process_time()
    summarize(
        request=SummaryRequest(
            history=talk.messages,
            tail=(),
            budget_tokens=4_000,
            family=FAMILY,
            policy=Policy(),
            instructions=hostile[:16_000],
        )
    )
    assert time.process_time() - began < 8
