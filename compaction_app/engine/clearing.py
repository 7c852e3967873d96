"""What the links that clear results share: their step, and the words for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from compaction_app.engine.outcome import FailureReason
from compaction_app.engine.values import Situation, Step
from sessions_app.transcript.boundary import BoundaryDraft, BoundaryKind, ClearedResult, Clearing
from sessions_app.transcript.clearing import CompactableResult
from sessions_app.transcript.messages import Role, content_blocks, tool_results
from sessions_app.transcript.request import THINKING
from sessions_app.transcript.view import ViewItem

MOST_TOOLS_TOLD = 4  # names of tools in one sentence


def passed(situation: Situation, why: str) -> Step:
    """A step that changes nothing."""
    return Step(
        why=why,
        tokens_before=situation.tokens,
        tokens_after=situation.tokens,
        reason=FailureReason.NOTHING_TO_COMPACT,
    )


def counted(number: int, *, of: str = "") -> str:
    """ "1 result", "12 compactable results"."""
    return f"{number:,} {of}{' ' if of else ''}result{'' if number == 1 else 's'}"


def cleared_step(
    situation: Situation, *, old: Sequence[CompactableResult], clearing: Clearing, reason: str, keep: int
) -> Step:
    """A step that clears the results `old`: a microcompact boundary, each id with its reason and what it frees."""
    freed = sum(result.tokens_freed for result in old)
    what = f"{counted(len(old))} of {tools_named(tools=(result.tool for result in old))}"
    why = f"{reason}; {what} cleared, about {freed:,} tokens freed; the newest {keep} stay"
    draft = BoundaryDraft(
        kind=BoundaryKind.MICROCOMPACT,
        covers_to=old[-1].position,
        cleared_tool_use_ids=tuple(dict.fromkeys(result.tool_use_id for result in old)),
        cleared_results=tuple(
            ClearedResult(
                tool_use_id=result.tool_use_id,
                tool=result.tool,
                position=result.position,
                tokens_freed=result.tokens_freed,
                reason=reason,
            )
            for result in old
        ),
        clearing=clearing,
        why=why,
    )
    return Step(why=why, tokens_before=situation.tokens, tokens_after=max(situation.tokens - freed, 0), draft=draft)


def tools_named(*, tools: Iterable[str]) -> str:
    """The tools of some results in words, the commonest first: "Read, Bash and 2 more tools"."""
    names = [name for name, _ in Counter(tools).most_common()]
    left = len(names) - MOST_TOOLS_TOLD
    more = f" and {left} more tool{'' if left == 1 else 's'}" if left > 0 else ""
    return ", ".join(names[:MOST_TOOLS_TOLD]) + more


def in_thinking_round(items: tuple[ViewItem, ...]) -> bool:
    """Whether the next request goes on with a tool round whose response holds thinking.

    The API wants that thinking back as it was (facts: Anthropic API, section 8: never in the middle of a tool round).
    """
    waiting = False
    for item in reversed(items):
        kinds = {block.get("type") for block in content_blocks(item.content)}
        if item.role == Role.ASSISTANT:
            if kinds & THINKING:
                return waiting or "tool_use" in kinds
            if not waiting and "tool_use" not in kinds:
                return False
            waiting = True
        elif not any(True for _ in tool_results(item.content)):
            return False
        else:
            waiting = True
    return False
