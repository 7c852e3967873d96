"""What the stub knows and what a test may set, at any time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.stub_api.books import Books
from tests.stub_api.prefix import count_body
from tests.stub_api.signatures import Signatures, SignedBlocks

Json = dict[str, Any]

UNTOLD_WINDOW, UNTOLD_OUTPUT = 200_000, 64_000  # tokens; for a model whose row does not tell


class Refusal(Exception):
    """The API's own no."""

    def __init__(self, status: int, kind: str, message: str, *, code: str = "") -> None:
        self.status, self.kind, self.message, self.code = status, kind, message, code
        super().__init__(message)


def invalid(message: str) -> Refusal:
    return Refusal(400, "invalid_request_error", message)


def model(name: str, window: int | None = 200_000, output: int | None = 64_000) -> Json:
    """A model as the Models API lists it. `window` and `output` in tokens."""
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": "2026-01-01T00:00:00Z",
        "lifecycle": "active",
        "deprecated_at": None,
        "retires_at": None,
        "line": None,
        "max_input_tokens": window,
        "max_tokens": output,
        "capabilities": None,
    }


@dataclass
class State:
    """What the stub knows.

    `page_models`: a page holds no more, whatever is asked for. `count`: body -> tokens of the prompt (after edits).
    `clock`: seconds; `skipped` is added to it. `minimum`: tokens of the shortest prefix that is kept, `minimums` by
    model. `room_for_output`: refuse prompt + max_tokens over the window, as older models do. `frame_characters`,
    `frame_seconds`: size and distance of streamed pieces. `slow_seconds`, `silent_seconds`: of the faults of those
    names. `overlong_tokens`: of the summary that is too long. `most_body_bytes`: above it 413. `bound_thinking`: refuse
    thinking that comes again behind another prefix, as newer models do. `without_compaction`: models that don't.
    """

    models: list[Json] = field(default_factory=list)
    page_models: int = 1_000
    count: Callable[[Json], int] = count_body
    clock: Callable[[], float] = time.monotonic
    skipped: float = 0.0
    minimum: int = 1_024
    minimums: dict[str, int] = field(default_factory=dict)
    room_for_output: bool = False
    frame_characters: int = 100
    frame_seconds: float = 0.0
    slow_seconds: float = 1.0
    silent_seconds: float = 30.0
    overlong_tokens: int = 60_000
    most_body_bytes: int = 32 * 1024 * 1024
    bound_thinking: bool = False
    signatures: Signatures = field(default_factory=Signatures)
    signed_blocks: SignedBlocks = field(default_factory=SignedBlocks)
    without_compaction: set[str] = field(default_factory=set)
    books: Books = field(default_factory=Books)

    def now(self) -> float:
        return self.clock() + self.skipped

    def row(self, name: str) -> Json | None:
        """A name without its date is an alias of the newest that has one."""
        for row in self.models:
            if row["id"] == name or re.fullmatch(re.escape(name) + r"-\d{8}", row["id"]):
                return row
        return None

    def window(self, name: str) -> int:
        return int((self.row(name) or {}).get("max_input_tokens") or UNTOLD_WINDOW)

    def most_output(self, name: str) -> int:
        return int((self.row(name) or {}).get("max_tokens") or UNTOLD_OUTPUT)

    def shortest_prefix(self, name: str) -> int:
        return self.minimums.get(name, self.minimum)


@dataclass(frozen=True)
class Call:
    """One request, read. `names`: what the path's pattern matched; `query` and `body` as sent."""

    names: dict[str, str]
    query: dict[str, str]
    body: Json
    headers: dict[str, str]

    @property
    def betas(self) -> set[str]:
        return {name.strip() for name in self.headers.get("anthropic-beta", "").split(",") if name.strip()}
