"""A transcript file line by line, whatever its lines are, and none of them longer in memory than it may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

from sessions_app.transcript.entries import LineProblem

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Line:
    """`raw`: with its end; of one that is too long, its beginning."""

    number: int
    raw: bytes
    too_long: bool = False

    @property
    def is_blank(self) -> bool:
        return not self.too_long and not self.raw.strip(b"\xef\xbb\xbf \t\r\n")

    def fault(self) -> LineProblem | None:
        """Why no text can be read from it; None where it can."""
        if self.too_long:
            reason = "longer than a line may be (policy: import_line_bytes)"
            return LineProblem(line_number=self.number, reason=reason)
        try:
            self.raw.decode("utf-8")
        except UnicodeDecodeError as error:
            return LineProblem(line_number=self.number, reason=f"not UTF-8 at byte {error.start}")
        return None


def lines_of(*, stream: IO[bytes], limit: int, progress: Progress | None = None) -> Iterator[Line]:
    """The lines from the stream's beginning, of at most `limit` bytes each. `progress` gets the bytes of each."""
    stream.seek(0)
    number = 0
    while raw := stream.readline(limit):
        number += 1
        too_long = len(raw) >= limit and not raw.endswith(b"\n")
        size = len(raw)
        while too_long and (more := stream.readline(limit)):
            size += len(more)
            if more.endswith(b"\n"):
                break
        yield Line(number=number, raw=raw, too_long=too_long)
        if progress:
            progress(size)
