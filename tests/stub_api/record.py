"""A request as the stub keeps it, with what was answered."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from tests.stub_api.state import Json

MESSAGES_PATH = "/v1/messages"


@dataclass(slots=True)
class Recorded:
    """A request as it came: header names in small letters, `body` as JSON (None where there was none).

    Then what was answered: `status` (None: nothing), `fault` by name, `request_id`, `message` (the whole one, also
    where a stream of it broke off), `usage` of it, `prefix` (a hash for each block, over all up to it), `frames` sent.
    """

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    request_id: str = ""
    status: int | None = None
    fault: str | None = None
    message: Json | None = None
    usage: Json | None = None
    prefix: tuple[str, ...] = ()
    frames: int = 0

    @property
    def for_message(self) -> bool:
        return self.method == "POST" and self.path == MESSAGES_PATH

    @property
    def prefix_hash(self) -> str | None:
        return self.prefix[-1] if self.prefix else None

    def shares_prefix(self, other: Recorded) -> int:
        """How many blocks, from the first, are the same in both requests."""
        pairs = zip(self.prefix, other.prefix, strict=False)
        return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
