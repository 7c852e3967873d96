"""The stored messages that a summary stands for, read when somebody looks at them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import overload

from compaction_app.engine.segment import Segment
from compaction_app.engine.values import Situation
from sessions_app.transcript.boundary import BoundaryKind
from sessions_app.transcript.messages import Message, MessageKind, text_of


@dataclass(frozen=True, slots=True, eq=False)
class Unread(Sequence[Message]):
    """Messages that are read when somebody looks at them, once."""

    read: Callable[[], Sequence[Message]]
    _found: list[Sequence[Message]] = field(default_factory=list)

    def _messages(self) -> Sequence[Message]:
        if not self._found:
            self._found.append(self.read())
        return self._found[0]

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        return self._messages()[index]

    def __len__(self) -> int:
        return len(self._messages())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def reach(segment: Segment) -> tuple[int, int]:
    """First and last position of what the summary is to tell. What an earlier one hides behind it is not its own."""
    first = segment.cut if segment.kind is BoundaryKind.PARTIAL_FROM else 0
    return first, segment.cut - 1 if segment.kind is BoundaryKind.PARTIAL_UP_TO else segment.covers_to


def told_before(*, situation: Situation, segment: Segment) -> str:
    """The client's own summary that the stored history begins with, where what it stands for was never stored here; ""
    where it begins with a message. Reads the originals."""
    begin, last = reach(segment)
    stored = situation.originals(last) if not begin else ()
    return text_of(stored[0].content) if stored and stored[0].kind == MessageKind.COMPACT_SUMMARY else ""


def originals_of(*, situation: Situation, segment: Segment) -> Unread:
    """All that the summary stands for, what earlier ones stand for with it, oldest first."""
    first, last = reach(segment)

    def past() -> Sequence[Message]:
        return [m for m in situation.originals(last) if m.kind == MessageKind.NORMAL and m.position >= first]

    return Unread(read=past)
