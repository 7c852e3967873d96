"""Counting the queries of a call, and showing them where the count is off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import connection
from django.test.utils import CaptureQueriesContext

ASIDE = ("SAVEPOINT", "RELEASE", "BEGIN", "COMMIT", "ROLLBACK")


def queries_of(call: Callable[[], Any]) -> list[str]:
    """The statements of the call without those of transactions."""
    with CaptureQueriesContext(connection) as captured:
        answer = call()
    assert answer.status_code < 300, answer.content
    return [q["sql"] for q in captured if not q["sql"].startswith(ASIDE)]


def assert_same_count(few: list[str], many: list[str], *, most: int) -> None:
    shown = "\n".join(many)
    assert len(few) == len(many) <= most, f"{len(few)} and {len(many)} queries, at most {most} allowed:\n{shown}"
