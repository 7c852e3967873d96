"""The only answer to "what does the model see?": a fold of the boundaries over the history."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sessions_app.catalog import TokenizerFamily
from sessions_app.transcript.boundary import AttachmentValue, Boundary, Clearing, Placement, summary_uuid
from sessions_app.transcript.messages import (
    Content,
    ContentBlock,
    Message,
    MessageKind,
    Role,
    content_blocks,
    tool_results,
)
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
    message was made, so its thinking blocks no longer verify. `cleared`: ids of its results that show a placeholder;
    `edited`: ids of those that are sent whole and cleared by the API. `tokens`: what the model sees, so without both;
    `content_bytes`: what a request holds, so with the latter.
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
    edited: frozenset[str] = frozenset()
    content_bytes: int = 0


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
    def content_bytes(self) -> int:
        """Size of the contents that a request holds, as JSON."""
        return sum(item.content_bytes for item in self.items)

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
    edits_at_api: bool = False,
) -> ContextView:
    """Read the history through its boundaries.

    `messages`: oldest first; at least those after the head boundary's `covers_to` and its preserved segment.
    `boundaries`: at least the head and the micro ones after it. `at`: the context as it stood right after
    that boundary, messages that came later left out. `family`: for the estimate of what placeholders save.
    `edits_at_api`: results that are cleared by edits on the API's side are shown whole (and marked `edited`), as
    a request with these edits sends them; else as placeholders, which is what the model sees.
    """
    head = head_of(boundaries, at=at)
    micro = _clearing(boundaries=boundaries, head=head, at=at)
    items = list(_items(messages=messages, head=head, micro=micro, family=family, at=at, edits_at_api=edits_at_api))
    return ContextView(items=_mark_stale(items=items, head=head, micro=micro, edits_at_api=edits_at_api), boundary=head)


def stream_items(
    *, messages: Iterable[Message], boundaries: Sequence[Boundary], family: TokenizerFamily
) -> Iterator[ViewItem]:
    """The items of the view as it is now, one by one: for reading a long one without holding it.

    As `fold`, but `stale_thinking` is not told. `messages`: oldest first.
    """
    head = head_of(boundaries)
    micro = _clearing(boundaries=boundaries, head=head, at=None)
    return _items(messages=messages, head=head, micro=micro, family=family, at=None, edits_at_api=False)


def _items(
    *,
    messages: Iterable[Message],
    head: Boundary | None,
    micro: Sequence[Boundary],
    family: TokenizerFamily,
    at: Boundary | None,
    edits_at_api: bool,
) -> Iterator[ViewItem]:
    upto = at.committed_at if at else None
    shown = (m for m in messages if is_rendered(m) and _live(m, upto) and not (head and head.hides(m.position)))
    cleared = _Cleared(micro)
    for item in _apply(head=head, shown=shown):
        yield _with_cleared(item, cleared, family, edits_at_api)


def clear(
    *, view: ContextView, results: Collection[tuple[int, str]], clearing: Clearing, family: TokenizerFamily
) -> ContextView:
    """The view as it would be once these results, each as (position, id), were cleared too."""
    by_position: dict[int, frozenset[str]] = {}
    for position, use_id in results:
        by_position[position] = by_position.get(position, frozenset()) | {use_id}
    marked: list[ViewItem] = []
    changed = False
    for item in view.items:
        ids = by_position.get(item.position, frozenset())
        found = _clear_item(item, ids, clearing, family, shown_whole=clearing == Clearing.API_EDIT)
        changed = changed or found.cleared != item.cleared
        stale = changed and item.role == Role.ASSISTANT and item.position > 0
        marked.append(replace(found, stale_thinking=True) if stale else found)
    return replace(view, items=tuple(marked))


def _clear_item(
    item: ViewItem, ids: frozenset[str], clearing: Clearing, family: TokenizerFamily, *, shown_whole: bool
) -> ViewItem:
    if not ids or item.message is None or item.role != Role.USER:
        return item
    known = item.cleared | item.edited
    hidden = [b for b in tool_results(item.content) if b["tool_use_id"] in ids and b["tool_use_id"] not in known]
    if not hidden:
        return item
    if len(content_blocks(item.content)) == 1:
        tokens = min(item.tokens, placeholder_tokens(family=family))  # the message's estimate is its only block's
    else:
        tokens = max(item.tokens - sum(saved_by_placeholder(block=block, family=family) for block in hidden), 0)
    new = frozenset(block["tool_use_id"] for block in hidden)
    size = item.content_bytes
    if clearing == Clearing.PLACEHOLDER:
        size = max(size - sum(_size(block.get("content")) for block in hidden), 0)
    if shown_whole:
        return replace(item, tokens=tokens, edited=item.edited | new, content_bytes=size)
    return replace(item, tokens=tokens, cleared=item.cleared | new, content_bytes=size)


def _size(content: object) -> int:
    """Bytes of a content as JSON, the placeholder that may stand for it left out of account."""
    if isinstance(content, str):
        return len(content)  # what is escaped in it is not worth the time
    return len(json.dumps(content, default=str)) if content else 0


@functools.cache
def placeholder_tokens(*, family: TokenizerFamily) -> int:
    """What a cleared result costs, in tokens."""
    return estimate_block(block={"type": "tool_result", "content": CLEARED_RESULT}, family=family)


def saved_by_placeholder(*, block: ContentBlock, family: TokenizerFamily) -> int:
    """What a placeholder in place of a result's content saves, in tokens; never less than 0."""
    return max(estimate_block(block=block, family=family) - placeholder_tokens(family=family), 0)


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


def _apply(*, head: Boundary | None, shown: Iterable[Message]) -> Iterator[ViewItem]:
    """The messages in order, with what the head boundary puts in at its place."""
    segment = head.preserved if head else None
    early = segment is not None and segment.placement == Placement.BEFORE_SUMMARY
    waiting = head
    for message in shown:
        if waiting is not None and not (early and message.position <= waiting.covers_to):
            yield from _inserted(waiting)
            waiting = None
        yield _message_item(message)
    if waiting is not None:
        yield from _inserted(waiting)


def _inserted(head: Boundary) -> Iterator[ViewItem]:
    yield _summary_item(head)
    for number, attachment in enumerate(head.attachments):
        yield _attachment_item(head, number, attachment)


def _message_item(message: Message) -> ViewItem:
    return ViewItem(
        role=message.role,
        content=message.content,
        position=message.position,
        uuid=message.uuid,
        tokens=message.tokens,
        message_id=message.message_id,
        message=message,
        content_bytes=message.content_bytes,
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
        content_bytes=_size(content),
    )


def _attachment_item(boundary: Boundary, number: int, attachment: AttachmentValue) -> ViewItem:
    return ViewItem(
        role=Role.USER,
        content=attachment_content(text=attachment.text),
        position=0,
        uuid=f"{boundary.id}:attachment:{number}",
        tokens=attachment.tokens,
        content_bytes=_size(attachment.text),
    )


class _Cleared:
    """Which boundary clears which result, looked up at the cost of the message, whatever the number of boundaries."""

    def __init__(self, micro: Sequence[Boundary]) -> None:
        self._exact: dict[tuple[int, str], Boundary] = {}
        for boundary in micro:
            for place in boundary.cleared_at:
                self._exact.setdefault(place, boundary)
        # A client's own clearing tells ids only: it holds for what stood before it.
        self._by_id = [boundary for boundary in micro if not boundary.cleared_at]
        self.any = bool(micro)

    def by(self, *, position: int, use_id: str) -> Boundary | None:
        found = self._exact.get((position, use_id))
        if found is not None or not self._by_id:
            return found
        return next(
            (b for b in self._by_id if b.committed_at >= position and use_id in b.cleared_tool_use_ids),
            None,
        )


def _with_cleared(item: ViewItem, cleared: _Cleared, family: TokenizerFamily, edits_at_api: bool) -> ViewItem:
    """The item with the results that were cleared, at what it costs once they are placeholders."""
    if not cleared.any or item.message is None or item.role != Role.USER:
        return item
    ids: dict[Clearing, set[str]] = {}
    for block in tool_results(item.content):
        boundary = cleared.by(position=item.position, use_id=block["tool_use_id"])
        if boundary is not None:
            ids.setdefault(boundary.clearing, set()).add(block["tool_use_id"])
    for clearing, found in ids.items():
        shown_whole = edits_at_api and clearing == Clearing.API_EDIT
        item = _clear_item(item, frozenset(found), clearing, family, shown_whole=shown_whole)
    return item


def _mark_stale(
    *, items: Sequence[ViewItem], head: Boundary | None, micro: Sequence[Boundary], edits_at_api: bool
) -> tuple[ViewItem, ...]:
    """Thinking is bound to everything before it (facts: Anthropic API, section 8; decision 12).

    Edits on the API's side do not count as changes, as long as the request carries them.
    """
    marked, after_summary = [], False
    changed_at = next((item.position for item in items if item.cleared), None)
    rewriting = [b for b in micro if not (edits_at_api and b.clearing == Clearing.API_EDIT)]
    settled = max((b.committed_at for b in rewriting), default=0)
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
