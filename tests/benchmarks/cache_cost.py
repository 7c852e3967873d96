"""What a way of keeping the context small costs in prompt-cache prices: a recorded session is sent again call by call.

Pure: messages in, a bill out. Each call's prompt is everything before its response, as the way that is tried out shows
it. What it has in common with the call before, from the start on, is read from the cache where that call is no older
than the cache's lifetime; the rest is written. The replies' own output is the same in every way and not in the bill;
what a summary costs is. Not modelled: the least size of a cached prefix, the twenty blocks that a breakpoint looks
back, and entries of calls before the last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from compaction_app.engine.chain import run_chain
from compaction_app.engine.links.cache_edits import CACHE_EDITS
from compaction_app.engine.links.time_based import TIME_BASED
from compaction_app.engine.plan import PLANS, Goal, Link, Plan
from compaction_app.engine.ports import Silent
from compaction_app.engine.segment import whole_segment
from compaction_app.engine.values import Situation, Trigger
from sessions_app.catalog import ASSUMED, TokenizerFamily
from sessions_app.policy import Policy
from sessions_app.transcript.boundary import Clearing
from sessions_app.transcript.clearing import live, old_results
from sessions_app.transcript.messages import Message, Role
from sessions_app.transcript.rounds import starts_round
from sessions_app.transcript.view import ContextView, ViewItem, clear, fold, is_rendered
from sessions_app.transcript.window import Window, window_of

# A part of a prompt: what it is to the letter, and its size in tokens.
Part = tuple[Hashable, int]

# What the provider's own compaction writes (facts: quality.md, seven recorded summaries), and the request for it.
SUMMARY_TOKENS = 2_500
SUMMARY_REQUEST_TOKENS = 500


@dataclass(frozen=True, slots=True)
class Prices:
    """Multiples of the price of an input token; the cache's lifetime in seconds (facts: Anthropic API, section 12)."""

    plain: float = 1.0
    written: float = 1.25
    read: float = 0.1
    output: float = 5.0
    lifetime_seconds: float = 300.0


@dataclass(slots=True)
class Bill:
    """Tokens by what was paid for them. `output`: of summaries only."""

    read: int = 0
    written: int = 0
    plain: int = 0
    output: int = 0
    calls: int = 0
    summaries: int = 0
    clearings: int = 0

    def cost(self, prices: Prices) -> float:
        """In input tokens at full price."""
        return (
            self.read * prices.read
            + self.written * prices.written
            + self.plain * prices.plain
            + self.output * prices.output
        )


@dataclass(slots=True)
class PromptCache:
    """What the provider holds: the last call's prompt, and when it was last asked for."""

    prices: Prices
    _parts: Sequence[Part] = ()
    _asked_at: datetime | None = None

    def common_tokens(self, *, parts: Sequence[Part], at: datetime) -> int:
        """Tokens of `parts` that are read from the cache at `at`."""
        if self._asked_at is None or (at - self._asked_at).total_seconds() > self.prices.lifetime_seconds:
            return 0
        common = 0
        for mine, theirs in zip(parts, self._parts, strict=False):
            if mine != theirs:
                break
            common += mine[1]
        return common

    def send(self, *, parts: Sequence[Part], at: datetime, bill: Bill) -> None:
        """One call of the session: what is not read is written."""
        read = self.common_tokens(parts=parts, at=at)
        bill.read += read
        bill.written += sum(tokens for _, tokens in parts) - read
        self._parts, self._asked_at = parts, at

    def ask_aside(self, *, parts: Sequence[Part], extra_tokens: int, at: datetime, bill: Bill) -> None:
        """A call on the same prefix that nobody goes on from: nothing new is written."""
        read = self.common_tokens(parts=parts, at=at)
        bill.read += read
        bill.plain += sum(tokens for _, tokens in parts) - read + extra_tokens
        if read:
            self._asked_at = at


@dataclass(frozen=True, slots=True)
class Call:
    """One API call of a recording. `position`: of its response's first message; `at`: when it was sent;
    `answered_at`: when the response before it ended, None for the first."""

    position: int
    at: datetime
    answered_at: datetime | None


@dataclass(frozen=True, slots=True)
class Recording:
    """A session to send again, side chains left out. `overhead_tokens`: system prompt and tools, which stand first."""

    name: str
    messages: Sequence[Message]
    overhead_tokens: int
    family: TokenizerFamily


def calls_of(messages: Sequence[Message]) -> list[Call]:
    """The API calls, oldest first. A call was sent when the newest message before its response was there; a message
    without a time counts as sent with the one before."""
    calls: list[Call] = []
    clock, answered, last_id = datetime(1970, 1, 1, tzinfo=UTC), None, None
    for message in messages:
        if not is_rendered(message):
            continue
        if starts_round(message=message, last_message_id=last_id, seen_assistant=answered is not None):
            calls.append(Call(position=message.position, at=clock, answered_at=answered))
        clock = max(clock, message.sent_at or clock)
        if message.role == Role.ASSISTANT:
            last_id, answered = message.message_id, clock
    return calls


@dataclass(slots=True)
class Replay:
    """A recording while it is sent again: what is shown now, and what was paid so far."""

    recording: Recording
    policy: Policy
    prices: Prices = field(default_factory=Prices)
    bill: Bill = field(default_factory=Bill)
    items: tuple[ViewItem, ...] = ()
    cache: PromptCache = field(init=False)
    window: Window = field(init=False)
    # uuid -> position of the message that moved the conversation away from it.
    _left_at: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cache = PromptCache(prices=self.prices)
        self.window = window_of(policy=self.policy, model=ASSUMED)

    @property
    def tokens(self) -> int:
        return self.recording.overhead_tokens + sum(item.tokens for item in self.items)

    def parts(self) -> list[Part]:
        overhead: Part = ("overhead", self.recording.overhead_tokens)
        return [overhead, *(((item.uuid, item.cleared, item.edited), item.tokens) for item in self.items)]

    def show(self, *, new: Sequence[Message], position: int) -> None:
        """Add messages as they are; what a rewind before `position` left behind goes."""
        self._left_at.update({m.uuid: m.left_path_at for m in new if m.left_path_at is not None})
        live_then = [replace(message, left_path_at=None) for message in new]
        items = (*self.items, *fold(messages=live_then, boundaries=(), family=self.recording.family).items)
        self.items = tuple(item for item in items if self._left_at.get(item.uuid, position + 1) > position)

    def clear(self, *, results: Sequence[tuple[int, str]], clearing: Clearing) -> None:
        """`results`: each as (position, id)."""
        view = ContextView(items=self.items, boundary=None)
        self.items = clear(view=view, results=results, clearing=clearing, family=self.recording.family).items
        self.bill.clearings += 1

    def situation(self, call: Call, **figures: Any) -> Situation:
        """What the links of the product's chain are told before the call; `figures` replace some of the policy's."""
        return Situation(
            view=ContextView(items=self.items, boundary=None),
            tokens=self.tokens,
            overhead_tokens=self.recording.overhead_tokens,
            last_position=call.position - 1,
            policy=replace(self.policy, **figures) if figures else self.policy,
            family=self.recording.family,
            trigger=Trigger.PREPARE,
            now=call.at,
            window=self.window,
            originals=lambda _: (),
            summarizer=None,
            progress=Silent(),
            last_assistant_at=call.answered_at,
        )

    def summarize(self, call: Call) -> None:
        """Full compaction: the summary request reads the cached prefix; summary and newest rounds take its place."""
        messages = tuple(item.message for item in self.items if item.message is not None)
        tail = int(self.policy.full_budget_tokens * self.policy.full_tail_share)
        segment = whole_segment(messages=messages, tail_tokens=tail, waiting_tokens=self.policy.waiting_round_tokens)
        if segment is None or not segment.compacted:
            return
        self.cache.ask_aside(parts=self.parts(), extra_tokens=SUMMARY_REQUEST_TOKENS, at=call.at, bill=self.bill)
        self.bill.output += SUMMARY_TOKENS
        self.bill.summaries += 1
        kept = {message.position for message in segment.tail}
        if segment.preserved is not None:
            kept.update(range(segment.preserved.first, segment.preserved.last + 1))
        summary = ViewItem(
            role=Role.USER, content="", position=0, uuid=f"summary-{self.bill.summaries}", tokens=SUMMARY_TOKENS
        )
        self.items = (summary, *(item for item in self.items if item.position in kept))


# --- Ways to keep the context small -----------------------------------------------------------------------------

# What is done before a call is sent.
Way = Callable[[Replay, Call], None]


def full_only(replay: Replay, call: Call) -> None:
    """A summary once the automatic threshold is reached."""
    if replay.tokens >= replay.window.auto_compact_threshold:
        replay.summarize(call)


def drop_oldest(replay: Replay, call: Call) -> None:
    """No summary: before each call the oldest messages go until the rest is below the threshold."""
    room = replay.window.auto_compact_threshold - replay.recording.overhead_tokens
    kept = len(replay.items)
    while kept and room >= replay.items[kept - 1].tokens:
        kept -= 1
        room -= replay.items[kept].tokens
    replay.items = replay.items[kept:]


def masked_every_turn(*, keep: int) -> Way:
    """Before each call every old result but the newest `keep` becomes a placeholder, however little that frees."""

    def way(replay: Replay, call: Call) -> None:
        old = old_results(results=live(replay.situation(call).compactable), keep=keep)
        if old:
            places = [(result.position, result.tool_use_id) for result in old]
            replay.clear(results=places, clearing=Clearing.PLACEHOLDER)
        full_only(replay, call)

    return way


def linked(*links: Link, **figures: Any) -> Way:
    """The product's light links before each call, a summary at the threshold. `figures`: see Replay.situation."""
    plan = Plan(links, Goal.ANY_EDIT)

    def way(replay: Replay, call: Call) -> None:
        for draft in run_chain(plan=plan, situation=replay.situation(call, **figures), trail=[]).drafts:
            replay.clear(results=draft.cleared_at, clearing=draft.clearing)
        full_only(replay, call)

    return way


# The page's policies (facts: quality.md) are replayed with fixed figures, so that tuning the product's policy does not
# move what it is compared with. Batches of at least 20,000 tokens and five idle minutes are the page's; it does not
# tell how many results are left, and from how many on batches begin. Ten are left here by both, which comes nearest to
# its figures; batches that leave five cost 0.02 to 0.06 less, and then fall below the idle minutes in more lines.
MASK_KEEP = 10
BATCH_FIGURES: Mapping[str, int] = {
    "cache_edit_trigger_results": 20,
    "cache_edit_keep_results": 10,
    "clear_least_tokens": 20_000,
}
IDLE_FIGURES: Mapping[str, int] = {"time_based_idle_ms": 300_000, "time_based_keep_results": 5}
FULL_ONLY = "full only"
DROPPED = "oldest message dropped every turn"
MASKED = "old results masked every turn"
IN_BATCHES = "cleared in batches"
WHEN_IDLE = "cleared after idle minutes"
OURS = "ours"
WAYS: Mapping[str, Way] = {
    DROPPED: drop_oldest,
    MASKED: masked_every_turn(keep=MASK_KEEP),
    FULL_ONLY: full_only,
    IN_BATCHES: linked(CACHE_EDITS, cache_edits_enabled=True, **BATCH_FIGURES),
    WHEN_IDLE: linked(TIME_BASED, time_based_enabled=True, **IDLE_FIGURES),
    OURS: linked(*PLANS[Trigger.PREPARE].links),
}
# The page's costs, lowest and highest of its recordings; full only is 1.00.
PUBLISHED: Mapping[str, tuple[float, float]] = {
    DROPPED: (3.3, 5.0),
    MASKED: (1.75, 1.75),
    FULL_ONLY: (1.0, 1.0),
    IN_BATCHES: (0.97, 1.05),
    WHEN_IDLE: (0.90, 0.92),
}


def out_of_order(ratios: Mapping[str, float]) -> list[str]:
    """The pairs of ways of which the page calls the first dearer (its lowest cost is above the second's highest), and
    `ratios` do not: "A 1.20 is not above B 1.30"."""
    return [
        f"{dearer} {ratios[dearer]:.3f} is not above {cheaper} {ratios[cheaper]:.3f}"
        for dearer, (lowest, _) in PUBLISHED.items()
        for cheaper, (_, highest) in PUBLISHED.items()
        if lowest > highest and ratios[dearer] <= ratios[cheaper]
    ]


def replay(*, recording: Recording, way: Way, policy: Policy) -> Bill:
    """Send the recording again, call by call."""
    state = Replay(recording=recording, policy=policy)
    messages, at = recording.messages, 0
    for call in calls_of(messages):
        begin = at
        while at < len(messages) and messages[at].position < call.position:
            at += 1
        state.show(new=messages[begin:at], position=call.position)
        way(state, call)
        state.bill.calls += 1
        state.cache.send(parts=state.parts(), at=call.at, bill=state.bill)
    return state.bill


def family_mean(ratios: Mapping[str, float]) -> float:
    """Mean over families of recordings (the name up to its first dash), each the mean of its recordings."""
    families: dict[str, list[float]] = defaultdict(list)
    for name, ratio in ratios.items():
        families[name.split("-", 1)[0]].append(ratio)
    return sum(sum(values) / len(values) for values in families.values()) / len(families)
