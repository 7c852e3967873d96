"""Session-memory compaction (S6): the session's own memory document stands for its past, and no model is called."""

from __future__ import annotations

from dataclasses import dataclass, replace

from compaction_app.engine.memory import fit_sections, says_nothing
from compaction_app.engine.offer import offer
from compaction_app.engine.outcome import CompactionRefused, FailureReason
from compaction_app.engine.past import nothing_to_do, passed_over
from compaction_app.engine.ports import SummaryResult
from compaction_app.engine.segment import Segment, memory_segment
from compaction_app.engine.values import MemoryValue, Situation, Step
from sessions_app.policy import Policy
from sessions_app.transcript.boundary import Boundary

NAME = "session_memory"
# What of a refusal only says that this way does not help; the next link may.
NO_HELP = frozenset({FailureReason.NOT_SMALLER, FailureReason.NOTHING_TO_COMPACT})


@dataclass(frozen=True, slots=True)
class SessionMemoryLink:
    name: str = NAME

    def attempt(self, situation: Situation) -> Step:
        """Propose a boundary whose summary is the memory, or pass. Raises CompactionRefused where a hook refuses."""
        memory, found = situation.memory, situation.as_found
        why = _why_not(situation=situation, memory=memory)
        if why or memory is None:
            return passed_over(situation, why)
        segment = _segment(found, memory=memory)
        if segment is None:
            return passed_over(situation, "what stays verbatim behind the memory is all that is shown")
        if why := _why_not_here(found=found, segment=segment, memory=memory):
            return passed_over(situation, why)
        if passed := nothing_to_do(situation=found, segment=segment):
            return replace(passed, tokens_before=situation.tokens, tokens_after=situation.tokens)
        if situation.pre_compact is not None and situation.pre_compact().strip():
            return passed_over(situation, "a hook gave instructions, which a memory can not mind")
        return _offered(situation, segment=segment, memory=memory)


def _segment(found: Situation, *, memory: MemoryValue) -> Segment | None:
    policy = found.policy
    return memory_segment(
        messages=found.view.messages,
        covers_to=memory.covers_to,
        least_tokens=policy.memory_tail_least_tokens,
        least_texts=policy.memory_tail_least_texts,
        most_tokens=policy.memory_tail_tokens,
        waiting_tokens=policy.waiting_round_tokens,
    )


def _offered(situation: Situation, *, segment: Segment, memory: MemoryValue) -> Step:
    """The memory in place of the segment, where that helps. Raises CompactionRefused for what a further link can't
    mend either."""
    found = situation.as_found
    policy, tail = found.policy, sum(message.tokens for message in segment.tail)
    text = fit_sections(
        content=memory.content,
        most_tokens=policy.memory_tokens,
        section_tokens=policy.memory_section_tokens,
        family=found.family,
    )
    if says_nothing(content=text):
        return passed_over(situation, f"of the memory no more than headings fit in {policy.memory_tokens:,} tokens")
    result = SummaryResult(text=text, summarizer=NAME, generation=memory.generation)
    try:
        step = offer(situation=found, segment=segment, result=result, history=segment.compacted)
    except CompactionRefused as refused:
        if refused.reason not in NO_HELP:
            raise
        return passed_over(situation, f"with the memory and {tail:,} tokens kept, {refused.detail}")
    if why := _why_no_help(situation=situation, step=step):
        return passed_over(situation, f"with the memory and {tail:,} tokens kept {why}")
    return replace(step, why=f"{step.why}; the memory ({memory.source}) covers all to position {memory.covers_to}")


def _why_no_help(*, situation: Situation, step: Step) -> str:
    """Why the next link does better; "" where this one does."""
    freed = step.tokens_before - step.tokens_after
    if freed < situation.policy.least_freed_share * step.tokens_before:
        return f"no more than {freed:,} tokens would be freed"
    # A session that is told to be nearly full again at once has gained nothing.
    most = min(situation.window.auto_compact_threshold, situation.window.warning_threshold)
    if step.tokens_after >= most:
        return f"the context would have {step.tokens_after:,} tokens, still over its threshold of {most:,}"
    return ""


def _why_not_here(*, found: Situation, segment: Segment, memory: MemoryValue) -> str:
    """Why the cut that the memory allows is of no use; "" where it is."""
    head, most = found.view.boundary, found.policy.memory_tail_tokens
    if head is not None and segment.covers_to <= head.covers_to:
        return "the summary that is shown stands for all that the memory could"
    if sum(message.tokens for message in segment.tail) > most:
        return _too_much_stays(segment=segment, memory=memory, most=most)
    return ""


def _too_much_stays(*, segment: Segment, memory: MemoryValue, most: int) -> str:
    """What stays whatever its size is more than S6 allows: the next link says better what to keep of it."""
    uncovered = sum(m.tokens for m in segment.tail if m.position > memory.covers_to)
    if uncovered > most:
        return f"the {uncovered:,} tokens that the memory does not cover are more than {most:,}"
    tail = sum(message.tokens for message in segment.tail)
    return (
        f"the {tail:,} tokens that nobody has acted on yet, or that can't be parted from them, are more than {most:,}"
    )


def _why_not(*, situation: Situation, memory: MemoryValue | None) -> str:
    """Why the memory can't stand for the past; "" where it may."""
    if situation.names_summarizer:
        return "a summariser was named, so that one writes"
    if situation.instructions.strip():
        return "instructions were given, which a memory can not mind"
    return why_unusable(memory=memory, head=situation.view.boundary, policy=situation.policy)


def why_unusable(*, memory: MemoryValue | None, head: Boundary | None, policy: Policy) -> str:
    """Why no compaction rests on the memory as it is, whoever asks; "" where one may. `head`: the boundary that is
    shown."""
    if not policy.memory_enabled:
        return "switched off (memory_enabled)"
    if memory is None:
        return "the session has no memory"
    if says_nothing(content=memory.content):
        return "the session's memory is empty, or only a template"
    if not memory.is_live:
        return f"the memory covers all to position {memory.covers_to}, which is not on the live path"
    if head is not None and memory.covers_to < head.covers_to:
        return f"the memory covers all to position {memory.covers_to}; the summary that is shown knows more"
    return ""


SESSION_MEMORY = SessionMemoryLink()
