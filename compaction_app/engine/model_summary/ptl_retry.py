"""What goes when a request is too long (S16): the oldest API rounds, told in one marker; for bytes the media first."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from compaction_app.engine.extractive import summarize
from compaction_app.engine.model_summary.calls import PromptCut, Way
from compaction_app.engine.model_summary.prompt import tagged
from compaction_app.engine.model_summary.rendering import message_as_text, shortened
from compaction_app.engine.model_summary.requests import Built, Material, build, media_in
from compaction_app.engine.overflow import Overflow, OverflowKind
from compaction_app.engine.ports import SummaryRequest
from sessions_app.policy import Policy
from sessions_app.transcript.messages import Message, human_text, is_human_prompt
from sessions_app.transcript.rounds import cut_points, group_by_api_round
from sessions_app.transcript.tokens import estimate_text
from sessions_app.transcript.view import is_rendered

FIRST_REQUEST_SHARE = 4  # one part in so many of the digest's budget is for the person's first request, word for word


@dataclass(frozen=True, slots=True)
class Shortened:
    """A material that takes less room, its request, and the cut that made it."""

    material: Material
    built: Built
    cut: PromptCut


def preflight(*, material: Material, built: Built) -> Shortened | None:
    """The cut before the first call, where the estimate already tells that it can't fit; None where it can.

    What can't be cut any more goes as it is: the provider decides.
    """
    found: Shortened | None = None
    while over := too_much(material=material, built=built):
        shorter = shorten(material=material, built=built, overflow=over, retry=0)
        if shorter is None:
            break
        found, material, built = shorter, shorter.material, shorter.built
    return found


def too_much(*, material: Material, built: Built) -> Overflow | None:
    """How the estimates tell that a request can't fit; None where it can."""
    if built.size_bytes > material.request.policy.request_bytes:
        return Overflow(kind=OverflowKind.BYTES)
    room = material.limits.context_window - built.request.max_tokens
    if built.tokens <= room:
        return None
    return Overflow(kind=OverflowKind.TOKENS, prompt_tokens=built.tokens, limit_tokens=max(room, 1))


def shorten(*, material: Material, built: Built, overflow: Overflow, retry: int) -> Shortened | None:
    """What to try next; None where nothing is left that could go.

    `built`: the request that was too long; `overflow`: what was told of it; `retry`: the number of this retry.
    """
    output = overflow.output_room_tokens
    if output is not None and material.request.policy.ptl_least_output_tokens <= output < built.request.max_tokens:
        return _cut(replace(material, max_tokens=output), overflow, retry)
    if overflow.kind is OverflowKind.BYTES:
        has_media = material.way is Way.CACHED_PREFIX and media_in(messages=material.messages) > 0
        if has_media and not material.without_media:
            return _cut(replace(material, without_media=True), overflow, retry)
        return _without_oldest(material, _byte_share(material, built), overflow, retry)
    return _until_covered(material, built, overflow, retry)


def _until_covered(material: Material, built: Built, overflow: Overflow, retry: int) -> Shortened | None:
    """Rounds go until the request is smaller by the gap: what a round frees is estimated, and its digest takes room."""
    found = _without_oldest(material, _token_share(material, built, overflow), overflow, retry)
    if overflow.gap_tokens is None or not overflow.prompt_tokens:
        return found
    share = _with_margin(overflow, material.request.policy) / overflow.prompt_tokens
    goal = built.tokens * (1 - share)
    while found is not None and found.built.tokens > goal:
        rest = Overflow(
            kind=OverflowKind.TOKENS, prompt_tokens=found.built.tokens, limit_tokens=max(math.floor(goal), 1)
        )
        wanted = _token_share(found.material, found.built, rest)
        more = _without_oldest(found.material, wanted, overflow, retry)
        if more is None:
            break
        found = more
    return found


def _cut(material: Material, overflow: Overflow, retry: int) -> Shortened:
    built = build(material=material)
    ratio = material.ratio
    cut = PromptCut(
        retry=retry,
        dropped_groups=len(group_by_api_round(material.dropped)),
        remaining_groups=len(group_by_api_round(material.messages)),
        dropped_tokens=round(sum(message.tokens for message in material.dropped) * ratio),
        remaining_tokens=built.tokens,
        gap_tokens=overflow.gap_tokens,
        media=media_in(messages=(*material.dropped, *material.messages)) if material.without_media else 0,
    )
    return Shortened(material=material, built=built, cut=cut)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """How much has to go: `least` of the messages' `sizes` (by position) together; None: a share of the groups."""

    sizes: Mapping[int, float]
    least: float | None


def _token_share(material: Material, built: Built, overflow: Overflow) -> _Wanted:
    """Our estimates, scaled to what the provider says of the whole prompt where it says so."""
    policy, gap = material.request.policy, overflow.gap_tokens
    told = overflow.prompt_tokens
    scale = material.ratio * (told / built.tokens if told and built.tokens else 1.0)
    if material.way is Way.CACHED_PREFIX:
        # What is cleared costs a placeholder only.
        shown = {item.position: item.tokens for item in material.conversation.view.items if item.position}
        tokens = {m.position: shown.get(m.position, m.tokens) for m in material.messages}
    else:
        tokens = {m.position: estimate_text(text=_told(material, m), family=material.family) for m in material.messages}
    sizes = {position: size * scale for position, size in tokens.items()}
    digest = 0 if material.dropped else policy.ptl_digest_tokens
    return _Wanted(sizes=sizes, least=_with_margin(overflow, policy) + digest if gap else None)


def _with_margin(overflow: Overflow, policy: Policy) -> float:
    """The gap and some more. A gap many times what there is room for must not take that room as well."""
    gap = overflow.gap_tokens or 0
    return gap + policy.ptl_margin_share * min(gap, overflow.limit_tokens or gap)


def _told(material: Material, message: Message) -> str:
    """A message as a request that stands alone tells it: results cut, media as markers."""
    asked = material.request
    return message_as_text(message=message, most_tokens=asked.policy.summary_result_tokens, family=asked.family)


def _byte_share(material: Material, built: Built) -> _Wanted:
    policy = material.request.policy
    if material.way is Way.CACHED_PREFIX:
        contents = {m.position: json.dumps(m.content, ensure_ascii=False, default=str) for m in material.messages}
    else:
        contents = {m.position: _told(material, m) for m in material.messages}
    sizes = {position: float(len(text.encode("utf-8", "surrogatepass"))) for position, text in contents.items()}
    over = built.size_bytes - policy.request_bytes
    least = over * (1 + policy.ptl_margin_share) if over > 0 else built.size_bytes * policy.ptl_drop_share
    return _Wanted(sizes=sizes, least=least)


def _without_oldest(material: Material, wanted: _Wanted, overflow: Overflow, retry: int) -> Shortened | None:
    position = _where_to_cut(material, wanted)
    if position is None:
        return None
    gone = tuple(message for message in material.messages if message.position < position)
    kept = tuple(message for message in material.messages if message.position >= position)
    dropped = (*material.dropped, *gone)
    shorter = replace(material, messages=kept, dropped=dropped)
    return _cut(replace(shorter, marker=_marker(material.request, dropped)), overflow, retry)


def _where_to_cut(material: Material, wanted: _Wanted) -> int | None:
    """The first legal cut that frees enough, always at a round's begin; the last one where none does. The newest round
    never goes: there would be nothing to make a record of."""
    groups = group_by_api_round(material.messages)
    legal = set(cut_points(material.messages))
    starts = [(number, one.first) for number, one in enumerate(groups) if number and one.first in legal]
    if not starts:
        return None
    share = max(1, math.ceil(len(groups) * material.request.policy.ptl_drop_share))
    freed, done = 0.0, 0
    for number, position in starts:
        freed += sum(wanted.sizes[m.position] for one in groups[done:number] for m in one.messages)
        done = number
        if freed >= wanted.least if wanted.least is not None else number >= share:
            return position
    return starts[-1][1]


def _marker(request: SummaryRequest, dropped: Sequence[Message]) -> str:
    """One text for all that had to go: how much, the person's first request, and what is extracted from the rest."""
    policy = request.policy
    groups = len(group_by_api_round(dropped))
    opening = (
        f"[{groups} earlier API rounds of this session had to be left out because it is too long. What follows was "
        "extracted from them without a model, for the record; it is not something that the user wrote now.]"
    )
    if not policy.ptl_digest_tokens:
        return opening
    first = next((human_text(message) for message in dropped if is_human_prompt(message)), "")
    most = policy.ptl_digest_tokens // FIRST_REQUEST_SHARE
    quoted = shortened(text=first, most_tokens=most, family=request.family) if first else ""
    told = f"The user's first request in them:\n<first_request>\n{quoted}\n</first_request>" if quoted else ""
    return "\n\n".join(part for part in (opening, told, tagged("digest", _digest(request, dropped, policy))) if part)


def _digest(request: SummaryRequest, dropped: Sequence[Message], policy: Policy) -> str:
    rest = policy.ptl_digest_tokens - policy.ptl_digest_tokens // FIRST_REQUEST_SHARE
    history = [message for message in dropped if is_rendered(message)]
    asked = SummaryRequest(history=history, tail=(), budget_tokens=rest, family=request.family, policy=policy)
    return summarize(request=asked)
