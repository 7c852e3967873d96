"""What a transcript file is read into, whatever its format: messages, other entries, and lines not understood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sessions_app.transcript.exported import Written
from sessions_app.transcript.messages import Content, MessageKind, Role


@dataclass(frozen=True, slots=True)
class TranscriptMessage:
    """A line that is a message. `parent_uuid`: None for a root, "" where the line does not say.

    `path_parent`: the message that it hangs on, as an export of ours tells it; None for nothing, "" where `parent_uuid`
    tells. `envelope`: the whole entry without the message's content.
    """

    line_number: int
    uuid: str
    parent_uuid: str | None
    role: Role
    content: Content
    kind: MessageKind = MessageKind.NORMAL
    message_id: str | None = None
    model: str = ""
    sent_at: datetime | None = None
    usage: Mapping[str, Any] | None = None
    is_meta: bool = False
    is_sidechain: bool = False
    envelope: Mapping[str, Any] | None = field(default_factory=dict)
    path_parent: str | None = ""


@dataclass(frozen=True, slots=True)
class ImportedBoundary:
    """A compaction that the client made itself, as its transcript tells it. Tokens are None where it does not say.

    `reverted`: it was taken back before the transcript was exported. `written`: one of ours, in an export of ours.
    """

    is_microcompact: bool
    trigger: str
    tokens_before: int | None = None
    tokens_after: int | None = None
    preserved_uuids: tuple[str, ...] = ()
    anchor_uuid: str = ""
    cleared_tool_use_ids: tuple[str, ...] = ()
    instructions: str = ""
    reverted: bool = False
    written: Written | None = None


@dataclass(frozen=True, slots=True)
class TranscriptNote:
    """Any other line, kept raw. `uuid` is "" where the line has none; `title` where it names the session. `ours`: uuid
    of the boundary of ours that the line tells, or tells a part of. `path_parent`: as a message has it."""

    line_number: int
    key: str
    uuid: str
    parent_uuid: str | None
    type: str
    raw: Mapping[str, Any]
    subtype: str = ""
    title: str = ""
    title_rank: int = 0
    boundary: ImportedBoundary | None = None
    ours: str = ""
    path_parent: str | None = ""


@dataclass(frozen=True, slots=True)
class TranscriptBoundary:
    """A boundary as a line of an export tells it whole. `key`: its name, for what refers to it; `restores`: the name of
    the one that it brought back."""

    line_number: int
    key: str
    written: Written
    restores: str | None = None


@dataclass(frozen=True, slots=True)
class TranscriptRevert:
    """A boundary was taken back here. `fell_with`: the name of the one that was taken back, itself or the one below;
    None where a rewind did it."""

    line_number: int
    key: str
    reverted_at: datetime
    fell_with: str | None


@dataclass(frozen=True, slots=True)
class TranscriptSession:
    """What a line of an export tells of its session, by column."""

    line_number: int
    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LineProblem:
    """A line, or part of one, that was not understood, and why. `kept`: whether it is stored raw all the same."""

    line_number: int
    reason: str
    kept: bool = False


ParsedLine = (
    TranscriptMessage | TranscriptNote | TranscriptBoundary | TranscriptRevert | TranscriptSession | LineProblem
)


class NotThisFormat(ValueError):
    """A JSON value that is no conversation of the format; the message says why, without quoting it."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation of a chat file (a file may hold several): one JSON value, the whole file or a line of it.

    `session`: what it tells of its session, by column (`model`, `system`, `tools`), as far as it tells; `items`: its
    messages in order, and what was not understood.
    """

    line_number: int
    session: Mapping[str, Any]
    items: tuple[ParsedLine, ...]
