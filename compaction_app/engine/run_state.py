"""What a watcher is told of a run: a value, so that the telling can be tried without rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RunState:
    """A run at one moment. `key`: its row's. `stages`: each that it came to, as its row keeps them, in order; they only
    grow. `progress`: 0 to 1. `boundary`: id of what a success has written. Sizes in tokens."""

    key: int
    run: str
    status: str
    has_ended: bool
    stage: str
    stages: tuple[Mapping[str, Any], ...]
    progress: float
    tokens_streamed: int
    failure_reason: str | None = None
    detail: str = ""
    boundary: str | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None
