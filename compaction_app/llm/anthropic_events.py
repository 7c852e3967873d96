"""What has come of a streamed response so far, event by event. Nothing in an event is taken for granted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from compaction_app.engine.ports import Completion
from compaction_app.llm.anthropic_errors import LONGEST_ID
from compaction_app.llm.anthropic_raw import RawBlocks
from compaction_app.llm.anthropic_text import storable_name, storable_text

LONGEST_MODEL, LONGEST_REASON = 200, 60  # the columns'
TEXT = "text"
COUNTS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
DETAILS = ("cache_creation", "server_tool_use", "output_tokens_details")
# More than the API has, so that what is stored is bounded.
MOST_DETAILS, MOST_ITERATIONS, MOST_BLOCKS, MOST_COUNT = 10, 100, 1_000, 2**31 - 1


@dataclass(slots=True)
class Heard:
    """`at`: when the last byte came, by the monotonic clock; `size`: of all bytes; `characters`: of all text.

    `has_begun`: whether a message has; `raw`: compaction blocks to the letter, None where none is asked for.
    """

    at: float
    size: int = 0
    characters: int = 0
    has_begun: bool = False
    usage: dict[str, Any] = field(default_factory=dict)
    model: str = ""
    response_id: str = ""
    request_id: str = ""
    stop_reason: str | None = None
    raw: RawBlocks | None = None
    _texts: list[str] = field(default_factory=list)
    _blocks: dict[int, str] = field(default_factory=dict)
    _last: Any = None
    _doubled: bool = False

    def take(self, event: Any) -> None:
        """Read one event of the SDK; what is not known is passed over."""
        kind = getattr(event, "type", None)
        if self._repeats(event, kind):
            return
        if kind == "message_start":
            self._start(getattr(event, "message", None))
        elif kind == "content_block_start":
            self._block(getattr(event, "index", None), getattr(event, "content_block", None))
        elif kind == "content_block_delta":
            self._delta(getattr(event, "index", None), getattr(event, "delta", None))
        elif kind == "message_delta":
            reason = getattr(getattr(event, "delta", None), "stop_reason", None)
            self.stop_reason = storable_name(reason, most=LONGEST_REASON) or self.stop_reason
            self._use(getattr(event, "usage", None))

    def completion(self) -> Completion:
        """What came, whether or not it came to an end."""
        return Completion(
            text=storable_text("".join(self._texts)),
            stop_reason=self.stop_reason,
            model=self.model,
            response_id=self.response_id,
            request_id=self.request_id,
            usage=dict(self.usage),
            blocks=tuple(self._blocks[index] for index in sorted(self._blocks)),
            compactions=self.raw.in_order() if self.raw else (),
        )

    def _repeats(self, event: Any, kind: object) -> bool:
        """Whether a relay sent this event before. Equal pieces of text may be meant, so only a stream whose start came
        twice is taken for one whose events all do."""
        if event != self._last:
            self._last = event
            return False
        self._doubled = self._doubled or kind == "message_start"
        if self._doubled:
            self._last = None
        return self._doubled

    def _start(self, message: Any) -> None:
        self.has_begun = True
        self.model = self.model or storable_name(getattr(message, "model", None), most=LONGEST_MODEL)
        self.response_id = self.response_id or storable_name(getattr(message, "id", None), most=LONGEST_ID)
        self._use(getattr(message, "usage", None))

    def _block(self, index: object, block: Any) -> None:
        if isinstance(index, int) and len(self._blocks) < MOST_BLOCKS:
            kind = storable_name(getattr(block, "type", None), most=LONGEST_REASON)
            self._blocks.setdefault(index, kind)
            self._say(index, getattr(block, "text", None))

    def _delta(self, index: object, delta: Any) -> None:
        if getattr(delta, "type", None) == "text_delta":
            self._say(index, getattr(delta, "text", None))

    def _say(self, index: object, text: object) -> None:
        known = self._blocks.get(index, TEXT) if isinstance(index, int) else ""
        if known == TEXT and isinstance(text, str) and text:
            self._texts.append(text)
            self.characters += len(text)

    def _use(self, usage: Any) -> None:
        """Later figures overwrite earlier ones; what is missing in them stays as it was told before."""
        told = _fields(usage)
        self.usage.update(_counts(told))
        iterations = told.get("iterations")
        if isinstance(iterations, list) and iterations:
            self.usage["iterations"] = [_iteration(_fields(one)) for one in iterations[:MOST_ITERATIONS]]


def _iteration(told: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": storable_name(told.get("type"), most=LONGEST_REASON), **_counts(told)}


def _counts(told: Mapping[str, Any]) -> dict[str, Any]:
    details = {name: _numbers(_fields(told.get(name))) for name in DETAILS}
    return _numbers({name: told.get(name) for name in COUNTS}) | {name: part for name, part in details.items() if part}


def _numbers(told: Mapping[str, Any]) -> dict[str, int]:
    whole = ((name, value) for name, value in told.items() if isinstance(value, int) and not isinstance(value, bool))
    good = ((name, value) for name, value in whole if 0 <= value <= MOST_COUNT)
    return {storable_name(name, most=LONGEST_REASON): value for name, value in islice(good, MOST_DETAILS)}


def _fields(value: Any) -> Mapping[str, Any]:
    """The SDK's objects as name -> value. Its own way to dump them warns of every value that it did not expect."""
    try:
        return dict(value) if value is not None else {}
    except (TypeError, ValueError):
        return {}
