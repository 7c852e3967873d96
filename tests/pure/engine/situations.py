"""Situations for links and chains, without a database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from compaction_app.engine.outcome import CompactionRefused, FailureReason
from compaction_app.engine.ports import Progress, Silent, SummaryRequest, SummaryResult
from compaction_app.engine.summary import heading
from compaction_app.engine.values import Situation, Trigger
from sessions_app.catalog import model_info
from sessions_app.policy import Policy
from sessions_app.transcript.boundary import Boundary
from sessions_app.transcript.messages import Message
from sessions_app.transcript.view import fold
from sessions_app.transcript.window import window_of
from tests.build import FAMILY, Talk, res, use

GOOD = "\n".join(f"{heading(number)}\n- x" for number in range(1, 10))
NOW = datetime(2026, 1, 1, tzinfo=UTC)
MODEL = "claude-sonnet-4-5"


@dataclass
class FixedSummarizer:
    """Writes the same text each time; with `refuses` it fails for that reason."""

    text: str = GOOD
    refuses: FailureReason | None = None
    requests: list[SummaryRequest] = field(default_factory=list)

    def summarize(self, *, request: SummaryRequest, progress: Progress) -> SummaryResult:
        self.requests.append(request)
        if self.refuses:
            raise CompactionRefused(reason=self.refuses, detail="refused by the test")
        return SummaryResult(text=self.text, summarizer="fixed")


def reads(count: int, *, size: int = 4_000, name: str = "Read") -> Talk:
    """A talk with `count` tool rounds, each result about `size` characters."""
    talk = Talk()
    for number in range(count):
        talk.u(f"step {number}")
        talk.a(use(f"c{number}", name, file_path=f"/p/f{number}.py"))
        talk.u(res(f"c{number}", f"line {number} of it\n" * (size // 16)))
        talk.a(f"step {number} is done")
    return talk


def situation_of(
    messages: Sequence[Message],
    *,
    boundaries: Sequence[Boundary] = (),
    idle: timedelta | None = timedelta(seconds=42),
    trigger: Trigger = Trigger.PREPARE,
    summarizer: FixedSummarizer | None = None,
    overhead: int = 0,
    tokens: int | None = None,
    **figures: Any,
) -> Situation:
    """`idle`: time since the last assistant message, None: there was none; `figures`: of the policy."""
    policy = Policy(**figures)
    view = fold(messages=messages, boundaries=boundaries, family=FAMILY)
    return Situation(
        view=view,
        tokens=view.tokens + overhead if tokens is None else tokens,
        overhead_tokens=overhead,
        last_position=len(messages),
        policy=policy,
        family=FAMILY,
        trigger=trigger,
        now=NOW,
        window=window_of(policy=policy, model=model_info(MODEL)),
        originals=lambda up_to: [m for m in messages if m.position <= up_to],
        summarizer=summarizer or FixedSummarizer(),
        progress=Silent(),
        shown_ratio=(tokens - overhead) / view.tokens if tokens and view.tokens else 1.0,
        last_assistant_at=None if idle is None else NOW - idle,
    )
