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

    @property
    def is_part(self) -> bool:
        """Whether somebody chose by a message what is summarised (S7): what is kept may be of any size."""
        return self in (BoundaryKind.PARTIAL_UP_TO, BoundaryKind.PARTIAL_FROM)

    @property
    def keeps_what_may_go(self) -> bool:
        """Whether it leaves more verbatim than a whole compaction would: a part, or what no memory tells."""
        return self.is_part or self is BoundaryKind.SESSION_MEMORY


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
    `cleared_tool_use_ids`: results that are shown as a placeholder. `reverted_after` (where it is not known:
    `created_at` and `reverted_at`) orders boundaries for a look back. `base`: an earlier boundary that the preserved
    segment is still read through, and whose summary may stay: in front of the prefix that a partial_from keeps, or
    behind the part of such a prefix that a partial_up_to keeps.
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
    # The same moment without a clock: the newest boundary's sequence and the session's last position then.
    reverted_after: int | None = None
    reverted_position: int | None = None
    # Sequence of the boundary that this one is a copy of; 0: of none.
    origin: int = 0
    base: Boundary | None = None
    # How many summaries lie between the originals and this one's text: 1 where it was made from originals alone.
    generation: int = 1

    def hides(self, position: int) -> bool:
        """Whether the message at `position` is no longer shown verbatim."""
        if not self.kind.summarizes or position > self.covers_to:
            return False
        segment = self.preserved
        if segment is None or not segment.first <= position <= segment.last:
            return True
        return self.base is not None and self.base.hides(position)

    @property
    def keeps_prefix(self) -> bool:
        """Whether what was shown first stays, and the summary stands behind it."""
        if self.kind is BoundaryKind.PARTIAL_FROM:
            return True
        return self.preserved is not None and self.preserved.placement == Placement.BEFORE_SUMMARY

    def stands_before(self, position: int) -> bool:
        """Whether the summary is shown in front of the message at `position`, which is shown too."""
        return not self.keeps_prefix or self.covers_to < position

    @property
    def chain(self) -> tuple[Boundary, ...]:
        """All boundaries whose summaries are shown, this one and those that it keeps, in the order in which they stand.

        A summary that stood within what this boundary compacts has been folded into its own.
        """
        earlier = self.base.chain if self.base else ()
        if self.keeps_prefix:
            until = self.preserved.last if self.preserved else self.base.covers_to if self.base else 0
            return (*(one for one in earlier if one.stands_before(until + 1)), self)
        first = self.preserved.first if self.preserved else self.covers_to + 1
        return (self, *(one for one in earlier if not one.stands_before(first)))

    @property
    def below(self) -> tuple[Boundary, ...]:
        """The boundaries that what it keeps is read through, the newest first."""
        return (self.base, *self.base.below) if self.base else ()

    @property
    def clears_from(self) -> int:
        """Sequence of the first boundary whose clearing still holds below this one: in a kept prefix older ones do."""
        if not self.keeps_prefix:
            return self.sequence
        return self.base.clears_from if self.base else -1

    @property
    def lineage(self) -> int:
        """The same for a boundary and for its copies, which show the same."""
        return self.origin or self.sequence

    @property
    def reigns_from(self) -> int:
        """Sequence of the first boundary that may have been in force while something shown below this one was made."""
        if not self.keeps_prefix:
            return self.lineage
        return self.base.reigns_from if self.base else -1

    def in_force_at(self, at: Boundary | None) -> bool:
        """Whether the boundary had not been reverted when `at` was written (None: now)."""
        if self.reverted_at is None:
            return True
        if at is None:
            return False
        if self.reverted_after is None:
            return self.reverted_at > at.created_at
        return self.reverted_after >= at.sequence


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
    # A provider's signed block that stands for the summary as it is; `summary` is then what a person reads of it.
    summary_blocks: tuple[ContentBlock, ...] = ()
    base: Boundary | None = None
    generation: int = 1
    # What must survive the next compaction too, in words of the originals (engine/facts.py).
    facts: Mapping[str, Any] = field(default_factory=dict)
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
            summary_blocks=self.summary_blocks,
            base=self.base,
            generation=self.generation,
        )
