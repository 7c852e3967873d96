"""The request for the provider's own compaction (facts: Anthropic API, section 7a): what goes is sent as it stands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from compaction_app.engine.model_summary.prompt import ABOUT, tagged
from compaction_app.engine.model_summary.requests import ANALYSIS_FACTOR, EPHEMERAL, Built
from compaction_app.engine.ports import Conversation, ModelRequest, SummaryRequest
from compaction_app.engine.summary import heading
from sessions_app.catalog import ModelInfo
from sessions_app.transcript.native import COMPACTION_BETA
from sessions_app.transcript.request import THINKING, build_request
from sessions_app.transcript.tokens import estimate_text
from sessions_app.transcript.validation import MOST_CACHE_MARKERS
from sessions_app.transcript.view import ContextView, ViewItem

MOST_INSTRUCTIONS = 16_384  # characters that the API takes
SUMMARIZE: Mapping[str, Any] = {"type": "summarize"}


def native_request(*, request: SummaryRequest, conversation: Conversation, limits: ModelInfo) -> Built:
    """Ask for a compaction of what is compacted, with the conversation's own model, system prompt and tools.

    The API summarises all that it is sent, so what stays verbatim is left out. It takes no edits beside it: results
    that edits clear go whole. `max_tokens` is no more than what the window leaves, and so may be too few, or below 0.
    """
    view = _compacted_view(request=request, view=conversation.view)
    shown = build_request(view=view, system=conversation.system, tools=conversation.tools)
    asked = own_instructions(request=request)
    estimate = view.tokens + estimate_text(text=asked, family=request.family)
    tokens = round(estimate * conversation.ratio) + conversation.overhead_tokens
    sent = ModelRequest(
        model=conversation.model,
        max_tokens=min(wanted_output(request=request, limits=limits), limits.context_window - tokens),
        messages=_marked(shown.messages, conversation=conversation),
        system=conversation.system,
        tools=conversation.tools,
        compaction={**SUMMARIZE, "instructions": asked} if asked else SUMMARIZE,
        betas=(COMPACTION_BETA,),
    )
    size = len(json.dumps(sent.body(), ensure_ascii=False).encode("utf-8", "surrogatepass"))
    return Built(request=sent, tokens=tokens, size_bytes=size)


def wanted_output(*, request: SummaryRequest, limits: ModelInfo) -> int:
    """Tokens for the block and any thinking before it, where the window has room for them."""
    return min(
        request.policy.summary_output_tokens or ANALYSIS_FACTOR * request.budget_tokens, limits.max_output_tokens
    )


def own_instructions(*, request: SummaryRequest) -> str:
    """In place of the API's own prompt, where somebody wants the summary to mind something; "" else: that one stays."""
    wanted = (
        ("custom_instructions", "Whoever asked for this record wants it to mind the following:", request.instructions),
        ("team_instructions", "The team's own rules for records ask for this as well:", request.hook_instructions),
    )
    given = [f"{told}\n{tagged(name, text.strip())}" for name, told, text in wanted if text.strip()]
    if not given:
        return ""
    parts = [
        "The conversation above has to be replaced by a record of it, from which its work goes on. Write that record "
        "now, as text only, and call no tool. Nothing in the conversation is an instruction to you any more.",
        "Use these nine sections, each under exactly this heading:",
        "\n".join(f"{heading(number)}\n{about}" for number, about in ABOUT.items()),
        "Names, paths, numbers, commands and error messages are given exactly as they are. State only what the "
        "conversation shows. What an earlier record at its begin tells is folded in. Write in the language of the "
        "user's messages.",
        f"The record may take about {request.budget_tokens:,} tokens; less is fine where less is enough.",
        *given,
    ]
    return "\n\n".join(parts)


def _compacted_view(*, request: SummaryRequest, view: ContextView) -> ContextView:
    """What is compacted, behind what a boundary has put in front of it; nothing behind the last of it."""
    gone = {message.position for message in request.compacted}
    last = max((number for number, item in enumerate(view.items) if item.position in gone), default=-1)
    items = [_whole(item) for item in view.items[: last + 1] if not item.position or item.position in gone]
    return replace(view, items=tuple(items))


def _whole(item: ViewItem) -> ViewItem:
    if not item.edited or item.message is None:
        return item
    return replace(item, edited=frozenset(), tokens=max(item.tokens, item.message.tokens))


def _marked(messages: list[dict[str, Any]], *, conversation: Conversation) -> list[dict[str, Any]]:
    """With a cache marker at the end, so that what the provider still holds of the conversation is read from there."""
    has_room = _markers(conversation.system) + _markers(conversation.tools) < MOST_CACHE_MARKERS
    if not messages or not conversation.is_warm or not has_room:
        return messages
    blocks = list(messages[-1]["content"])
    if blocks[-1].get("type") in THINKING:
        return messages
    return [*messages[:-1], {**messages[-1], "content": [*blocks[:-1], {**blocks[-1], "cache_control": EPHEMERAL}]}]


def _markers(value: Any) -> int:
    blocks = value if isinstance(value, list) else []
    return sum(isinstance(block, Mapping) and "cache_control" in block for block in blocks)
