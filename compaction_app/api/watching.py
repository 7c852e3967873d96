"""Many watchers, one poller: the rows of all watched runs are read together, in one thread, and told to all that wait.

It lives in the event loop of the server, begins with the first watcher and ends with the last. No Django here: how the
rows are read is given, and tried without.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from compaction_app.engine.run_state import RunState

logger = logging.getLogger(__name__)

Look = Callable[[Sequence[int]], Mapping[int, RunState]]
# One thread, and so one connection of the database at most, however many watch.
_LOOKS = ThreadPoolExecutor(max_workers=1, thread_name_prefix="event-looks")


class Box:
    """A watcher's letter box. It holds the newest state alone, so one that reads slowly costs nothing."""

    def __init__(self, *, state: RunState) -> None:
        self._newest: RunState | None = state
        self._is_new = asyncio.Event()

    def put(self, state: RunState | None) -> None:
        """`state`: None ends the watching, for good."""
        if self._newest is not None and state != self._newest:
            self._newest = state
            self._is_new.set()

    async def take(self, *, within: float) -> RunState | None:
        """The next state that is another one; None at the end. Raises TimeoutError after `within` seconds."""
        async with asyncio.timeout(within):
            await self._is_new.wait()
        self._is_new.clear()
        return self._newest


class Watchers:
    """Those of one event loop."""

    def __init__(self, *, look: Look, pause: float) -> None:
        self._look, self._pause = look, pause
        self._boxes: dict[int, set[Box]] = {}
        self._poller: asyncio.Task[None] | None = None
        self._is_ending = False

    def __len__(self) -> int:
        return sum(map(len, self._boxes.values()))

    @contextmanager
    def watch(self, *, state: RunState) -> Iterator[Box]:
        """A box that is told of the run until the block is left."""
        box = Box(state=state)
        self._boxes.setdefault(state.key, set()).add(box)
        if self._is_ending:
            box.put(None)
        elif self._poller is None:
            self._poller = asyncio.create_task(self._poll())
        try:
            yield box
        finally:
            others = self._boxes[state.key]
            others.discard(box)
            if not others:
                del self._boxes[state.key]

    def end(self) -> None:
        """End all streams, and those that come: the server stops."""
        self._is_ending = True
        for boxes in self._boxes.values():
            for box in boxes:
                box.put(None)

    async def _poll(self) -> None:
        while self._boxes:
            await self._tell_all()
            await asyncio.sleep(self._pause)
        self._poller = None

    async def _tell_all(self) -> None:
        keys = list(self._boxes)
        try:
            states = await asyncio.get_running_loop().run_in_executor(_LOOKS, self._look, keys)
        except Exception as error:
            logger.warning("watched runs can't be read (%s); the next look tries again", type(error).__name__)
            return
        for key in keys:
            for box in self._boxes.get(key, ()):
                box.put(states.get(key))  # what is not there any more was erased


_OF_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, Watchers] = WeakKeyDictionary()


def watchers_here(*, look: Look, pause: float) -> Watchers:
    """Those of the running event loop; a server has one. `pause`: seconds between two looks."""
    loop = asyncio.get_running_loop()
    if loop not in _OF_LOOPS:
        _OF_LOOPS[loop] = Watchers(look=look, pause=pause)
    return _OF_LOOPS[loop]


def end_streams() -> None:
    """End all streams: the server stops. Their clients come again, and are told the rest by the next one."""
    for watchers in list(_OF_LOOPS.values()):
        watchers.end()
