"""Which messages are on the live path, kept up as messages arrive.

A client that rewinds hangs its next message on an earlier one; what came after that one leaves the path. It stays
stored and shown, but no context and no summary holds it (decision 15). `left_path_at` keeps the moment, so an
earlier context can be told exactly. Parallel tool calls also share parents, and are no rewind: results hang on
their own call, and the next response on one of them (facts: transcript formats, section 3).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.utils import timezone

from sessions_app.models import CompactBoundary, Message, Session
from sessions_app.services.incoming import IncomingMessage
from sessions_app.transcript.messages import Role, tool_results


@dataclass(slots=True)
class Path:
    """`rewound`: whether messages have left the path, so that sums over the view must be taken anew."""

    rewound: bool = False


def follow(
    *,
    session: Session,
    rows: Sequence[Message],
    entries: Mapping[str, IncomingMessage],
    known: Mapping[str, tuple[str, int]],
) -> Path:
    """Move the session's leaf along the new rows, and mark what a rewind leaves behind. Rows are not saved yet."""
    path = Path()
    positions = {uuid: position for uuid, (_, position) in known.items()}
    for row in rows:
        positions[row.uuid] = row.position
        if row.is_sidechain:
            continue
        parent = _parent_position(entry=entries[row.uuid], positions=positions)
        if (
            parent is not None
            and parent < session.leaf_position
            and _is_rewind(session=session, row=row, parent=parent)
        ):
            path.rewound = _leave(session=session, rows=rows, parent=parent, at=row.position) or path.rewound
        session.leaf_position = row.position
        _enter_round(session=session, row=row)
    return path


def _parent_position(*, entry: IncomingMessage, positions: Mapping[str, int]) -> int | None:
    """Position of the message that the entry hangs on; 0 for a root of its own; None when it does not say."""
    parent_uuid = entry.path_parent_uuid or entry.parent_uuid
    if parent_uuid in positions:
        return positions[parent_uuid]
    return entry.path_parent_position


def _is_rewind(*, session: Session, row: Message, parent: int) -> bool:
    if parent >= session.round_position:
        # Within the last response and what answered it, only another prompt is a new branch.
        return row.is_prompt and parent < session.last_prompt_position
    same_response = row.role == Role.ASSISTANT and row.message_id and row.message_id == session.round_message_id
    return not same_response and not any(True for _ in tool_results(row.content))


def _enter_round(*, session: Session, row: Message) -> None:
    if row.role == Role.ASSISTANT and (row.message_id is None or row.message_id != session.round_message_id):
        session.round_position, session.round_message_id = row.position, row.message_id
    if row.is_prompt:
        session.last_prompt_position = row.position


def _leave(*, session: Session, rows: Sequence[Message], parent: int, at: int) -> bool:
    """Mark the live messages after `parent`, without its own response's lines and their results, as left behind."""
    live = Message.objects.filter(session=session, left_path_at__isnull=True, is_sidechain=False)
    new = [r for r in rows if r.position < at and r.left_path_at is None and not r.is_sidechain]
    later = itertools.chain(
        live.filter(position__gt=parent).order_by("position").only(*_PLACE).iterator(chunk_size=200),
        (row for row in new if row.position > parent),
    )
    parent_row = (
        next((r for r in rows if r.position == parent), None)
        or Message.objects.filter(session=session, position=parent).only(*_PLACE).first()
    )
    first = _first_to_leave(parent=parent_row, later=later)
    gone = 0
    if first is not None:
        gone = live.filter(position__gte=first).update(left_path_at=at)
        for row in new:
            if row.position >= first:
                row.left_path_at = at
                gone += 1
    # A boundary that covers what was left behind belongs to the abandoned branch.
    of_the_branch = CompactBoundary.objects.filter(session=session, covers_to__gt=parent, reverted_at__isnull=True)
    return bool(of_the_branch.update(reverted_at=timezone.now())) or bool(gone)


# What tells a message's place in its round.
_PLACE = ("position", "role", "message_id", "is_prompt", "session_id")


def _first_to_leave(*, parent: Message | None, later: Iterable[Message]) -> int | None:
    """Where the later messages stop to be the parent's own response: neither a line of it nor a result of its calls."""
    own_id = parent.message_id if parent and parent.role == Role.ASSISTANT else None
    for row in later:
        other_response = row.role == Role.ASSISTANT and (own_id is None or row.message_id != own_id)
        if parent is None or parent.is_prompt or row.is_prompt or other_response:
            return row.position
    return None
