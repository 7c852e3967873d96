"""Which messages are on the live path, kept up as messages arrive.

A client that rewinds hangs its next message on an earlier one; what came after that one leaves the path. It stays
stored and shown, but no context and no summary holds it (decision 15). `left_path_at` keeps the moment, so an
earlier context can be told exactly. Parallel tool calls also share parents, and are no rewind: results hang on
their own call, and the next response on one of them (facts: transcript formats, section 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    stored = list(
        Message.objects.filter(
            session=session, position__gt=parent, left_path_at__isnull=True, is_sidechain=False
        ).order_by("position")
    )
    new = [r for r in rows if parent < r.position < at and r.left_path_at is None and not r.is_sidechain]
    parent_row = (
        next((r for r in rows if r.position == parent), None)
        or Message.objects.filter(session=session, position=parent).first()
    )
    gone = _after_own_round(parent=parent_row, later=[*stored, *new])
    for row in gone:
        row.left_path_at = at
    ids = [row.pk for row in gone if row.pk]
    Message.objects.filter(pk__in=ids).update(left_path_at=at)
    # A boundary that covers what was left behind belongs to the abandoned branch.
    of_the_branch = CompactBoundary.objects.filter(session=session, covers_to__gt=parent, reverted_at__isnull=True)
    undone = of_the_branch.update(reverted_at=timezone.now())
    return bool(gone) or bool(undone)


def _after_own_round(*, parent: Message | None, later: Sequence[Message]) -> list[Message]:
    """What of the later messages is not part of the parent's own response: neither a line of it nor a result."""
    if parent is None or parent.is_prompt:
        return list(later)
    round_id = parent.message_id if parent.role == Role.ASSISTANT else None
    for index, row in enumerate(later):
        other_response = row.role == Role.ASSISTANT and (round_id is None or row.message_id != round_id)
        if row.is_prompt or other_response:
            return list(later[index:])
    return []
