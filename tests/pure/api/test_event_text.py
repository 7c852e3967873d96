"""A run's state and what a client has seen give the events that are new to it: none twice, none left out."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from compaction_app.api.event_text import HEARTBEAT, Seen, events_of, opening, seen_by
from compaction_app.engine.run_state import RunState

NAMES = ("queued", "starting", "reading", "summarizing", "storing")


def stage(name: str, progress: float = 0.0) -> dict[str, Any]:
    return {"stage": name, "at": "2026-11-03T09:00:00+00:00", "attempt": 1, "progress": progress}


STAGES = tuple(stage(name, number / 10) for number, name in enumerate(NAMES))
RUNNING = RunState(
    key=7,
    run="0e0c7f3a-98a0-4f0c-9a7e-1f7a2c3d4e5f",
    status="running",
    has_ended=False,
    stage="summarizing",
    stages=STAGES[:4],
    progress=0.3,
    tokens_streamed=0,
)
ENDED = replace(
    RUNNING,
    status="succeeded",
    has_ended=True,
    stage="done",
    stages=(*STAGES, stage("done", 1.0)),
    progress=1.0,
    boundary="7d0a4d4e-4f1c-4f35-9a0e-3f0a0b0c0d0e",
    tokens_before=9_000,
    tokens_after=900,
)


def read(text: bytes) -> list[dict[str, Any]]:
    """What a client reads, by the rules of the format."""
    found = []
    for block in text.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if line)
        if "data" in lines:
            found.append({**lines, "data": json.loads(lines["data"])})
    return found


def names(text: bytes) -> list[str]:
    return [event["data"].get("stage", "") if event["event"] == "stage" else event["event"] for event in read(text)]


class TestEvents:
    def test_it_works(self) -> None:
        text, seen = events_of(state=replace(RUNNING, progress=0.42, tokens_streamed=900), seen=Seen())
        *stages, progress = read(text)
        assert [event["data"] for event in stages] == list(STAGES[:4])
        assert [event["id"] for event in stages] == ["1.0.0", "2.100.0", "3.200.0", "4.300.0"]
        assert progress == {
            "id": "4.420.900",
            "event": "progress",
            "data": {"progress": 0.42, "stage": "summarizing", "tokens_streamed": 900},
        }
        assert seen == Seen(stages=4, per_mille=420, tokens=900)

    def test_what_is_seen_is_not_told_again(self) -> None:
        _, seen = events_of(state=RUNNING, seen=Seen())
        assert events_of(state=RUNNING, seen=seen) == (b"", seen)

    def test_a_stage_tells_how_far_it_is_itself(self) -> None:
        assert names(events_of(state=RUNNING, seen=Seen())[0]) == list(NAMES[:4])

    def test_the_end(self) -> None:
        text, seen = events_of(state=ENDED, seen=Seen())
        *stages, done = read(text)
        assert [event["data"]["stage"] for event in stages] == [*NAMES, "done"]
        assert done == {
            "id": "done",
            "event": "done",
            "data": {
                "run": ENDED.run,
                "status": "succeeded",
                "failure_reason": None,
                "detail": "",
                "boundary": ENDED.boundary,
                "tokens_before": 9_000,
                "tokens_after": 900,
            },
        }
        assert seen.end

    def test_a_run_that_is_taken_up_again_goes_back(self) -> None:
        _, seen = events_of(state=replace(RUNNING, progress=0.8), seen=Seen())
        again = replace(RUNNING, stages=(*STAGES[:4], stage("starting", 0.0)), stage="starting", progress=0.02)
        assert names(events_of(state=again, seen=seen)[0]) == ["starting", "progress"]

    @pytest.mark.parametrize("detail", ["a\nevent: done\ndata: {}\n\n", "\r\n\r\n", "\u2028\u0085", "\ud800", "\x00é"])
    def test_hostile_words_stay_within_their_line(self, detail: str) -> None:
        text, _ = events_of(state=replace(ENDED, detail=detail, status="failed"), seen=Seen(stages=6))
        assert text.count(b"\n") == 4
        assert text.isascii()
        assert b"\r" not in text
        [event] = read(text)
        assert event["data"]["detail"] == detail


class TestResuming:
    def test_from_every_event_the_rest_follows_and_nothing_else(self) -> None:
        """Whatever was the last event that came, what is told before and after it is the whole, each once."""
        for state in (RUNNING, replace(RUNNING, progress=0.42, tokens_streamed=9), ENDED):
            whole = read(events_of(state=state, seen=Seen())[0])
            for number, last in enumerate(whole[:-1], start=1):
                seen = seen_by(last_event_id=last["id"])
                assert read(events_of(state=state, seen=seen)[0]) == whole[number:]

    def test_what_happened_meanwhile_is_told(self) -> None:
        _, seen = events_of(state=RUNNING, seen=Seen())
        assert names(events_of(state=ENDED, seen=seen_by(last_event_id=seen.id))[0]) == ["storing", "done", "done"]

    def test_after_the_end(self) -> None:
        assert seen_by(last_event_id="done").end

    @pytest.mark.parametrize(
        "text", ["", "x", "1", "1.2", "1.2.3.4", "-1.0.0", "1.0.0\n9", "٣.0.0", "1e3.0.0", "9" * 400 + ".0.0", "DONE"]
    )
    def test_an_id_that_is_none_of_ours_counts_for_nothing(self, text: str) -> None:
        assert seen_by(last_event_id=text) == Seen()

    def test_one_from_further_on_than_the_run_is(self) -> None:
        text, _ = events_of(state=RUNNING, seen=seen_by(last_event_id="99.0.0"))
        assert names(text) == ["progress"]


def test_what_is_no_event() -> None:
    assert opening(retry_seconds=1.5) == b"retry: 1500\n\n"
    assert read(HEARTBEAT) == []
    assert HEARTBEAT.startswith(b":")
