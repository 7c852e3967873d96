"""Which tool results may be cleared, and what that would free: the only answer for links, analysis and view.

Results go oldest first, so that the cleared part is always a beginning that only grows (facts: quality.md, cost of each
policy). What is not worth a placeholder stays (decision 14).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sessions_app.catalog import TokenizerFamily
from sessions_app.figures import ToolTable
from sessions_app.transcript.messages import ContentBlock, Role, content_blocks, tool_results, tool_uses
from sessions_app.transcript.tokens import estimate_block
from sessions_app.transcript.view import ViewItem, placeholder_tokens


@dataclass(frozen=True, slots=True)
class CompactableResult:
    """A shown result of a tool whose results may be cleared.

    `tokens_freed`: what a placeholder in its place would save, 0 where it is left alone; `cleared`: it is a
    placeholder already.
    """

    tool_use_id: str
    tool: str
    position: int
    tokens_freed: int
    cleared: bool


class ResultTracker:
    """Follows calls and results through the items of a view, oldest first; holds no contents."""

    def __init__(self, *, tools: ToolTable, least_bytes: int, family: TokenizerFamily) -> None:
        self._tools, self._least_bytes, self._family = tools, least_bytes, family
        self._names: dict[str, str] = {}
        self._early: dict[str, list[tuple[int, int, bool]]] = {}
        self.results: list[CompactableResult] = []

    def add(self, item: ViewItem) -> None:
        if item.position == 0:
            return  # what a boundary put in
        if item.role == Role.ASSISTANT:
            for block in tool_uses(item.content):
                self._use(block)
        elif item.role == Role.USER:
            blocks = content_blocks(item.content)
            for block in tool_results(item.content):
                alone = len(blocks) == 1 and not item.cleared and not item.edited
                self._result(item=item, block=block, whole_tokens=item.tokens if alone else None)

    def _use(self, block: ContentBlock) -> None:
        use_id, name = block["id"], block.get("name")
        self._names[use_id] = sys.intern(name) if isinstance(name, str) else ""
        for position, saved, cleared in self._early.pop(use_id, ()):
            self._note(use_id, position, saved, cleared)

    def _result(self, *, item: ViewItem, block: ContentBlock, whole_tokens: int | None) -> None:
        use_id = block["tool_use_id"]
        cleared = use_id in item.cleared or use_id in item.edited
        saved = 0 if cleared else self._saved(block, whole_tokens)
        if use_id in self._names:
            self._note(use_id, item.position, saved, cleared)
        else:
            # Clients that run parallel calls while the response streams write some results before their use.
            self._early.setdefault(use_id, []).append((item.position, saved, cleared))

    def _note(self, use_id: str, position: int, saved: int, cleared: bool) -> None:
        name = self._names[use_id]
        if self._tools.allows(name):
            self.results.append(CompactableResult(use_id, name, position, saved, cleared))

    def _saved(self, block: ContentBlock, whole_tokens: int | None) -> int:
        if _is_shorter(block.get("content"), self._least_bytes):
            return 0
        tokens = estimate_block(block=block, family=self._family) if whole_tokens is None else whole_tokens
        return max(tokens - placeholder_tokens(family=self._family), 0)


def compactable_results(
    *, items: Iterable[ViewItem], tools: ToolTable, least_bytes: int, family: TokenizerFamily
) -> list[CompactableResult]:
    """The results in `items` (a view's, oldest first) whose tool may be cleared, in the order of their positions."""
    tracker = ResultTracker(tools=tools, least_bytes=least_bytes, family=family)
    for item in items:
        tracker.add(item)
    return sorted(tracker.results, key=lambda result: result.position)


def as_billed(results: Sequence[CompactableResult], *, ratio: float) -> list[CompactableResult]:
    """The same with what they free as it is billed. `ratio`: billed tokens per estimated one."""
    if ratio == 1:
        return list(results)
    return [replace(result, tokens_freed=round(result.tokens_freed * ratio)) for result in results]


def live(results: Sequence[CompactableResult]) -> list[CompactableResult]:
    """Those that are not cleared yet."""
    return [result for result in results if not result.cleared]


def old_results(*, results: Sequence[CompactableResult], keep: int) -> list[CompactableResult]:
    """Those worth clearing when the most recent `keep` stay, oldest first."""
    older = results[: max(len(results) - keep, 0)]
    return [result for result in older if result.tokens_freed and not result.cleared]


def _is_shorter(content: object, least_bytes: int) -> bool:
    """Whether a result's content takes fewer bytes than that."""
    if isinstance(content, str):
        return len(content) < least_bytes and len(content.encode("utf-8", "surrogatepass")) < least_bytes
    if not content:
        return least_bytes > 0
    return len(json.dumps(content, ensure_ascii=False, default=str).encode("utf-8", "surrogatepass")) < least_bytes
