"""What a boundary changed: the contexts before and after it, compared item by item."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sessions_app.transcript.messages import Content, ContentBlock, content_blocks, text_of
from sessions_app.transcript.view import REFERENCE_OPENING, SUMMARY_OPENING, ContextView, ViewItem

MOST_NAME_CHARS = 80  # of a tool's name, or of a block's type that nobody here knows
EMPTY_RESULT = "[empty result]"
_SILENT = ("thinking", "redacted_thinking")


@dataclass(frozen=True, slots=True)
class ContextDiff:
    """`went`: shown before and not after; `came`: the reverse, what a boundary put in; `cleared`: (item after, ids of
    its results that are placeholders now and were not); `stayed`: shown in both. Tokens are estimates of what the model
    sees, without system prompt and tools. `thinking_dropped`: messages whose thinking no longer goes along."""

    went: tuple[ViewItem, ...]
    came: tuple[ViewItem, ...]
    cleared: tuple[tuple[ViewItem, frozenset[str]], ...]
    stayed: tuple[ViewItem, ...]
    tokens_before: int
    tokens_after: int
    thinking_dropped: int

    @property
    def tokens_went(self) -> int:
        return sum(item.tokens for item in self.went)

    @property
    def tokens_came(self) -> int:
        return sum(item.tokens for item in self.came)

    @property
    def tokens_stayed(self) -> int:
        return sum(item.tokens for item in self.stayed)


def diff_views(*, before: ContextView, after: ContextView) -> ContextDiff:
    """The difference of two views of one session, each item told by its uuid."""
    old = {item.uuid: item for item in before.items}
    new = {item.uuid: item for item in after.items}
    both = [(old[uuid], item) for uuid, item in new.items() if uuid in old]
    return ContextDiff(
        went=tuple(item for uuid, item in old.items() if uuid not in new),
        came=tuple(item for uuid, item in new.items() if uuid not in old),
        cleared=tuple((now, now.cleared - then.cleared) for then, now in both if now.cleared - then.cleared),
        stayed=tuple(now for _, now in both),
        tokens_before=before.tokens,
        tokens_after=after.tokens,
        thinking_dropped=sum(now.stale_thinking and not then.stale_thinking for then, now in both),
    )


def item_begins(*, item: ViewItem, most: int) -> str:
    """The same of what is shown, without what all texts open with that a boundary puts in."""
    text = text_of(item.content) if not item.position else ""
    for opening in (SUMMARY_OPENING, REFERENCE_OPENING):
        if text.startswith(opening):
            return _first(text.removeprefix(opening), most=most)
    return begins(content=item.content, most=most)


def begins(*, content: Content, most: int) -> str:
    """What a message is recognised by, in at most `most` characters: its text, of a call its tool and first argument,
    of a result its first words, of media their kind; thinking only where there is nothing else."""
    if isinstance(content, str):
        return content[:most]
    told, length = [], 0
    for words in _words(content, most=most):
        told.append(words)
        length += len(words) + 1
        if length > most:
            break
    if not told and any(block.get("type") in _SILENT for block in content):
        told = ["[thinking]"]
    return "\n".join(told)[:most]


def _words(content: Content, *, most: int) -> Iterator[str]:
    for block in content_blocks(content):
        words = _of_block(block, most=most)
        if words.strip():
            yield words


def _of_block(block: ContentBlock, *, most: int) -> str:
    match block.get("type"):
        case "text":
            return _text(block.get("text"), most=most)
        case "tool_use" | "server_tool_use":
            name, argument = _text(block.get("name"), most=MOST_NAME_CHARS), _argument(block.get("input"), most=most)
            return f"{name}: {argument}" if argument else name
        case "tool_result":
            return _result(block.get("content"), most=most)
        case kind if kind in _SILENT:
            return ""
        case kind:
            return f"[{str(kind)[:MOST_NAME_CHARS]}]"


def _result(content: Any, *, most: int) -> str:
    if isinstance(content, str):
        return _first(content, most=most) or EMPTY_RESULT
    blocks = content if isinstance(content, list | tuple) else ()
    told = (_of_block(block, most=most) for block in blocks if isinstance(block, Mapping))
    return next((_first(words, most=most) for words in told if words.strip()), "") or EMPTY_RESULT


def _argument(given: Any, *, most: int) -> str:
    value = next(iter(given.values()), "") if isinstance(given, Mapping) else ""
    return _first(value, most=most) if isinstance(value, str) else json.dumps(value, default=str)[:most]


def _first(text: str, *, most: int) -> str:
    """Without the space in front: a result that begins with empty lines tells something too."""
    return text.lstrip()[:most]


def _text(value: Any, *, most: int) -> str:
    return value[:most] if isinstance(value, str) else ""
