"""What the thinking of a response was bound to: which boundaries held while it was made (decision 12).

A boundary that is taken back leaves responses behind that were made through it. They stay in the conversation, but the
context before them is another one now, so their thinking no longer verifies. Where the boundary comes back as a copy,
it does again, and what was made in between does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sessions_app.transcript.boundary import Boundary
from sessions_app.transcript.messages import Role

if TYPE_CHECKING:
    from sessions_app.transcript.view import ViewItem


class Reigns:
    """The times at which boundaries held, told in positions of the history.

    `items`: what is shown; `in_force`: the boundaries through which that is read; `past`: those that had been taken
    back.
    """

    def __init__(self, *, items: Sequence[ViewItem], in_force: Sequence[Boundary], past: Sequence[Boundary]) -> None:
        self._items = items
        now = {boundary.lineage for boundary in in_force}
        self._earlier: dict[int, list[Boundary]] = {}
        for boundary in past:
            self._earlier.setdefault(boundary.lineage, []).append(boundary)
        gone = (boundary for boundary in past if boundary.lineage not in now)
        self._gone = [self._span(boundary) for boundary in gone]
        self._spans: dict[int, list[tuple[int, int | None]]] = {}

    def made_through_what_is_gone(self, position: int) -> bool:
        """Whether a boundary held then that no longer does."""
        return _within(position, self._gone)

    def made_without(self, boundary: Boundary, position: int) -> bool:
        """Whether the boundary, which is in force, did not hold then, nor one that it is a copy of."""
        if boundary.sequence not in self._spans:
            same = [*self._earlier.get(boundary.lineage, ()), boundary]
            self._spans[boundary.sequence] = [self._span(one) for one in same]
        return not _within(position, self._spans[boundary.sequence])

    def first_written_at(self, boundary: Boundary) -> int:
        """The session's last position when the boundary, or what it is a copy of, was written first."""
        earlier = self._earlier.get(boundary.lineage, ())
        return min([boundary.committed_at, *(one.committed_at for one in earlier)])

    def _span(self, boundary: Boundary) -> tuple[int, int | None]:
        """The position after which, and the one up to which, responses were made through the boundary (None: still)."""
        after = _late(
            items=self._items,
            since=boundary.committed_at,
            made_before=lambda prompt: 2 * prompt > boundary.tokens_before + boundary.tokens_after,
        )
        until = boundary.reverted_position
        if until is None:
            # Where it is not known, the boundary is never among the past ones with messages behind them.
            return after, None if boundary.reverted_at is None else after
        grown = sum(item.tokens for item in self._items if boundary.committed_at < item.position <= until)
        until = _late(
            items=self._items,
            since=until,
            made_before=lambda prompt: 2 * (prompt - grown) <= boundary.tokens_before + boundary.tokens_after,
        )
        return after, until


def _within(position: int, spans: Sequence[tuple[int, int | None]]) -> bool:
    return any(after < position and (until is None or position <= until) for after, until in spans)


def _late(*, items: Sequence[ViewItem], since: int, made_before: Callable[[int], bool]) -> int:
    """The last position whose response was made from the context before a change at position `since`.

    A request that was under way then was made from the old context, and its response arrives after it; the size of its
    prompt tells (nearer to what the context was before than to what it is since).
    """
    last, response = since, None
    for item in items:
        if item.position <= since or item.role != Role.ASSISTANT or item.message is None:
            continue
        if response is not None and item.message_id != response:
            break
        usage = item.message.usage
        if usage is None or not made_before(usage.prompt_tokens):
            break
        last, response = item.position, item.message_id
    return last
