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

from sessions_app.models import CompactBoundary, Message, PathAbsence, Session
from sessions_app.services.incoming import IncomingMessage
from sessions_app.services.revert_marks import reverted_values
from sessions_app.transcript.messages import Role, tool_results
from sessions_app.transcript.rounds import starts_round


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
        parent = _parent_position(entry=entries[row.uuid], positions=positions)
        row.path_parent = session.leaf_position if parent is None else parent
        if row.is_sidechain:
            continue
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
    if starts_round(
        message=row.as_value(),
        last_message_id=session.round_message_id,
        seen_assistant=session.round_position > 0,
    ):
        session.round_position, session.round_message_id = row.position, row.message_id
    if row.is_prompt:
        session.last_prompt_position = row.position


def _leave(*, session: Session, rows: Sequence[Message], parent: int, at: int) -> bool:
    """Go back to `parent`: mark the live messages after it as left behind, but its own response's lines and results.

    Where `parent` was left behind itself, its branch comes back, and what leaves is what came after their fork.
    """
    live = Message.objects.filter(session=session, left_path_at__isnull=True, is_sidechain=False)
    new = [r for r in rows if r.position < at and not r.is_sidechain]
    parent_row = _row_at(session=session, rows=rows, position=parent)
    branch: set[int] = set()
    if parent_row is not None and parent_row.left_path_at is not None:
        branch, parent = _abandoned_branch(session=session, new=new, tip=parent)
        parent_row = _row_at(session=session, rows=rows, position=parent)
    later = itertools.chain(
        live.filter(position__gt=parent).order_by("position").only(*_PLACE).iterator(chunk_size=200),
        (row for row in new if row.position > parent and row.left_path_at is None),
    )
    first = _first_to_leave(parent=parent_row, later=later)
    gone = 0
    if first is not None:
        gone = live.filter(position__gte=first).update(left_path_at=at)
        for row in (row for row in new if row.position >= first and row.left_path_at is None):
            row.left_path_at, gone = at, gone + 1
    _bring_back(session=session, new=new, branch=branch, at=at)
    # A boundary that covers what was left behind belongs to the abandoned branch.
    of_the_branch = CompactBoundary.objects.filter(session=session, covers_to__gt=parent, reverted_at__isnull=True)
    undone = 0
    if of_the_branch.exists():
        undone = of_the_branch.update(**reverted_values(session=session, now=timezone.now(), position=at - 1))
    _stand_at_end(session=session, new=new)
    return bool(gone or undone or branch)


def _row_at(*, session: Session, rows: Sequence[Message], position: int) -> Message | None:
    found = next((row for row in rows if row.position == position), None)
    return found or Message.objects.filter(session=session, position=position).only(*_PLACE).first()


def _abandoned_branch(*, session: Session, new: Sequence[Message], tip: int) -> tuple[set[int], int]:
    """Positions of the branch that ends at `tip`, and where it forks off the live path (0: at no message).

    All entries of its responses belong to it, and the results of their calls.
    """
    stored = Message.objects.filter(session=session, left_path_at__isnull=False, is_sidechain=False).only(*_PLACE)
    left = {row.position: row for row in itertools.chain(stored.iterator(chunk_size=200), new) if row.left_path_at}
    branch: set[int] = set()
    at = tip
    while at in left and at not in branch:
        branch.add(at)
        at = left[at].path_parent or 0
    ids = {left[position].message_id for position in branch if left[position].role == Role.ASSISTANT} - {None}
    branch |= {p for p, row in left.items() if row.role == Role.ASSISTANT and row.message_id in ids}
    branch |= {
        p for p, row in left.items() if row.role == Role.USER and not row.is_prompt and row.path_parent in branch
    }
    return branch, at


def _bring_back(*, session: Session, new: Sequence[Message], branch: set[int], at: int) -> None:
    """Put the branch back on the path with the message at position `at`; when it had left is kept apart."""
    positions = sorted(branch)
    left: dict[int, list[int]] = {}
    for start in range(0, len(positions), 500):  # well below the number of variables that SQLite takes
        part = Message.objects.filter(session=session, position__in=positions[start : start + 500])
        for position, left_at in part.values_list("position", "left_path_at"):
            left.setdefault(left_at or 0, []).append(position)
        part.update(left_path_at=None)
    for row in new:
        if row.position in branch:
            left.setdefault(row.left_path_at or 0, []).append(row.position)
            row.left_path_at = None
    PathAbsence.objects.bulk_create(
        PathAbsence(session=session, left_at=moment, back_at=at, positions=sorted(gone))
        for moment, gone in sorted(left.items())
        if moment
    )


def _stand_at_end(*, session: Session, new: Sequence[Message]) -> None:
    """The last response and prompt of the path as it is now, so that what comes next is judged by these."""
    live = Message.objects.filter(session=session, left_path_at__isnull=True, is_sidechain=False)
    fresh = [row for row in new if row.left_path_at is None]
    responses = [row for row in fresh if row.role == Role.ASSISTANT]
    response = responses[-1] if responses else live.filter(role=Role.ASSISTANT).order_by("-position").first()
    prompts = [row for row in fresh if row.is_prompt]
    prompt = prompts[-1] if prompts else live.filter(is_prompt=True).order_by("-position").first()
    session.round_position = response.position if response else 0
    session.round_message_id = response.message_id if response else None
    session.last_prompt_position = prompt.position if prompt else 0


# What tells a message's place in its round.
_PLACE = ("position", "role", "message_id", "is_prompt", "session_id", "left_path_at", "path_parent")


def _first_to_leave(*, parent: Message | None, later: Iterable[Message]) -> int | None:
    """Where the later messages stop to be the parent's own response: neither a line of it nor a result of its calls."""
    own_id = parent.message_id if parent and parent.role == Role.ASSISTANT else None
    for row in later:
        other_response = row.role == Role.ASSISTANT and (own_id is None or row.message_id != own_id)
        if parent is None or parent.is_prompt or row.is_prompt or other_response:
            return row.position
    return None
