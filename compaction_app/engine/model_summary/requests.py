"""The two requests for a summary, built from what is left of the conversation after any cuts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from compaction_app.engine.command import Scope
from compaction_app.engine.model_summary.calls import Way
from compaction_app.engine.model_summary.prompt import SYSTEM, instruction, part_record, tagged
from compaction_app.engine.model_summary.rendering import (
    MEDIA,
    as_text,
    call_as_text,
    media_marker,
    result_as_text,
    shortened,
)
from compaction_app.engine.ports import Conversation, ModelRequest, SummaryRequest
from sessions_app.catalog import ModelInfo, TokenizerFamily
from sessions_app.transcript import edits
from sessions_app.transcript.messages import Message, Role, content_blocks, is_human_prompt, tool_results, tool_uses
from sessions_app.transcript.request import THINKING, build_request
from sessions_app.transcript.rounds import call_spans, group_by_api_round
from sessions_app.transcript.tokens import estimate_content, estimate_text
from sessions_app.transcript.validation import MOST_CACHE_MARKERS
from sessions_app.transcript.view import ContextView, ViewItem

EPHEMERAL = {"type": "ephemeral"}
ANALYSIS_FACTOR = 2  # the analysis is written first, and is about as long as the summary
CALL_TOKENS = 100  # of a call that is repeated so that its result is known by it


@dataclass(frozen=True, slots=True)
class Material:
    """What a request is built from: the messages that it still shows, and what had to go.

    `marker`: what stands for the dropped ones, "" while nothing was dropped. `without_media`: images and documents are
    markers. `max_tokens`: longest output. `part`: where a conversation is read in parts, which of how many it is;
    `records`: those of all the parts, of which one is to be made.
    """

    request: SummaryRequest
    conversation: Conversation
    way: Way
    model: str
    limits: ModelInfo
    messages: tuple[Message, ...]
    max_tokens: int
    dropped: tuple[Message, ...] = ()
    marker: str = ""
    without_media: bool = False
    part: tuple[int, int] | None = None
    records: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        return not self.dropped and not self.without_media

    @property
    def is_own_model(self) -> bool:
        return self.model == self.conversation.model

    @property
    def family(self) -> TokenizerFamily:
        """Of the model that is asked: another one than the session's may count in its own way."""
        return self.request.family if self.is_own_model else self.limits.family

    @property
    def ratio(self) -> float:
        """Billed tokens per estimated one; measured for the session's own model only."""
        return self.conversation.ratio if self.is_own_model else 1.0


@dataclass(frozen=True, slots=True)
class Built:
    """A request and its size: tokens are an estimate as they are billed, bytes are of the body."""

    request: ModelRequest
    tokens: int
    size_bytes: int


def first_material(
    *, request: SummaryRequest, conversation: Conversation, way: Way, model: str, limits: ModelInfo
) -> Material:
    """All of it, nothing dropped."""
    wanted = request.policy.summary_output_tokens or ANALYSIS_FACTOR * request.budget_tokens
    output = min(wanted, limits.max_output_tokens, limits.context_window // 2)
    # Of a part that begins with the session, what stays behind it is left out: the rest is a prefix all the same.
    part_alone = way is Way.STANDALONE or request.scope is Scope.UP_TO
    shown = request.compacted if part_alone else _without_open_round(conversation.view.messages)
    return Material(
        request=request,
        conversation=conversation,
        way=way,
        model=model,
        limits=limits,
        messages=tuple(shown),
        max_tokens=max(output, 1),
    )


def build(*, material: Material) -> Built:
    """The request of this material, in its way."""
    return _alone(material) if material.way is Way.STANDALONE else _behind_the_conversation(material)


def _without_open_round(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages but the last response where that waits for a result: it stays verbatim, and the conversation's own
    last request ended before it. A person's words after it keep it where it is."""
    rounds = group_by_api_round(messages)
    if len(rounds) < 2 or any(is_human_prompt(message) for message in rounds[-1].messages):
        return messages
    is_open = any(call.result_position is None for call in call_spans(rounds[-1].messages))
    return [m for m in messages if m.position < rounds[-1].first] if is_open else messages


def _behind_the_conversation(material: Material) -> Built:
    conversation, policy = material.conversation, material.request.policy
    view = shown_view(material=material)
    shown = build_request(view=view, system=conversation.system, tools=conversation.tools)
    managed: Mapping[str, Any] = {}
    if policy.cache_edit_dialect == edits.CONTEXT_MANAGEMENT:
        managed = edits.managed(view=view, request=shown, least_tokens=policy.clear_least_tokens)
    if not managed:
        view = _seen_whole(view)
    messages = [dict(message) for message in shown.messages]
    if conversation.is_warm and material.is_whole:
        left = MOST_CACHE_MARKERS - _markers(conversation.system) - _markers(conversation.tools)
        messages = _marked(messages, most=left)
    asked = instruction(request=material.request, cleared=_cleared(material, view))
    messages = _with_instruction(messages, asked)
    request = ModelRequest(
        model=material.model,
        max_tokens=material.max_tokens,
        messages=messages,
        system=conversation.system,
        tools=conversation.tools,
        context_management=managed,
        betas=(*shown.betas, *((edits.CONTEXT_MANAGEMENT_BETA,) if managed else ())),
    )
    estimate = view.tokens + estimate_text(text=asked, family=material.request.family)
    return _built(material, request, round(estimate * material.ratio) + conversation.overhead_tokens)


def _seen_whole(view: ContextView) -> ContextView:
    """Results that no edit clears are seen by the model as they are sent."""
    items = [
        replace(item, edited=frozenset(), tokens=max(item.tokens, item.message.tokens))
        if item.edited and item.message
        else item
        for item in view.items
    ]
    return replace(view, items=tuple(items))


def shown_view(*, material: Material) -> ContextView:
    """The conversation's view as far as the material still shows it, the marker behind what a boundary put in front."""
    view = material.conversation.view
    kept = {message.position for message in material.messages}
    items = [item for item in view.items if not item.position or item.position in kept]
    if material.request.scope is Scope.UP_TO:
        # An earlier summary may stand within what is kept.
        items = items[: max((number for number, item in enumerate(items, start=1) if item.position), default=None)]
    if material.marker:
        place = next((number for number, item in enumerate(items) if item.position), len(items))
        tokens = estimate_text(text=material.marker, family=material.request.family)
        items.insert(place, ViewItem(role=Role.USER, content=material.marker, position=0, uuid="", tokens=tokens))
    changed = 0 if material.dropped else len(items)
    if material.without_media:
        shorter = [_without_media(item, material.request.family) for item in items]
        changed = min(changed, *(n for n, item in enumerate(items) if shorter[n] is not item), len(items))
        items = shorter
    # Thinking is bound to all that stood before it (facts: Anthropic API, section 8).
    items[changed:] = [_without_thinking(item, material.request.family) for item in items[changed:]]
    return replace(view, items=tuple(items))


def _without_thinking(item: ViewItem, family: TokenizerFamily) -> ViewItem:
    if not item.position or item.role != Role.ASSISTANT or item.stale_thinking:
        return item
    thought = [block for block in content_blocks(item.content) if block.get("type") in THINKING]
    freed = estimate_content(content=thought, family=family)
    return replace(item, stale_thinking=True, tokens=max(item.tokens - freed, 0))


def _without_media(item: ViewItem, family: TokenizerFamily) -> ViewItem:
    """The item with markers for its media, the same one where it has none."""
    before = content_blocks(item.content)
    if not any(_media_of(block) for block in before):
        return item
    after = [_told(block) for block in before]
    freed = estimate_content(content=before, family=family) - estimate_content(content=after, family=family)
    return replace(item, content=after, tokens=max(item.tokens - freed, 1))


def _media_of(block: Mapping[str, Any]) -> int:
    """How many images and documents a block is or holds."""
    parts = block.get("content") if block.get("type") == "tool_result" else None
    inside = [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []
    return sum(part.get("type") in MEDIA for part in (block, *inside))


def _told(block: Mapping[str, Any]) -> Mapping[str, Any]:
    if block.get("type") in MEDIA:
        return {"type": "text", "text": media_marker(block)}
    parts = block.get("content")
    if block.get("type") != "tool_result" or not isinstance(parts, list):
        return block
    return {**block, "content": [_told(part) if isinstance(part, Mapping) else part for part in parts]}


def media_in(*, messages: Sequence[Message]) -> int:
    """How many images and documents the messages hold."""
    return sum(_media_of(block) for message in messages for block in message.blocks)


def _markers(value: Any) -> int:
    """Cache markers that the client has set in its own system prompt and tools."""
    blocks = value if isinstance(value, list) else []
    return sum(isinstance(block, Mapping) and "cache_control" in block for block in blocks)


def _marked(messages: list[dict[str, Any]], *, most: int) -> list[dict[str, Any]]:
    """Cache markers at the end of the request that got the last response (an exact hit, whatever lies behind), and at
    the end of the conversation. The first goes before where there is room for one only."""
    answered = max((number for number, message in enumerate(messages) if message["role"] == Role.ASSISTANT), default=0)
    last = len(messages) - 1
    places = [answered - 1, last] if answered else [last]
    for place in [one for one in places if one >= 0][: max(most, 0)]:
        messages[place] = _with_marker(messages[place])
    return messages


def _with_marker(message: dict[str, Any]) -> dict[str, Any]:
    blocks = [dict(block) for block in message["content"]]
    if blocks[-1].get("type") not in THINKING:
        blocks[-1]["cache_control"] = dict(EPHEMERAL)
    return {**message, "content": blocks}


def _with_instruction(messages: list[dict[str, Any]], asked: str) -> list[dict[str, Any]]:
    block = {"type": "text", "text": asked}
    if messages and messages[-1]["role"] == Role.USER:
        return [*messages[:-1], {**messages[-1], "content": [*messages[-1]["content"], block]}]
    return [*messages, {"role": Role.USER.value, "content": [block]}]


def _cleared(material: Material, view: ContextView) -> str:
    """Results that the model does not see any more, as they were, each behind its call, newest first (T33)."""
    policy, family = material.request.policy, material.request.family
    left = policy.summary_cleared_tokens
    told: list[str] = []
    calls: dict[str, str] = {}
    if any(item.cleared or item.edited for item in view.items):
        calls = {use["id"]: call_as_text(block=use) for item in view.items for use in tool_uses(item.content)}
    asked = material.request
    wanted = {m.position for m in asked.compacted} if asked.scope is Scope.FROM else None
    for item in reversed(view.items):
        ids = item.cleared | item.edited if wanted is None or item.position in wanted else frozenset()
        for block in tool_results(item.message.content) if ids and item.message else ():
            if block["tool_use_id"] not in ids:
                continue
            call = shortened(text=calls.get(block["tool_use_id"], ""), most_tokens=CALL_TOKENS, family=family)
            most = min(left, policy.summary_result_tokens)
            result = result_as_text(block=block, most_tokens=most, family=family)
            text = f"<tool_call>\n{call}\n</tool_call>\n<tool_result>\n{result}\n</tool_result>"
            left -= estimate_text(text=text, family=family)
            if left < 0:
                return "\n".join(told)
            told.append(text)
    return "\n".join(told)


def _alone(material: Material) -> Built:
    asked, policy = material.request, material.request.policy
    text = as_text(messages=material.messages, most_tokens=policy.summary_result_tokens, family=asked.family)
    parts = [
        tagged("earlier_record", asked.earlier_summary) if asked.earlier_summary else "",
        f"<transcript>\n{material.marker + chr(10) if material.marker else ''}{text}\n</transcript>",
        instruction(request=asked, alone=True, part=material.part),
    ]
    if material.records:
        parts = [
            *(part_record(number=number, text=one) for number, one in enumerate(material.records, start=1)),
            instruction(request=asked, alone=True, records=len(material.records)),
        ]
    content = [{"type": "text", "text": part} for part in parts if part]
    request = ModelRequest(
        model=material.model,
        max_tokens=material.max_tokens,
        messages=[{"role": Role.USER.value, "content": content}],
        system=SYSTEM,
    )
    estimate = sum(estimate_text(text=part, family=material.family) for part in (SYSTEM, *parts))
    return _built(material, request, round(estimate * material.ratio))


def _built(material: Material, request: ModelRequest, tokens: int) -> Built:
    """With less output where that is enough for the rest to fit (T41)."""
    left = material.limits.context_window - tokens
    if _least_output(material) <= left < request.max_tokens:
        request = replace(request, max_tokens=left)
    size = len(json.dumps(request.body(), ensure_ascii=False).encode("utf-8", "surrogatepass"))
    return Built(request=request, tokens=tokens, size_bytes=size)


def _least_output(material: Material) -> int:
    """Less would not hold the summary and its analysis."""
    asked = material.request
    return max(asked.policy.ptl_least_output_tokens, ANALYSIS_FACTOR * asked.budget_tokens)
