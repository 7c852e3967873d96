"""The books of the prefix cache: who wrote which prefix, how long it stays, what a request reads and writes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from tests.stub_api.prefix import Prompt

LOOKBACK_BLOCKS = 20  # per breakpoint, the breakpoint's own block included
LONG_SECONDS = 3_600


@dataclass(slots=True)
class Entry:
    """A kept prefix. `seconds`: how long from each use; `until`: on the state's clock."""

    seconds: int
    until: float


@dataclass(frozen=True, slots=True)
class Account:
    """What a request costs: tokens by bucket; `writes`: hash -> seconds, kept once the answer starts."""

    uncached: int
    read: int
    written_5m: int
    written_1h: int
    writes: tuple[tuple[str, int], ...]


@dataclass
class Books:
    entries: dict[str, Entry] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def price(self, *, prompt: Prompt, minimum: int, now: float) -> Account:
        """Look the prompt up, refreshing what it reads. `minimum`: tokens of the shortest prefix that is kept."""
        total = prompt.tokens[-1] if prompt.tokens else 0
        marks = [(block, seconds) for block, seconds in prompt.marks if prompt.tokens[block] >= minimum]
        with self._lock:
            hits = [self._hit(prompt, block, minimum, now) for block, _ in marks]
        found = max((hit for hit in hits if hit is not None), default=None)
        at = read = prompt.tokens[found] if found is not None else 0
        written = {300: 0, LONG_SECONDS: 0}
        writes = []
        for block, seconds in marks:
            if found is None or block > found:
                written[seconds] += prompt.tokens[block] - at
                at = prompt.tokens[block]
                writes.append((prompt.hashes[block], seconds))
        return Account(total - at, read, written[300], written[LONG_SECONDS], tuple(writes))

    def keep(self, *, account: Account, now: float) -> None:
        """The answer has started: what the request wrote can be read from now on."""
        with self._lock:
            for name, seconds in account.writes:
                self.entries[name] = Entry(seconds, now + seconds)

    def clear(self) -> None:
        with self._lock:
            self.entries.clear()

    def _hit(self, prompt: Prompt, mark: int, minimum: int, now: float) -> int | None:
        for block in range(mark, max(-1, mark - LOOKBACK_BLOCKS), -1):
            entry = self.entries.get(prompt.hashes[block])
            if entry is not None and now < entry.until and prompt.tokens[block] >= minimum:
                entry.until = now + entry.seconds
                return block
        return None
