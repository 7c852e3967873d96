"""A summary made anew from originals, once too many summaries lie between (facts: quality.md, "never summarise a
summary").

All that it covers is read as text, at once where the window has room, else in parts of whole rounds: one call for each
part and one that makes one record of theirs. The earlier summary is not shown: what it got wrong ends with it. Only
where the stored history begins with a client's own is that one shown, since nothing else tells what it stands for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from compaction_app.engine.command import Scope
from compaction_app.engine.model_summary.asking import Asking
from compaction_app.engine.model_summary.calls import Way
from compaction_app.engine.model_summary.ptl_retry import too_much
from compaction_app.engine.model_summary.rendering import message_as_text
from compaction_app.engine.model_summary.requests import Built, Material, build, first_material
from compaction_app.engine.outcome import CompactionRefused
from compaction_app.engine.ports import Completion, Conversation, SummaryRequest
from sessions_app.catalog import ModelInfo
from sessions_app.transcript.messages import Message
from sessions_app.transcript.rounds import cut_points
from sessions_app.transcript.tokens import estimate_text


class NoRebuild(Exception):
    """It can't be made anew from originals; the text says why."""

    @property
    def told(self) -> str:
        """For whoever reads of the run."""
        return f"not made anew from originals: {self}"


@dataclass(frozen=True, slots=True)
class Plan:
    """`reads`: the requests that read originals, oldest first; `merging`: the request without its records that makes
    one of theirs, None where one read is all. `messages`: originals that are read."""

    reads: tuple[Material, ...]
    merging: Material | None
    messages: int

    @property
    def told(self) -> str:
        """For whoever reads of the run."""
        parts = f" in {len(self.reads)} parts" if self.merging else ""
        return f"made anew from {self.messages:,} stored messages{parts}"


def is_due(*, request: SummaryRequest) -> bool:
    """Whether so many summaries lie between the originals and the next that this one is made from them again. Not while
    a client waits: that takes more calls."""
    return not request.in_haste and request.generation >= request.policy.rebuild_generations


def plan_of(*, request: SummaryRequest, conversation: Conversation, model: str, limits: ModelInfo) -> Plan:
    """How it would be read. Calls nobody. Raises NoRebuild."""
    originals = tuple(request.history)
    if not originals:
        raise NoRebuild("none are stored")
    before = request.told_before()
    anew = replace(request, compacted=originals, earlier_summary=before, facts=(), generation=0)
    whole = first_material(request=anew, conversation=conversation, way=Way.STANDALONE, model=model, limits=limits)
    if too_much(material=whole, built=build(material=whole)) is None:
        return Plan(reads=(whole,), merging=None, messages=len(originals))
    # Of a part alone there is nothing that stays behind or in front of it.
    alone = replace(whole, request=replace(anew, tail=(), kept_before=(), scope=Scope.WHOLE))
    parts = _parts(alone)
    most = request.policy.rebuild_chunks
    if len(parts) > most:
        raise NoRebuild(f"they would be read in {len(parts)} parts, and {most} are allowed (rebuild_chunks)")
    last = replace(anew, earlier_summary="")
    merging = replace(whole, request=last, messages=(), records=("",) * len(parts))
    budget = _part_budget(merging)
    reads = tuple(
        replace(
            alone,
            request=replace(
                alone.request, compacted=part, budget_tokens=budget, earlier_summary=before if number == 1 else ""
            ),
            messages=part,
            part=(number, len(parts)),
        )
        for number, part in enumerate(parts, start=1)
    )
    return Plan(reads=reads, merging=merging, messages=len(originals))


def rebuild(*, plan: Plan, asking: Asking) -> tuple[str, Completion]:
    """The summary, after all the calls that it takes. Raises NoRebuild where one of them fails, and what stops the
    run."""
    count = len(plan.reads) + (plan.merging is not None)
    asking.step = 1 / count
    records: list[str] = []
    for number, read in enumerate(plan.reads):
        what = f"part {number + 1} of {len(plan.reads)}" if plan.merging else "all at once"
        text, completion = _asked(read, asking=asking, done=number / count, what=what)
        records.append(text)
    if plan.merging is None:
        return text, completion
    merging = with_records(merging=plan.merging, records=records)
    if too_much(material=merging, built=build(material=merging)):
        raise NoRebuild("the records of the parts are too long to be made into one")
    return _asked(merging, asking=asking, done=1 - 1 / count, what="the record of all parts")


def with_records(*, merging: Material, records: Sequence[str]) -> Material:
    """The request that makes one record of those of the parts."""
    return replace(merging, records=tuple(records))


def _asked(material: Material, *, asking: Asking, done: float, what: str) -> tuple[str, Completion]:
    asking.request, asking.done = material.request, done
    try:
        return asking.ask(material)
    except CompactionRefused as refused:
        raise NoRebuild(f"{what}: {refused.detail}") from None


@dataclass(frozen=True, slots=True)
class _Room:
    """What messages may take in one request: tokens as they are billed, bytes of the body."""

    tokens: float
    size_bytes: float

    def holds(self, other: _Room) -> bool:
        return other.tokens <= self.tokens and other.size_bytes <= self.size_bytes

    def plus(self, other: _Room) -> _Room:
        return _Room(self.tokens + other.tokens, self.size_bytes + other.size_bytes)


NOTHING = _Room(0, 0)


def _room(material: Material, bare: Built) -> _Room:
    """Some of it stays free, because what parts take together is estimated part by part."""
    policy = material.request.policy
    share = 1 - policy.ptl_margin_share
    tokens = material.limits.context_window - material.max_tokens - bare.tokens
    return _Room(tokens * share, (policy.request_bytes - bare.size_bytes) * share)


def _parts(alone: Material) -> list[tuple[Message, ...]]:
    """As few parts as each fit a request, cut at legal places only. Raises NoRebuild where one piece is too large."""
    room = _room(alone, build(material=replace(alone, messages=(), part=(1, alone.request.policy.rebuild_chunks))))
    sizes = _sizes(alone)
    parts: list[list[Message]] = [[]]
    used = NOTHING
    for piece in _pieces(alone.messages):
        size = reduce(_Room.plus, (sizes[message.position] for message in piece))
        if not room.holds(size):
            raise NoRebuild(f"what belongs together at position {piece[0].position:,} is too long for one request")
        if not room.holds(used.plus(size)):
            parts.append([])
            used = NOTHING
        parts[-1].extend(piece)
        used = used.plus(size)
    return [tuple(part) for part in parts]


def _pieces(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """What no cut may part, in order."""
    cuts = set(cut_points(messages))
    pieces: list[list[Message]] = []
    for message in messages:
        if not pieces or message.position in cuts:
            pieces.append([])
        pieces[-1].append(message)
    return [tuple(piece) for piece in pieces]


def _sizes(material: Material) -> Mapping[int, _Room]:
    policy, family = material.request.policy, material.request.family
    sizes = {}
    for message in material.messages:
        text = message_as_text(message=message, most_tokens=policy.summary_result_tokens, family=family) + "\n\n"
        size = len(json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        sizes[message.position] = _Room(estimate_text(text=text, family=material.family) * material.ratio, size)
    return sizes


def _part_budget(merging: Material) -> int:
    """Tokens that the record of each part may take so that all of them fit the last request. Raises NoRebuild."""
    room = _room(merging, build(material=merging))
    budget = min(merging.request.budget_tokens, int(room.tokens / merging.ratio) // len(merging.records))
    if budget < merging.request.policy.summary_least_tokens:
        raise NoRebuild(f"the records of {len(merging.records)} parts would not fit one request")
    return budget
