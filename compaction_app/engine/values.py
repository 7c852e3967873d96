"""What the links of the chain are told, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from compaction_app.engine.command import Scope
from compaction_app.engine.outcome import CompactionRefused, FailureReason
from compaction_app.engine.ports import Conversation, Progress, Summarizer
from sessions_app.catalog import TokenizerFamily
from sessions_app.policy import Policy
from sessions_app.transcript.boundary import Boundary, BoundaryDraft
from sessions_app.transcript.clearing import CompactableResult, as_billed, compactable_results
from sessions_app.transcript.messages import Message
from sessions_app.transcript.view import ContextView, clear
from sessions_app.transcript.window import Window

if TYPE_CHECKING:
    from compaction_app.engine.client_state import StateValue


class Trigger(StrEnum):
    """What asked for compaction. PREPARE: a client, before it calls the model. REACTIVE: a client whose request the
    provider has refused as too long."""

    PREPARE = "prepare"
    AUTO = "auto"
    MANUAL = "manual"
    REACTIVE = "reactive"


@dataclass(frozen=True, slots=True)
class MemoryValue:
    """A session's memory document (S6). `covers_to`: position of the last message that it covers; `is_live`: whether
    that message is on the live path. `generation`: as of a boundary's summary."""

    content: str
    covers_to: int
    is_live: bool = True
    source: str = "client"
    generation: int = 1


@dataclass(frozen=True, slots=True)
class Reported:
    """What the provider told of the request that it refused as too long; None where it told nothing. In tokens.

    `tokens`: of the prompt; `limit`: of prompt and output together; `output`: what the request asked for.
    """

    tokens: int | None = None
    limit: int | None = None
    output: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What a link did, or why it passed, in words with figures.

    `draft`: the boundary that it proposes, None when it passed; then `reason` says what a run that ends here failed of.
    `shared_prefix`: whether the call that wrote its summary shared the conversation's prefix; None without a call.
    Tokens are of the whole context.
    """

    why: str
    tokens_before: int
    tokens_after: int
    draft: BoundaryDraft | None = None
    reason: FailureReason | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    shared_prefix: bool | None = None


@dataclass(frozen=True, slots=True)
class Situation:
    """All that a link may know. `tokens`: the whole context with `overhead_tokens` for system prompt and tools.

    `originals(up_to)`: the stored messages of the live path at positions 1..up_to, oldest first, so that a summary can
    be made from the history itself. `on_files(up_to)`: of these, the newest calls on files with their results.
    `facts_of(boundaries)`: what each of them carries (facts.py), None for one that carries nothing; None: nobody knows.
    `summarizer`: None where no link may call a model; `last_resort`: who writes where that one's provider has failed,
    None where nobody does, and `refused`: how it has failed. `conversation`: as its client sends it. `pre_compact()`:
    asks the team's hooks before a summary is written, and gives what they want it to mind; raises CompactionRefused.
    `last_assistant_at`: when the last response was made, None before the first. `drafts`: what the links before
    have proposed, in order; `view` and `tokens` are as if that were done, `found` is how it was before. `ratio`: billed
    tokens per estimated one where no usage tells; `shown_ratio`: the same of what is shown now, by the last usage too.
    `scope`, `scope_uuid`: which part is wanted, and the message that it was asked for by (S7). `memory`: None where the
    session has none. `names_summarizer`: whether whoever asks has said who is to write. `reported`, and
    `newest`, the newest boundary of any kind: None but for REACTIVE.
    The view's tokens are estimates; `tokens`, and what a step tells, are as billed.
    """

    view: ContextView
    tokens: int
    overhead_tokens: int
    last_position: int
    policy: Policy
    family: TokenizerFamily
    trigger: Trigger
    now: datetime
    window: Window
    originals: Callable[[int], Sequence[Message]]
    summarizer: Summarizer | None
    progress: Progress
    last_resort: Summarizer | None = None
    refused: CompactionRefused | None = None
    conversation: Conversation | None = None
    client_state: StateValue | None = None
    on_files: Callable[[int], Sequence[Message]] | None = None
    facts_of: Callable[[Sequence[Boundary]], Sequence[Mapping[str, Any] | None]] | None = None
    pre_compact: Callable[[], str] | None = None
    last_assistant_at: datetime | None = None
    instructions: str = ""
    scope: Scope = Scope.WHOLE
    scope_uuid: str = ""
    memory: MemoryValue | None = None
    names_summarizer: bool = False
    reported: Reported | None = None
    newest: Boundary | None = None
    drafts: tuple[BoundaryDraft, ...] = ()
    found: Situation | None = None
    ratio: float = 1.0
    shown_ratio: float = 1.0

    @property
    def as_found(self) -> Situation:
        """Before any clearing: what a summary replaces, and is measured by."""
        return self.found or self

    @property
    def summary_draft(self) -> BoundaryDraft | None:
        """The proposed boundary that summarises; it takes the place of any clearing proposed before it."""
        return next((draft for draft in reversed(self.drafts) if draft.kind.summarizes), None)

    @property
    def is_light_enough(self) -> bool:
        """Whether clearing alone is enough: the level is `ok`, with room to go on (S1), in tokens and in bytes."""
        share = self.policy.light_enough_share
        most_tokens = min(int(self.window.auto_compact_threshold * share), self.window.warning_threshold - 1)
        return self.tokens <= most_tokens and self.view.content_bytes <= self.window.auto_compact_bytes * share

    @property
    def compactable(self) -> list[CompactableResult]:
        """The results in the view whose tool may be cleared, oldest first; what they would free as it is billed."""
        results = compactable_results(
            items=self.view.items,
            tools=self.policy.compactable_tools,
            least_bytes=self.policy.clear_least_result_bytes,
            family=self.family,
        )
        return as_billed(results, ratio=self.shown_ratio)

    @property
    def estimated_tokens(self) -> int:
        """The whole context by our own estimates: what a usage that its client reports wrongly can't inflate."""
        return min(self.tokens, self.overhead_tokens + round(self.view.tokens * self.ratio))

    def after(self, step: Step) -> Situation:
        """The situation once a step's proposal is taken in."""
        draft, view = step.draft, self.view
        if draft is None:
            return replace(self, tokens=step.tokens_after)
        if not draft.kind.summarizes:
            view = clear(view=view, results=draft.cleared_at, clearing=draft.clearing, family=self.family)
        return replace(self, tokens=step.tokens_after, view=view, drafts=(*self.drafts, draft), found=self.as_found)
