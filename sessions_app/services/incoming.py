"""A message on its way into the history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sessions_app.transcript.messages import Content, MessageKind, Role


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """One entry to store, as a client gave it.

    `path_parent_uuid`, `path_parent_position`: the message that it hangs on, where that is not `parent_uuid` itself (a
    transcript's lines may hang on lines that are no messages); position 0: on nothing, a conversation begun anew.
    """

    role: Role
    content: Content
    uuid: str = ""
    parent_uuid: str = ""
    path_parent_uuid: str = ""
    path_parent_position: int | None = None
    message_id: str | None = None
    model: str = ""
    sent_at: datetime | None = None
    usage: Mapping[str, Any] | None = None
    kind: MessageKind = MessageKind.NORMAL
    is_meta: bool = False
    is_sidechain: bool = False
    envelope: Mapping[str, Any] | None = None
