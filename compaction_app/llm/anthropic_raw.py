"""Compaction blocks as they stand in the stream: the SDK's objects keep neither the order of keys nor every value.

A block comes whole in the event that begins it, without deltas (facts: Anthropic API, section 7a).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sessions_app.transcript.native import COMPACTION

_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE = re.compile(rb"\r\n|\n|\r")
_DATA = b"data:"
_LONGEST_END = 4  # bytes
MOST_BLOCKS = 10  # one is right; more are counted so that they can be refused


@dataclass(slots=True)
class RawBlocks:
    """`blocks`: by their place in the message."""

    blocks: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    _left: bytearray = field(default_factory=bytearray)

    def feed(self, piece: bytes) -> None:
        """Read the next bytes of the stream. Whoever calls it bounds the size of an event."""
        looked_at = max(len(self._left) - _LONGEST_END, 0)
        self._left += piece
        while end := _END.search(self._left, looked_at):
            event = bytes(self._left[: end.start()])
            del self._left[: end.end()]
            looked_at = 0
            if COMPACTION.encode() in event:
                self._take(event)

    def in_order(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(self.blocks[index] for index in sorted(self.blocks))

    def _take(self, event: bytes) -> None:
        try:
            told = json.loads(b"\n".join(_data_of(event)))
        except (ValueError, RecursionError):
            return  # the SDK says what is wrong with it
        if not isinstance(told, dict) or told.get("type") != "content_block_start":
            return
        index, block = told.get("index"), told.get("content_block")
        if not isinstance(index, int) or not isinstance(block, dict) or block.get("type") != COMPACTION:
            return
        if len(self.blocks) < MOST_BLOCKS:
            self.blocks.setdefault(index, block)


def _data_of(event: bytes) -> Iterator[bytes]:
    for line in _LINE.split(event):
        if line.startswith(_DATA):
            yield line[len(_DATA) :]
