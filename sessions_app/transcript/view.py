"""The only answer to "what does the model see?": a fold of the boundaries over the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sessions_app.catalog import TokenizerFamily
from sessions_app.transcript.boundary import AttachmentValue, Boundary, Placement, summary_uuid
from sessions_app.transcript.messages import Content, Message, MessageKind, Role, tool_results
from sessions_app.transcript.tokens import estimate_block

CLEARED_RESULT = "[Old tool result content cleared]"  # Claude Code's own placeholder
SUMMARY_OPENING = (
    "This session is being continued from an earlier conversation that no longer fits the context. "
    "What follows is a record of it, made by compaction; it is not something that the user wrote now.\n\n"
)
REFERENCE_OPENING = "For reference, restored after compaction; not a request.\n\n"


@dataclass(frozen=True, slots=True)
class ViewItem:
    """One thing that the model is shown: a stored message, or text that a boundary puts in.

    `position` is 0 for what a boundary put in. `stale_thinking`: an earlier part of the context has changed since this
    message was made, so its thinking blocks no longer verify. `cleared`: ids of its results that show a placeholder.
    """

    role: Role
    content: Content
    position: int
    uuid: str
    tokens: int
    message_id: str | None = None
    message: Message | None = None
    stale_thinking: bool = False
    cleared: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ContextView:
    """What the model sees: items in order, and the boundary at its head (None: the whole history)."""

    items: tuple[ViewItem, ...]
    boundary: Boundary | None

    @property
    def tokens(self) -> int:
        """Estimate of what is shown, in tokens, without system prompt and tools."""
        return sum(item.tokens for item in self.items)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The stored messages that are shown verbatim, oldest first by position."""
        found = [item.message for item in self.items if item.message is not None]
        return tuple(sorted(found, key=lambda message: message.position))


def is_rendered(message: Message) -> bool:
    """Whether a stored message is ever part of a request."""
    return message.kind == MessageKind.NORMAL and not message.is_sidechain


def summary_content(*, summary: str) -> str:
    """The user message that stands for what a boundary hides."""
    return SUMMARY_OPENING + summary


def attachment_content(*, text: str) -> str:
    """The user message that an attachment becomes."""
    return REFERENCE_OPENING + text


def head_of(boundaries: Sequence[Boundary], *, at: Boundary | None = None) -> Boundary | None:
    """The newest summarising boundary in force; `at`: as it was right after that boundary was written."""
    moment = at.created_at if at else None
    candidates = [
        b
        for b in boundaries
        if b.kind.summarizes and (at is None or b.sequence <= at.sequence) and (b is at or b.in_force_at(moment))
    ]
    return max(candidates, key=lambda b: b.sequence, default=None)


def fold(
    *,
    messages: Sequence[Message],
    boundaries: Sequence[Boundary],
    family: TokenizerFamily,
    at: Boundary | None = None,
) -> ContextView:
    """Read the history through its boundaries.

    `messages`: oldest first; at least those after the head boundary's `covers_to` and its preserved segment.
    `boundaries`: at least the head and the micro ones after it. `at`: the context as it stood right after
    that boundary, messages that came later left out. `family`: for the estimate of what placeholders save.
    """
    head = head_of(boundaries, at=at)
    upto = at.committed_at if at else None
    shown = [m for m in messages if is_rendered(m) and _live(m, upto) and not (head and head.hides(m.position))]
    micro = _clearing(boundaries=boundaries, head=head, at=at)
    items = [_with_cleared(item, micro, family) for item in _apply(head=head, shown=shown)]
    return ContextView(items=_mark_stale(items=items, head=head, micro=micro), boundary=head)


def _live(message: Message, upto: int | None) -> bool:
    if upto is None:
        return message.left_path_at is None
    return message.position <= upto and (message.left_path_at is None or message.left_path_at > upto)


def _clearing(*, boundaries: Sequence[Boundary], head: Boundary | None, at: Boundary | None) -> list[Boundary]:
    """The boundaries whose cleared ids hold: the head's own, and the micro ones since."""
    moment = at.created_at if at else None
    floor = head.sequence if head else -1
    return [
        b
        for b in boundaries
        if b.cleared_tool_use_ids
        and b.sequence >= floor
        and (at is None or b.sequence <= at.sequence)
        and (b is at or b.in_force_at(moment))
    ]


def _apply(*, head: Boundary | None, shown: Sequence[Message]) -> list[ViewItem]:
    if head is None:
        return [_message_item(m) for m in shown]
    segment = head.preserved
    early = segment is not None and segment.placement == Placement.BEFORE_SUMMARY
    prefix = [m for m in shown if early and m.position <= head.covers_to]
    rest = [m for m in shown if not early or m.position > head.covers_to]
    return [
        *(_message_item(m) for m in prefix),
        _summary_item(head),
        *(_attachment_item(head, number, a) for number, a in enumerate(head.attachments)),
        *(_message_item(m) for m in rest),
    ]


def _message_item(message: Message) -> ViewItem:
    return ViewItem(
        role=message.role,
        content=message.content,
        position=message.position,
        uuid=message.uuid,
        tokens=message.tokens,
        message_id=message.message_id,
        message=message,
    )


def _summary_item(boundary: Boundary) -> ViewItem:
    content: Content = boundary.summary_blocks or summary_content(summary=boundary.summary or "")
    role = Role.ASSISTANT if boundary.summary_blocks else Role.USER
    return ViewItem(
        role=role,
        content=content,
        position=0,
        uuid=summary_uuid(boundary_id=boundary.id),
        tokens=boundary.summary_tokens,
    )


def _attachment_item(boundary: Boundary, number: int, attachment: AttachmentValue) -> ViewItem:
    return ViewItem(
        role=Role.USER,
        content=attachment_content(text=attachment.text),
        position=0,
        uuid=f"{boundary.id}:attachment:{number}",
        tokens=attachment.tokens,
    )


def _with_cleared(item: ViewItem, micro: Sequence[Boundary], family: TokenizerFamily) -> ViewItem:
    """The item with the results that were cleared, at what it costs once they are placeholders.

    A boundary clears what stood before it; a later result that uses the same id again is another result.
    """
    if not micro or item.message is None or item.role != Role.USER:
        return item
    later = [boundary for boundary in micro if boundary.committed_at >= item.position]
    hidden = [
        block
        for block in tool_results(item.content)
        if any(block["tool_use_id"] in boundary.cleared_tool_use_ids for boundary in later)
    ]
    if not hidden:
        return item
    saved = sum(
        estimate_block(block=block, family=family)
        - estimate_block(block={**block, "content": CLEARED_RESULT}, family=family)
        for block in hidden
    )
    cleared = frozenset(block["tool_use_id"] for block in hidden)
    return replace(item, tokens=max(item.tokens - saved, 0), cleared=cleared)


def _mark_stale(*, items: Sequence[ViewItem], head: Boundary | None, micro: Sequence[Boundary]) -> tuple[ViewItem, ...]:
    """Thinking is bound to everything before it (facts: Anthropic API, section 8; decision 12)."""
    marked, after_summary = [], False
    changed_at = next((item.position for item in items if item.cleared), None)
    settled = max((b.committed_at for b in micro), default=0)
    bound_to = _bound_to_old_prefix(items=items, head=head) if head else 0
    for item in items:
        after_summary = after_summary or (head is not None and item.position == 0)
        behind_summary = after_summary and head is not None and item.position <= bound_to
        behind_cleared = changed_at is not None and changed_at < item.position <= settled
        stale = item.role == Role.ASSISTANT and item.position > 0 and (behind_summary or behind_cleared)
        marked.append(replace(item, stale_thinking=True) if stale else item)
    return tuple(marked)


def _bound_to_old_prefix(*, items: Sequence[ViewItem], head: Boundary) -> int:
    """The last position whose thinking belongs to the context before the boundary.

    A request that was under way when the boundary was written was made from the old context, and its response arrives
    after it; the size of its prompt tells (nearer to what the context was before than to what it is since).
    """
    last, response = head.committed_at, None
    for item in items:
        if item.position <= head.committed_at or item.role != Role.ASSISTANT or item.message is None:
            continue
        if response is not None and item.message_id != response:
            break
        usage = item.message.usage
        if usage is None or 2 * usage.prompt_tokens <= head.tokens_before + head.tokens_after:
            break
        last, response = item.position, item.message_id
    return last
