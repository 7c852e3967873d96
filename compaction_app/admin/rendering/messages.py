"""A stored message to one row of the history page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from compaction_app.admin.rendering.blocks import AnswerRow, ClearedMark, Place, RenderedBlock, render_block
from compaction_app.admin.rendering.calls import CallIndex
from compaction_app.admin.rendering.text import one_line, visible
from sessions_app.models import Message
from sessions_app.transcript.boundary import Boundary
from sessions_app.transcript.messages import MessageKind, content_blocks


@dataclass(frozen=True, slots=True)
class Mark:
    """A short label with the reason behind it. `kind` picks the colour."""

    kind: str
    text: str
    why: str


@dataclass(frozen=True, slots=True)
class MessageRow:
    """`slim`: it only says where results came in. `continues`: a further line of the response above it."""

    position: int
    uuid: str
    role: str
    model: str
    sent_at: datetime | None
    tokens: int
    blocks: tuple[RenderedBlock, ...]
    marks: tuple[Mark, ...]
    dimmed: bool
    slim: bool
    continues: bool


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What rendering a page's messages needs besides them."""

    session_id: int
    calls: CallIndex
    head: Boundary | None
    cleared: Mapping[str, ClearedMark]


def message_row(*, message: Message, around: Surroundings, previous: Message | None) -> MessageRow:
    place = Place(
        session_id=around.session_id,
        position=message.position,
        calls=around.calls,
        cleared=around.cleared,
    )
    blocks = tuple(render_block(block=block, place=place) for block in content_blocks(message.content))
    marks = _marks(message, head=around.head)
    return MessageRow(
        position=message.position,
        uuid=visible(message.uuid),
        role=message.role,
        model=one_line(message.model, limit=60),
        sent_at=message.sent_at,
        tokens=message.tokens,
        blocks=blocks,
        marks=marks,
        dimmed=any(mark.kind in ("hidden", "left", "side") for mark in marks),
        slim=bool(blocks) and all(isinstance(block, AnswerRow) for block in blocks),
        continues=_continues(message, previous),
    )


def _continues(message: Message, previous: Message | None) -> bool:
    return (
        previous is not None
        and previous.role == message.role == "assistant"
        and message.message_id is not None
        and previous.message_id == message.message_id
        and previous.is_sidechain == message.is_sidechain
    )


def _marks(message: Message, *, head: Boundary | None) -> tuple[Mark, ...]:
    marks = []
    if message.is_sidechain:
        marks.append(Mark("side", "sub-agent", "a side conversation; never part of the main context"))
    elif message.left_path_at is not None:
        why = f"the conversation was taken back at #{message.left_path_at}; the model does not see this"
        marks.append(Mark("left", "left behind by a rewind", why))
    elif head is not None and head.hides(message.position):
        marks.append(Mark("hidden", "summarised", "the model sees the newest boundary's summary instead"))
    if message.kind == MessageKind.COMPACT_SUMMARY:
        marks.append(Mark("note", "the client's summary", "written by the client's own compaction; kept, never sent"))
    if message.kind == MessageKind.API_ERROR:
        marks.append(Mark("error", "API error", "text of the client about a failed request; never sent"))
    if message.is_meta:
        marks.append(Mark("note", "injected", "put in by the client, not typed by a person"))
    return tuple(marks)
