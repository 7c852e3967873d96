"""What a full compaction costs besides the model's own time, with dead history of several lengths behind it.

Each session shows the same number of live messages; what lies before them is hidden by a boundary. The model answers
at once, so all that is left is ours: reading, planning, building the request, storing.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from django.utils import timezone

from compaction_app import actions
from compaction_app.engine.model_summary.summarizer import ModelSummarizer
from compaction_app.engine.ports import Completion, ModelRequest
from compaction_app.engine.summary import SECTIONS, heading
from compaction_app.llm import factory
from compaction_app.models import RunStatus
from compaction_app.services import runs
from sessions_app.models import Session
from tests.benchmarks.flat_cost import WINDOW, hide_all_but
from tests.benchmarks.measuring import say
from tests.factories import bulk_history, make_session, turns

SIZES = (1_000, 10_000, 100_000)
LIVE_TURNS = 100  # of four messages each
ROUNDS = 9
SUMMARY = "\n".join(f"{heading(number)}\n- what was done in part {number}" for number in range(1, len(SECTIONS) + 1))
PARTS = ("load_and_plan", "build_request", "restore", "commit", "all")


@dataclass
class Stopwatch:
    """When each part of a run began, in seconds; `asked` and `answered`: the model's own time, which is not ours."""

    began: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    asked: float = 0.0
    answered: float = 0.0

    def tell(self, stage: str, fraction: float) -> None:
        self.stages.setdefault(stage, time.perf_counter())

    def parts(self, *, ended: float) -> dict[str, float]:
        """Milliseconds of each of PARTS."""
        summarizing, storing = self.stages["summarizing"], self.stages["storing"]
        spans = {
            "load_and_plan": summarizing - self.began,
            "build_request": self.asked - summarizing,
            "restore": storing - self.answered,
            "commit": ended - storing,
            "all": ended - self.began - (self.answered - self.asked),
        }
        return {name: 1_000 * seconds for name, seconds in spans.items()}


@dataclass
class InstantModel:
    """A model that has its summary ready."""

    watch: Stopwatch

    def complete(
        self, *, request: ModelRequest, seconds: float, silence_seconds: float, heard: Callable[[int], None]
    ) -> Completion:
        self.watch.asked = time.perf_counter()
        usage = {"input_tokens": 1_000, "output_tokens": 300}
        answer = Completion(
            text=f"<summary>\n{SUMMARY}\n</summary>",
            stop_reason="end_turn",
            model=request.model,
            response_id="msg_bench",
            request_id="req_bench",
            usage=usage,
            blocks=("text",),
        )
        self.watch.answered = time.perf_counter()
        return answer


def run() -> None:
    sessions = {size: make_session(policy_overrides={"context_window": WINDOW}) for size in SIZES}
    for size, session in sessions.items():
        bulk_history(session, count=size)
        hide_all_but(session, shown=0)
    numbers = itertools.count(1)
    taken: dict[int, list[dict[str, float]]] = {size: [] for size in SIZES}
    for _ in range(ROUNDS):
        for size, session in sessions.items():
            taken[size].append(_compact(session, first_turn=next(numbers) * LIVE_TURNS))
    medians = {
        size: {part: statistics.median(t[part] for t in rounds) for part in PARTS} for size, rounds in taken.items()
    }
    for size, parts in medians.items():
        ratios = {f"{part}_ms": round(value, 2) for part, value in parts.items()}
        growth = round(parts["all"] / medians[min(SIZES)]["all"], 2)
        say("full_compaction_overhead", dead_history=size, live=4 * LIVE_TURNS, **ratios, ratio_to_shortest=growth)


def _compact(session: Session, *, first_turn: int) -> dict[str, float]:
    """Fill the session anew and compact it; what that has cost."""
    session = Session.objects.select_related("team").get(pk=session.pk)
    actions.append_turn(session=session, incoming=list(turns(LIVE_TURNS, start=first_turn)), now=timezone.now())
    watch = Stopwatch()
    kept = factory.MODELS[factory.ANTHROPIC]
    factory.MODELS[factory.ANTHROPIC] = lambda outside: ModelSummarizer(
        model=InstantModel(watch=watch), calls=outside.calls, limits_of=outside.limits_of, now=outside.now
    )
    try:
        waiting = runs.queue_run(
            session=session, trigger="manual", instructions="", now=timezone.now(), summarizer=factory.ANTHROPIC
        )
        watch.began = time.perf_counter()
        done = runs.execute(run_id=waiting.pk, listener=watch.tell)
        ended = time.perf_counter()
    finally:
        factory.MODELS[factory.ANTHROPIC] = kept
    if done is None or done.status != RunStatus.SUCCEEDED:
        raise RuntimeError(f"the run did not succeed: {done and done.detail}")
    return watch.parts(ended=ended)
