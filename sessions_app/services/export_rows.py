"""The rows of a session on its way out, batch by batch, and the uuids of what they name by position."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from sessions_app.models import Message, Session, TranscriptEntry


class ExportRows:
    """Memory holds one batch: `batch` messages, or as many entries, and the uuids of those and of what they hang on.
    What was appended after `last` is left out."""

    def __init__(self, *, session: Session, batch: int, last: int) -> None:
        self._session = session
        self._batch = batch
        self._last = last
        self._uuids: dict[int, str] = {}  # of the messages of this batch, and of what was asked for beside

    def batches(self) -> Iterator[list[Message]]:
        """All messages in order."""
        for start in range(0, self._last, self._batch):
            last = min(start + self._batch, self._last)
            rows = Message.objects.filter(session=self._session, position__range=(start + 1, last))
            batch = list(rows.order_by("position"))
            self._uuids = {row.position: row.uuid for row in batch}
            self._find({row.path_parent for row in batch if row.path_parent})
            yield batch

    def entries(self, *, first: int, last: int) -> Iterator[TranscriptEntry]:
        """The side entries behind the messages at these positions, in order."""
        rows = TranscriptEntry.objects.filter(session=self._session, after_position__range=(first, last))
        found = rows.order_by("after_position", "id").iterator(chunk_size=self._batch)
        while batch := list(islice(found, self._batch)):
            self._find({entry.anchor_position for entry in batch if entry.anchor_position})
            yield from batch

    def uuid_at(self, position: int) -> str | None:
        """The uuid of the message at the position; None where there is none (0)."""
        if position and position not in self._uuids:
            self._find({position})
        return self._uuids.get(position)

    def _find(self, positions: Iterable[int]) -> None:
        missing = set(positions) - set(self._uuids)
        if missing:
            rows = Message.objects.filter(session=self._session, position__in=missing)
            self._uuids |= dict(rows.values_list("position", "uuid"))
