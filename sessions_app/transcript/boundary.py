"""A compact boundary as a value: the only answer to "what does this boundary hide, and what stands there instead?"."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from sessions_app.transcript.messages import ContentBlock


class BoundaryKind(StrEnum):
    FULL = "full"
    SESSION_MEMORY = "session_memory"
    PARTIAL_UP_TO = "partial_up_to"
    PARTIAL_FROM = "partial_from"
    MICROCOMPACT = "microcompact"

    @property
    def summarizes(self) -> bool:
        return self is not BoundaryKind.MICROCOMPACT


SUMMARIZING_KINDS = tuple(kind for kind in BoundaryKind if kind.summarizes)


class Placement(StrEnum):
    """Where a preserved segment stands: an early prefix before the summary, or a recent suffix after it."""

    BEFORE_SUMMARY = "before_summary"
    AFTER_SUMMARY = "after_summary"


@dataclass(frozen=True, slots=True)
class PreservedSegment:
    """Messages at positions first..last (both included), all within what the boundary covers, kept verbatim."""

    first: int
    last: int
    placement: Placement


@dataclass(frozen=True, slots=True)
class AttachmentValue:
    """State restored after a boundary: kind (`file`, `plan`, …), the fields that describe it, the text that is sent."""

    kind: str
    text: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    tokens: int = 0


class Clearing(StrEnum):
    """How a microcompact boundary clears results.

    PLACEHOLDER: they are sent as a placeholder, which changes the prefix. API_EDIT: they are sent whole together
    with edits that the API applies on its side (`transcript/edits.py`), and what is stored and sent stays as it was.
    """

    PLACEHOLDER = "placeholder"
    API_EDIT = "api_edit"


@dataclass(frozen=True, slots=True)
class ClearedResult:
    """One tool result that a microcompact boundary clears, and why. `position`: of the message that holds it."""

    tool_use_id: str
    tool: str
    position: int
    tokens_freed: int
    reason: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Boundary:
    """How to read the history from a point on.

    `covers_to`: the last position that is hidden. `committed_at`: the session's last position when the boundary was
    written; `summary`: the text that replaces what is hidden (summarising kinds only);
    `cleared_tool_use_ids`: results that are shown as a placeholder. `created_at` and `reverted_at` order
    boundaries for a look back.
    """

    id: str
    kind: BoundaryKind
    covers_to: int
    committed_at: int
    created_at: datetime
    sequence: int = 0
    summary: str | None = None
    summary_tokens: int = 0
    # The whole context before and after, to tell which of them a response was made from.
    tokens_before: int = 0
    tokens_after: int = 0
    # Content blocks that stand for the summary as they are (a provider's signed block); else the text is wrapped.
    summary_blocks: tuple[ContentBlock, ...] = ()
    preserved: PreservedSegment | None = None
    attachments: tuple[AttachmentValue, ...] = ()
    cleared_tool_use_ids: frozenset[str] = frozenset()
    # The same as (position, id): an id may be used again. Empty for a client's own clearing, which tells ids only.
    cleared_at: frozenset[tuple[int, str]] = frozenset()
    clearing: Clearing = Clearing.PLACEHOLDER
    reverted_at: datetime | None = None

    def hides(self, position: int) -> bool:
        """Whether the message at `position` is no longer shown verbatim."""
        if not self.kind.summarizes or position > self.covers_to:
            return False
        segment = self.preserved
        return segment is None or not segment.first <= position <= segment.last

    def in_force_at(self, moment: datetime | None) -> bool:
        """Whether the boundary had not been reverted at `moment` (None: now)."""
        if self.reverted_at is None:
            return True
        return moment is not None and self.reverted_at > moment


def summary_uuid(*, boundary_id: str) -> str:
    """The uuid of the summary message of a boundary: derived, so every reader gets the same one."""
    return str(uuid.uuid5(uuid.UUID(boundary_id), "summary"))


@dataclass(frozen=True, slots=True)
class BoundaryDraft:
    """A boundary that is not written yet: what a compaction proposes. Tokens are estimates."""

    kind: BoundaryKind
    covers_to: int
    summary: str | None = None
    summary_tokens: int = 0
    summarizer: str = ""
    instructions: str = ""
    preserved: PreservedSegment | None = None
    attachments: tuple[AttachmentValue, ...] = ()
    cleared_tool_use_ids: tuple[str, ...] = ()
    cleared_results: tuple[ClearedResult, ...] = ()
    clearing: Clearing = Clearing.PLACEHOLDER
    why: str = ""
    # The call that wrote the summary, where a model did; `usage` as the API tells it, of all calls together.
    model: str = ""
    prompt_version: str = ""
    response_id: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cleared_at(self) -> tuple[tuple[int, str], ...]:
        """(position, id) of each result that it clears."""
        return tuple((result.position, result.tool_use_id) for result in self.cleared_results)

    def as_boundary(self, *, committed_at: int, created_at: datetime, sequence: int) -> Boundary:
        """The boundary that this would become, to look at the view that it would give."""
        return Boundary(
            id=str(uuid.UUID(int=0)),
            kind=self.kind,
            covers_to=self.covers_to,
            committed_at=committed_at,
            created_at=created_at,
            sequence=sequence,
            summary=self.summary,
            summary_tokens=self.summary_tokens,
            preserved=self.preserved,
            attachments=self.attachments,
            cleared_tool_use_ids=frozenset(self.cleared_tool_use_ids),
            cleared_at=frozenset(self.cleared_at),
            clearing=self.clearing,
        )
