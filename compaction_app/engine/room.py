"""How much room a context has once the provider has refused one as too long, and what alone takes more (S19).

The provider's figure for what it refused tells how far our own estimate is off. So sizes are told here as the provider
would count them, with everything that speaks for a larger one laid on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from compaction_app.engine.values import Reported, Situation
from sessions_app.transcript.view import ContextView, ViewItem

MOST_NAMED = 3  # messages in one sentence


@dataclass(frozen=True, slots=True)
class Room:
    """`tokens`, `content_bytes`: most that a context may take; `limit`: of prompt and output together. Tokens are the
    provider's.

    `overhead_tokens`: what system prompt and tools take; `unseen_tokens`: of what was refused, more than can be said of
    the session, so that it is sent along anyway; `ratio`: tokens for one that we estimate of messages. `doubt_tokens`:
    what is laid on by `ratio` might as well be something unseen, which no compaction makes smaller. `is_old`: what was
    refused was made of the context before the last boundary.
    """

    tokens: int
    content_bytes: int
    limit: int
    reserve: int
    overhead_tokens: int
    unseen_tokens: int
    ratio: float
    plain_ratio: float
    doubt_tokens: int
    is_old: bool

    def size(self, shown_tokens: int) -> int:
        """Of a context that shows so many tokens, by our estimate."""
        return self.unseen_tokens + self.overhead_tokens + round(shown_tokens * self.ratio)

    def holds(self, view: ContextView) -> bool:
        return self.size(view.tokens) <= self.tokens and view.content_bytes <= self.content_bytes

    def surely_holds(self, view: ContextView) -> bool:
        """Also where what we did not estimate stays as it is."""
        return self.holds(view) and view.tokens <= self.surely_left

    def without_unseen(self) -> Room:
        """As if all that was refused had been of the messages: one may weigh more than its text (a document by its id).

        A compaction made for it is no promise, so only where it takes away something that was not there before.
        """
        return replace(self, unseen_tokens=0, doubt_tokens=0)

    @property
    def left(self) -> int:
        """Tokens, by our estimate, that messages, summary and restored state may take together."""
        return int((self.tokens - self.unseen_tokens - self.overhead_tokens) / self.ratio)

    @property
    def surely_left(self) -> int:
        stays = self.overhead_tokens + self.unseen_tokens + self.doubt_tokens
        return min(self.left, int((self.tokens - stays) / self.plain_ratio))

    def request_left(self, *, overhead_tokens: int, output_tokens: int) -> int:
        """Tokens, by our estimate, that the messages of another request may take."""
        scale = self.ratio / self.plain_ratio
        return int((self.limit - output_tokens - overhead_tokens * scale) / self.ratio)


def room_of(*, situation: Situation) -> Room:
    """The room of a situation: the smaller of the window and of what the provider told, less what is reserved for the
    output, less a share that keeps the next turns from the same end."""
    found, policy = situation.as_found, situation.policy
    told, old = found.reported or Reported(), _old_tokens(found)
    limit = min(told.limit or found.window.context_window, found.window.context_window)
    reserve = found.window.context_window - found.window.effective_window
    least = int(limit * policy.smallest_effective_share)
    for_prompt = min(max(limit - reserve, least), limit - (told.output or 0))
    most_ratio = policy.calibration_most_ratio
    plain = min(max(found.ratio, found.shown_ratio, 1.0), most_ratio)
    ours = found.overhead_tokens + found.view.tokens * plain
    if old is None:
        refused = max(_refused_tokens(found, told=told, limit=limit), ours)
    else:
        # What even the context of then does not explain is sent along with the one of now too.
        refused = ours + max((told.tokens or 0) - old * most_ratio, 0)
    scale = min(refused / ours, most_ratio / plain) if ours else 1.0
    return Room(
        tokens=int(for_prompt * policy.reactive_room_share),
        content_bytes=int(policy.request_bytes * policy.reactive_room_share),
        limit=limit,
        reserve=limit - for_prompt,
        overhead_tokens=round(found.overhead_tokens * scale),
        unseen_tokens=max(round(refused - ours * scale), 0),
        ratio=plain * scale,
        plain_ratio=plain,
        doubt_tokens=max(round(ours * scale - ours - found.overhead_tokens * (scale - 1)), 0),
        is_old=old is not None,
    )


def _refused_tokens(found: Situation, *, told: Reported, limit: int) -> int:
    """What was refused had at least so many tokens: also where nobody told, unless its bytes alone were too many."""
    if told.tokens is not None:
        return told.tokens
    return 0 if found.view.content_bytes >= found.window.auto_compact_bytes else limit + 1


def _old_tokens(found: Situation) -> int | None:
    """What the context would have grown to without the newest boundary, where the refused request was made of that:
    it is as large at least, and the two lie apart (as with a usage that comes late, decision 18). None where not."""
    newest, told = found.newest or found.view.boundary, found.reported
    if newest is None or told is None:
        return None
    newer = [message.tokens for message in found.view.messages if message.position > newest.committed_at]
    grown = newest.tokens_before + sum(newer)
    apart = grown > (1 + found.policy.old_context_share) * found.estimated_tokens
    if told.tokens is None:
        # Nothing was said since, so the same refusal is taken to be told once more.
        return grown if apart and not newer else None
    return grown if apart and told.tokens >= (1 - found.policy.estimate_tolerance_share) * grown else None


def too_much(*, situation: Situation, stays: Sequence[ViewItem], room: Room) -> str:
    """What takes more than the room, in words: each thing that can't go, alone where it is alone too large.

    `stays`: of what is shown, what no compaction may take away.
    """
    stays = sorted(stays, key=lambda item: item.tokens, reverse=True)
    things = [
        (room.overhead_tokens, "system prompt and tools"),
        (room.unseen_tokens, "something that the request held and this session does not"),
        *((round(item.tokens * room.ratio), _named(item)) for item in stays[:MOST_NAMED]),
    ]
    alone = [(tokens, name) for tokens, name in things if tokens > room.tokens]
    told = "; ".join(f"{name}: about {tokens:,} tokens" for tokens, name in alone or things if tokens)
    rest = len(stays) - MOST_NAMED
    more = f"; {rest} more messages" if rest > 0 and not alone else ""
    which = "alone takes more" if len(alone) == 1 else "take more, each alone" if alone else "takes more together"
    size = sum(item.content_bytes for item in stays)
    if size > room.content_bytes:
        more += f"; the messages hold {size:,} bytes of {room.content_bytes:,}"
    there = f"there is room for {room.tokens:,} tokens (of {room.limit:,}, with {room.reserve:,} for the output)"
    if not told:
        return f"{there}, which is too little for a summary{more}"
    return f"{there}, and what can not go {which}: {told}{more}"


def _named(item: ViewItem) -> str:
    return f"message {item.uuid} (position {item.position})"
