"""What the commands share: a progress bar, and finding a session by what a person would type."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self, TextIO
from uuid import UUID

from django.core.management.base import CommandError

from sessions_app.models import Session

WIDTH = 30
REDRAW_SECONDS = 0.1


def printable(text: str) -> str:
    """Transcript text for a terminal: control characters would let it move the cursor or hide lines."""
    return "".join(c if c.isprintable() or c == " " else "\ufffd" for c in text)


class Bar:
    """A progress bar on a terminal; silent elsewhere."""

    def __init__(self, *, total: int, label: str, out: TextIO) -> None:
        self.total, self.label, self.out = max(total, 1), printable(label)[:40], out
        self.done, self.drawn_at = 0.0, 0.0
        self.live = out.isatty()

    def __enter__(self) -> Self:
        return self

    def advance(self, amount: float) -> None:
        self.show(self.done + amount)

    def show(self, done: float, *, label: str = "") -> None:
        self.done = done
        if label:
            self.label = label
        if self.live and time.monotonic() - self.drawn_at > REDRAW_SECONDS:
            self.drawn_at = time.monotonic()
            share = min(self.done / self.total, 1)
            filled = int(WIDTH * share)
            self.out.write(f"\r{self.label} [{'#' * filled}{'.' * (WIDTH - filled)}] {share:4.0%}\x1b[K")
            self.out.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.out.write("\r\x1b[K")
            self.out.flush()


def find_session(name: str) -> Session:
    """The session with this id (uuid), or external id. Raises CommandError with one line."""
    rows = Session.objects.select_related("team")
    try:
        found = rows.filter(uuid=UUID(name)).first()
    except ValueError:
        found = None
    if found is not None:
        return found
    matches = list(rows.filter(external_id=name)[:2])
    if len(matches) > 1:
        raise CommandError(f"{printable(name)!r} is an external id in several teams; give the session's own id")
    if not matches:
        raise CommandError(f"no session {printable(name)!r}")
    return matches[0]
