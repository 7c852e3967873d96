"""What each light link could free now, for an analysis: told by the links themselves, without holding the view."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import datetime

from compaction_app.engine.links.cache_edits import CACHE_EDITS
from compaction_app.engine.links.time_based import TIME_BASED
from compaction_app.engine.plan import PLANS
from compaction_app.engine.ports import Silent
from compaction_app.engine.values import Situation, Trigger
from sessions_app.catalog import TokenizerFamily
from sessions_app.policy import Policy
from sessions_app.transcript.clearing import CompactableResult, ResultTracker, as_billed, live, old_results
from sessions_app.transcript.messages import Role, content_blocks
from sessions_app.transcript.request import THINKING
from sessions_app.transcript.view import ContextView, ViewItem
from sessions_app.transcript.window import Window

_NEWEST = 8  # items at the end of a view that are kept beside the one that its last round hangs on


@dataclass(frozen=True, slots=True)
class Relief:
    """`results`, `tokens`: what the link would clear, and free by it, were its moment now; `would_run`: whether it is.

    Each link is judged as if it were alone; a preparation stops after the first that clears anything.
    """

    link: str
    would_run: bool
    why: str
    results: int
    tokens: int


@dataclass(frozen=True, slots=True)
class StreamedSituation(Situation):
    """A situation whose view was read item by item: `view` holds its end only, and the results are known already."""

    tracked: tuple[CompactableResult, ...] = ()

    @property
    def compactable(self) -> list[CompactableResult]:
        return as_billed(self.tracked, ratio=self.shown_ratio)


class ReliefReader:
    """Takes the items of a view, oldest first. Holds a small row for each compactable result, and the view's end.

    That end is all that a link looks at besides results: one that looks back stops at the item that began the turn, or
    at thinking.
    """

    def __init__(self, *, policy: Policy, family: TokenizerFamily) -> None:
        self._policy, self._family = policy, family
        self._tracker = ResultTracker(
            tools=policy.compactable_tools, least_bytes=policy.clear_least_result_bytes, family=family
        )
        self._start: ViewItem | None = None
        self._newest: deque[ViewItem] = deque(maxlen=_NEWEST)

    def add(self, item: ViewItem) -> None:
        self._tracker.add(item)
        if _begins_or_thinks(item):
            self._start = item
            self._newest.clear()
        else:
            self._newest.append(item)

    def reliefs(
        self,
        *,
        tokens: int,
        overhead_tokens: int,
        last_position: int,
        last_assistant_at: datetime | None,
        window: Window,
        now: datetime,
        shown_ratio: float = 1.0,
    ) -> list[Relief]:
        """What each link that runs before a request could free, in their order. Tokens: the whole context's.

        `shown_ratio`: tokens of the context per estimated token of what is shown.
        """
        start = () if self._start is None else (self._start,)
        situation = StreamedSituation(
            view=ContextView(items=(*start, *self._newest), boundary=None),
            shown_ratio=shown_ratio,
            tracked=tuple(sorted(self._tracker.results, key=lambda result: result.position)),
            tokens=tokens,
            overhead_tokens=overhead_tokens,
            last_position=last_position,
            policy=self._policy,
            family=self._family,
            trigger=Trigger.PREPARE,
            now=now,
            window=window,
            last_assistant_at=last_assistant_at,
            originals=lambda up_to: (),
            summarizer=None,
            progress=Silent(),
        )
        return reliefs(situation)


def _begins_or_thinks(item: ViewItem) -> bool:
    kinds = {block.get("type") for block in content_blocks(item.content)}
    if item.role == Role.ASSISTANT:
        return not THINKING.isdisjoint(kinds)
    return "tool_result" not in kinds


def reliefs(situation: Situation) -> list[Relief]:
    """What each link that runs before a request could free, in their order."""
    policy = situation.policy
    keep = {
        TIME_BASED.name: policy.time_based_keep_results,
        CACHE_EDITS.name: policy.cache_edit_keep_results,
    }
    results = live(situation.compactable)
    told = []
    for link in PLANS[Trigger.PREPARE].links:
        old = old_results(results=results, keep=keep[link.name])
        if policy.compaction_enabled:
            step = link.attempt(situation)
            would_run, why = step.draft is not None, step.why
        else:
            would_run, why = False, "compaction is switched off"
        freed = sum(result.tokens_freed for result in old)
        told.append(Relief(link=link.name, would_run=would_run, why=why, results=len(old), tokens=freed))
    return told
