"""Many watchers, one poller: it begins with the first, ends with the last, and tells each what is new."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from compaction_app.api import watching
from compaction_app.api.watching import Watchers, end_streams, watchers_here
from compaction_app.engine.run_state import RunState

PAUSE = 0.005  # seconds
STATE = RunState(
    key=7, run="r", status="running", has_ended=False, stage="", stages=(), progress=0.0, tokens_streamed=0
)


class Rows:
    """What the database holds, and who has asked for what."""

    def __init__(self, *states: RunState) -> None:
        self.held = {state.key: state for state in states}
        self.asked: list[list[int]] = []
        self.threads: set[int] = set()
        self.fails = False

    def __call__(self, keys: Sequence[int]) -> Mapping[int, RunState]:
        self.asked.append(list(keys))
        self.threads.add(threading.get_ident())
        if self.fails:
            raise OSError("secret of the database")
        return {key: self.held[key] for key in keys if key in self.held}


def run(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, timeout=20))


def test_it_works() -> None:
    async def scene() -> None:
        rows = Rows(STATE)
        with Watchers(look=rows, pause=PAUSE).watch(state=STATE) as box:
            rows.held[7] = further = replace(STATE, progress=0.5)
            assert await box.take(within=5) == further

    run(scene())


def test_a_state_that_is_the_same_wakes_nobody() -> None:
    async def scene() -> None:
        rows = Rows(STATE)
        with Watchers(look=rows, pause=PAUSE).watch(state=STATE) as box:
            with pytest.raises(TimeoutError):
                await box.take(within=20 * PAUSE)
            assert len(rows.asked) > 2

    run(scene())


def test_a_thousand_watchers_are_one_question_in_one_thread() -> None:
    async def watch(watchers: Watchers, key: int, told: list[int]) -> None:
        with watchers.watch(state=replace(STATE, key=key)) as box:
            state = await box.take(within=5)
            assert state
            told.append(state.key)

    async def scene() -> None:
        rows = Rows(*(replace(STATE, key=key, progress=0.5) for key in range(10)))
        watchers, told = Watchers(look=rows, pause=PAUSE), []  # type: ignore[var-annotated]
        await asyncio.gather(*(watch(watchers, number % 10, told) for number in range(1_000)))
        assert len(told) == 1_000
        assert sorted(rows.asked[0]) == list(range(10))
        assert len(rows.asked) == len(rows.threads) == 1

    run(scene())


def test_a_slow_reader_finds_the_newest_alone() -> None:
    async def scene() -> None:
        rows = Rows(STATE)
        with Watchers(look=rows, pause=PAUSE).watch(state=STATE) as box:
            for progress in (0.1, 0.2, 0.3):
                rows.held[7] = replace(STATE, progress=progress)
                before = len(rows.asked)
                while len(rows.asked) < before + 2:
                    await asyncio.sleep(PAUSE)
            assert await box.take(within=5) == replace(STATE, progress=0.3)
            with pytest.raises(TimeoutError):
                await box.take(within=5 * PAUSE)

    run(scene())


def test_nobody_watches_nobody_asks() -> None:
    async def scene() -> None:
        rows = Rows(STATE)
        watchers = Watchers(look=rows, pause=PAUSE)
        with watchers.watch(state=STATE), watchers.watch(state=STATE):
            assert len(watchers) == 2
        assert len(watchers) == 0
        await asyncio.sleep(10 * PAUSE)
        before = len(rows.asked)
        assert before <= 1
        await asyncio.sleep(10 * PAUSE)
        assert len(rows.asked) == before
        assert not [task for task in asyncio.all_tasks() if "_poll" in repr(task.get_coro())]
        with watchers.watch(state=STATE) as box:  # and it begins again
            rows.held[7] = replace(STATE, progress=0.1)
            assert await box.take(within=5)

    run(scene())


def test_one_who_is_thrown_out_of_the_block_watches_no_more() -> None:
    async def scene() -> None:
        watchers = Watchers(look=Rows(STATE), pause=PAUSE)

        async def wait() -> None:
            with watchers.watch(state=STATE) as box:
                await box.take(within=100)

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        assert len(watchers) == 1
        task.cancel()
        await asyncio.wait([task])
        assert len(watchers) == 0

    run(scene())


def test_what_was_erased_ends_the_watching() -> None:
    async def scene() -> None:
        rows = Rows(STATE)
        with Watchers(look=rows, pause=PAUSE).watch(state=STATE) as box:
            rows.held.clear()
            assert await box.take(within=5) is None

    run(scene())


def test_a_database_that_fails_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        rows = Rows(STATE)
        rows.fails = True
        with Watchers(look=rows, pause=PAUSE).watch(state=STATE) as box:
            with pytest.raises(TimeoutError):
                await box.take(within=10 * PAUSE)
            rows.fails = False
            rows.held[7] = replace(STATE, progress=0.5)
            assert await box.take(within=5)

    run(scene())
    assert "OSError" in caplog.text
    assert "secret" not in caplog.text


def test_the_end_of_the_server_ends_all_also_those_that_come() -> None:
    async def scene() -> None:
        watchers = watchers_here(look=Rows(STATE), pause=PAUSE)
        assert watchers_here(look=Rows(STATE), pause=PAUSE) is watchers
        with watchers.watch(state=STATE) as box:
            end_streams()
            assert await box.take(within=5) is None
        with watchers.watch(state=STATE) as late:
            assert await late.take(within=5) is None

    run(scene())
    assert not [one for loop, one in watching._OF_LOOPS.items() if not loop.is_closed()]
