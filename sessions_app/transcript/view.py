"""The only answer to "what does the model see?": a fold of the boundaries over the history."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sessions_app.catalog import TokenizerFamily
from sessions_app.transcript.boundary import AttachmentValue, Boundary, Clearing, summary_uuid
from sessions_app.transcript.messages import (
    Content,
    ContentBlock,
    Message,
    MessageKind,
    Role,
    content_blocks,
    tool_results,
)
from sessions_app.transcript.native import leads
from sessions_app.transcript.reigns import Reigns
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
    candidates = [
        b
        for b in boundaries
        if b.kind.summarizes and (at is None or b.sequence <= at.sequence) and (b is at or b.in_force_at(at))
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
    `boundaries`: at least the head, the micro ones after it, and those that were taken back since what is shown was
    made. `at`: the context as it stood right after that boundary, messages that came later left out. `family`: for the
    estimate of what placeholders save.
    `edits_at_api`: results that are cleared by edits on the API's side are shown whole (and marked `edited`), as
    a request with these edits sends them; else as placeholders, which is what the model sees.
    """
    head = head_of(boundaries, at=at)
    # No edits are sent beside a compaction block, ours or a client's (facts: Anthropic API, section 7a).
    edits_at_api = edits_at_api and not any(boundary.summary_blocks for boundary in (head.chain if head else ()))
    micro = _clearing(boundaries=boundaries, head=head, at=at)
    items = list(_items(messages=messages, head=head, micro=micro, family=family, at=at, edits_at_api=edits_at_api))
    if edits_at_api and items and leads(items[0].content):
        return fold(messages=messages, boundaries=boundaries, family=family, at=at)
    past = _past(boundaries=boundaries, at=at)
    marked = _mark_stale(items=items, head=head, micro=micro, past=past, edits_at_api=edits_at_api)
    return ContextView(items=marked, boundary=head)


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
    """The boundaries whose cleared ids hold: the head's own, and the micro ones since; in a kept prefix older ones, and
    those of the boundary that it is read through."""
    floor = head.clears_from if head else -1
    given = {b.sequence for b in boundaries}
    below = [b for b in (head.below if head else ()) if b.sequence not in given]
    return [
        b
        for b in (*below, *boundaries)
        if b.cleared_tool_use_ids
        and b.sequence >= floor
        and (at is None or b.sequence <= at.sequence)
        and (b is at or b.in_force_at(at))
    ]


def _apply(*, head: Boundary | None, shown: Iterable[Message]) -> Iterator[ViewItem]:
    """The messages in order, with what the head boundary, and those that it keeps, put in at their places."""
    waiting = list(head.chain) if head else []
    for message in shown:
        while waiting and not (waiting[0].keeps_prefix and message.position <= waiting[0].covers_to):
            yield from _inserted(waiting.pop(0))
        yield _message_item(message)
    for boundary in waiting:
        yield from _inserted(boundary)


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
    *,
    items: Sequence[ViewItem],
    head: Boundary | None,
    micro: Sequence[Boundary],
    past: Sequence[Boundary],
    edits_at_api: bool,
) -> tuple[ViewItem, ...]:
    """Thinking is bound to everything before it (facts: Anthropic API, section 8; decision 12).

    Edits on the API's side do not count as changes, as long as the request carries them. `past`: boundaries that had
    been taken back, through which some of the responses were made.
    """
    marked = []
    chain = {summary_uuid(boundary_id=boundary.id): boundary for boundary in (head.chain if head else ())}
    reigns = Reigns(items=items, in_force=[*chain.values(), *micro], past=past)
    changed_at = next((item.position for item in items if item.cleared), None)
    # What a summary has carried on was cleared before it, and is behind it: `made_without` tells.
    clearings = [b for b in micro if not b.kind.summarizes]
    rewriting = [b for b in clearings if not (edits_at_api and b.clearing == Clearing.API_EDIT)]
    settled = max((reigns.first_written_at(b) for b in rewriting), default=0)
    summaries: list[Boundary] = []
    for item in items:
        if item.position == 0 and item.uuid in chain:
            summaries.append(chain[item.uuid])
        stale = (
            item.role == Role.ASSISTANT
            and item.position > 0
            and (
                (changed_at is not None and changed_at < item.position <= settled)
                or reigns.made_through_what_is_gone(item.position)
                or any(reigns.made_without(boundary, item.position) for boundary in summaries)
            )
        )
        marked.append(replace(item, stale_thinking=True) if stale else item)
    return tuple(marked)


def _past(*, boundaries: Sequence[Boundary], at: Boundary | None) -> list[Boundary]:
    """Of the boundaries, those that had been taken back, now or when `at` was written."""
    return [b for b in boundaries if b is not at and (at is None or b.sequence < at.sequence) and not b.in_force_at(at)]
