"""From a cut to a proposed boundary: the summary asked for and judged, state restored, what comes of it measured.

All links that put something in place of messages share it; they differ in the cut, and in who writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from compaction_app.engine.attachments import restore_attachments
from compaction_app.engine.carried import carried
from compaction_app.engine.command import Scope
from compaction_app.engine.facts import as_json
from compaction_app.engine.originals import originals_of, reach, told_before
from compaction_app.engine.outcome import CompactionRefused, FailureReason
from compaction_app.engine.parts import inserted_tokens, shown_tokens
from compaction_app.engine.ports import Summarizer, SummaryRequest, SummaryResult
from compaction_app.engine.segment import Segment
from compaction_app.engine.summary import check_summary
from compaction_app.engine.values import Situation, Step, Trigger
from sessions_app.transcript.boundary import Boundary, BoundaryDraft, BoundaryKind, ClearedResult
from sessions_app.transcript.messages import Message, tool_results
from sessions_app.transcript.tokens import estimate_content, estimate_text
from sessions_app.transcript.view import ContextView, fold, summary_content

BEFORE_THIS = "cleared before this boundary"


def compact_segment(
    *,
    situation: Situation,
    segment: Segment,
    budget_tokens: int,
    summarizer: Summarizer | None,
    most_tokens: int | None = None,
) -> Step:
    """Have the segment summarised in at most `budget_tokens`, and offer what comes of it. Raises CompactionRefused.

    `most_tokens`: restored state stops where the whole context would have more than this; None: no such limit.
    """
    if summarizer is None:
        raise CompactionRefused(reason=FailureReason.NO_SUMMARY, detail="nobody is there to write a summary")
    request = summary_request(situation=situation, segment=segment, budget_tokens=budget_tokens)
    result = summarizer.summarize(request=request, progress=situation.progress)
    if not result.blocks:
        check_summary(text=result.text)
    return offer(
        situation=situation,
        segment=segment,
        result=result,
        history=request.history,
        most_tokens=most_tokens,
        facts=request.covered_facts,
    )


def offer(
    *,
    situation: Situation,
    segment: Segment,
    result: SummaryResult,
    history: Sequence[Message],
    most_tokens: int | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Step:
    """The boundary that puts `result` in place of the segment, with restored state. Raises CompactionRefused where that
    saves nothing. `history`: originals to look for files and the plan in, where the situation tells no part of them.
    `facts`: that it will carry; None: they are collected here."""
    policy, family = situation.policy, situation.family
    situation.progress.report(stage="attachments", fraction=0.9)
    summary_tokens = _summary_tokens(situation=situation, result=result)
    kept = sum(message.tokens for message in segment.kept)
    standing = situation.overhead_tokens + kept + sum(map(inserted_tokens, _standing(situation, segment)))
    attachments = restore_attachments(
        history=_touched(situation=situation, segment=segment, history=history),
        tail=segment.kept,
        state=situation.client_state,
        policy=policy,
        family=family,
        room_tokens=_room(situation=situation, segment=segment, standing=standing, most_tokens=most_tokens)
        - summary_tokens,
    )
    cleared = _still_cleared(situation=situation, segment=segment)
    draft = BoundaryDraft(
        kind=segment.kind,
        covers_to=segment.covers_to,
        summary=result.text,
        summary_tokens=summary_tokens,
        summarizer=result.summarizer,
        instructions=situation.instructions,
        preserved=segment.preserved,
        attachments=attachments,
        model=result.model,
        prompt_version=result.prompt_version,
        response_id=result.response_id,
        usage=result.usage,
        summary_blocks=result.blocks,
        base=segment.base,
        generation=_generation(result=result, folded=_folded(situation, segment)),
        facts=_covered_facts(situation=situation, segment=segment) if facts is None else facts,
        cleared_results=cleared,
        cleared_tool_use_ids=tuple(dict.fromkeys(one.tool_use_id for one in cleared)),
    )
    shown = view_after(situation=situation, draft=draft).tokens
    _refuse_what_saves_nothing(situation=situation, shown=shown)
    return Step(
        why=_why(segment=segment, attachments=len(attachments), result=result),
        tokens_before=situation.tokens,
        tokens_after=situation.overhead_tokens + round(shown * situation.ratio),
        draft=draft,
        usage=result.usage,
        shared_prefix=result.shared_prefix,
    )


def _room(*, situation: Situation, segment: Segment, standing: int, most_tokens: int | None) -> int:
    """Tokens for summary and restored state together: up to the target share of the context, or of a part."""
    share = situation.policy.full_target_share
    room = int(situation.estimated_tokens * share) - standing
    if segment.kind is not BoundaryKind.FULL:
        room = max(room, int(shown_tokens(view=situation.view, segment=segment) * share))
    return room if most_tokens is None else min(room, most_tokens - standing)


def _generation(*, result: SummaryResult, folded: Sequence[Boundary]) -> int:
    """How many summaries lie between the originals and this one: earlier ones may have been folded in."""
    if result.generation:
        return result.generation
    if result.from_originals:
        return 1
    return 1 + max((one.generation for one in folded), default=0)


def _covered_facts(*, situation: Situation, segment: Segment) -> Mapping[str, Any]:
    originals = originals_of(situation=situation, segment=segment)
    folded = _folded(situation, segment)
    return as_json(carried(situation=situation, segment=segment, folded=folded, originals=originals).covered)


def _chain(situation: Situation) -> tuple[Boundary, ...]:
    return situation.view.boundary.chain if situation.view.boundary else ()


def _folded(situation: Situation, segment: Segment) -> tuple[Boundary, ...]:
    """The earlier boundaries whose summaries this one takes the place of, in their order."""
    return _chain(situation) if segment.folded is None else segment.folded


def _standing(situation: Situation, segment: Segment) -> tuple[Boundary, ...]:
    """Those whose summaries stay."""
    return tuple(one for one in _chain(situation) if one not in _folded(situation, segment))


def _summary_tokens(*, situation: Situation, result: SummaryResult) -> int:
    if result.blocks:
        return estimate_content(content=list(result.blocks), family=situation.family)
    return estimate_text(text=summary_content(summary=result.text), family=situation.family)


def _still_cleared(*, situation: Situation, segment: Segment) -> tuple[ClearedResult, ...]:
    """What was cleared and stays in view stays cleared: a compaction makes nothing longer again."""
    after = {message.position for message in (*segment.preserved_messages, *segment.tail)}
    return tuple(
        ClearedResult(
            tool_use_id=block["tool_use_id"], tool="", position=item.position, tokens_freed=0, reason=BEFORE_THIS
        )
        for item in situation.view.items
        if item.position in after and item.cleared
        for block in tool_results(item.content)
        if block["tool_use_id"] in item.cleared
    )


def summary_request(*, situation: Situation, segment: Segment, budget_tokens: int) -> SummaryRequest:
    """What a summary of the segment is asked for with. Asks the hooks."""
    folded, history = _folded(situation, segment), originals_of(situation=situation, segment=segment)
    facts = carried(situation=situation, segment=segment, folded=folded, originals=history)
    earlier = "\n\n".join(one.summary for one in folded if one.summary)
    return SummaryRequest(
        history=history,
        told_before=partial(told_before, situation=situation, segment=segment),
        tail=segment.tail,
        budget_tokens=budget_tokens,
        family=situation.family,
        policy=situation.policy,
        instructions=situation.instructions,
        hook_instructions=situation.pre_compact() if situation.pre_compact else "",
        compacted=segment.compacted,
        earlier_summary=earlier,
        facts=facts.unsaid(summary=earlier),
        covered_facts=as_json(facts.covered),
        generation=max((one.generation for one in folded), default=0),
        in_haste=situation.trigger is Trigger.REACTIVE,
        conversation=situation.conversation,
        kept_before=segment.kept_before,
        scope=Scope.UP_TO if segment.apart else SCOPES.get(segment.kind, Scope.WHOLE),
    )


SCOPES = {BoundaryKind.PARTIAL_UP_TO: Scope.UP_TO, BoundaryKind.PARTIAL_FROM: Scope.FROM}


def _touched(*, situation: Situation, segment: Segment, history: Sequence[Message]) -> Sequence[Message]:
    """Where files and the plan are looked for: a bounded part of the past, where it is told apart from the whole."""
    if situation.on_files is None:
        return history
    first, last = reach(segment)
    known = {message.position for message in segment.compacted}
    older = (m for m in situation.on_files(last) if m.position not in known and m.position >= first)
    return sorted([*older, *segment.compacted], key=lambda message: message.position)


def view_after(*, situation: Situation, draft: BoundaryDraft) -> ContextView:
    """What the model would be shown, by the same fold that will read the boundary."""
    sequence = situation.view.boundary.sequence + 1 if situation.view.boundary else 1
    boundary = draft.as_boundary(committed_at=situation.last_position, created_at=situation.now, sequence=sequence)
    view = fold(messages=situation.view.messages, boundaries=[boundary], family=situation.family)
    if not boundary.keeps_prefix:
        return view
    # What was cleared in the prefix stays so by the boundaries that did it, which are not known here.
    prefix = {
        item.position: item for item in situation.view.items if item.message and item.position < _end_of(boundary)
    }
    return replace(view, items=tuple(prefix.get(item.position, item) for item in view.items))


def _end_of(boundary: Boundary) -> int:
    """The position before which the kept prefix ends."""
    return boundary.preserved.last + 1 if boundary.preserved else 0


def _refuse_what_saves_nothing(*, situation: Situation, shown: int) -> None:
    """Estimate against estimate: a usage that its client reports wrongly decides nothing here."""
    before = situation.view.tokens
    if shown < before:
        return
    small = before <= situation.policy.full_budget_floor_tokens
    raise CompactionRefused(
        reason=FailureReason.NOTHING_TO_COMPACT if small else FailureReason.NOT_SMALLER,
        detail=f"what is shown would go from {before:,} to {shown:,} tokens; nothing was changed",
    )


def _why(*, segment: Segment, attachments: int, result: SummaryResult) -> str:
    tail = f"{len(segment.tail)} recent messages kept verbatim" if segment.tail else "no recent message kept verbatim"
    if segment.kept_before:
        tail = f"{len(segment.kept_before)} messages kept verbatim before it; {tail}"
    waiting = "; an older round that waits for an answer kept too" if segment.preserved_messages else ""
    note = f"; {result.note}" if result.note else ""
    return (
        f"{len(segment.compacted)} messages up to position {reach(segment)[1]} replaced by a summary "
        f"({result.summarizer}); {tail}{waiting}; {attachments} attachments{note}"
    )
