"""What a boundary changed: the contexts before and after it, compared item by item."""

from __future__ import annotations

from dataclasses import dataclass

from sessions_app.transcript.view import ContextView, ViewItem


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
