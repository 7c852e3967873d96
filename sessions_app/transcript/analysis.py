"""What fills the context (S13), as data: by tool, by role, repeated reads, the largest messages. First version."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import Any

from sessions_app.catalog import TokenizerFamily
from sessions_app.transcript.messages import ContentBlock, Role, content_blocks, human_text, tool_uses
from sessions_app.transcript.tokens import estimate_block
from sessions_app.transcript.view import ContextView, ViewItem

LARGEST = 5


@dataclass(slots=True)
class ToolShare:
    """Tokens of one tool's calls and results that are shown now."""

    name: str
    calls: int = 0
    request_tokens: int = 0
    result_tokens: int = 0


@dataclass(slots=True)
class RepeatedRead:
    """A file that was read more than once; `wasted_tokens`: what all but the newest reading take."""

    path: str
    reads: int
    wasted_tokens: int


@dataclass(frozen=True, slots=True)
class LargeMessage:
    position: int
    role: str
    tokens: int


@dataclass(slots=True)
class ContextAnalysis:
    """All figures are estimates in tokens, of what the model is shown now."""

    view_tokens: int = 0
    messages: int = 0
    roles: dict[str, int] = field(default_factory=lambda: {"user": 0, "assistant": 0, "system": 0})
    thinking_tokens: int = 0
    prompts_tokens: int = 0
    summary_tokens: int = 0
    attachments_tokens: int = 0
    tools: list[ToolShare] = field(default_factory=list)
    repeated_reads: list[RepeatedRead] = field(default_factory=list)
    largest: list[LargeMessage] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def analyze_context(*, view: ContextView, family: TokenizerFamily) -> ContextAnalysis:
    """Who takes how much of the view. Roles count without tool calls and results, which are the tools' own."""
    found = ContextAnalysis(view_tokens=view.tokens, messages=len(view.messages))
    # A result may stand before its use, so the uses are known first.
    calls = {
        block["id"]: block for item in view.items if item.role == Role.ASSISTANT for block in tool_uses(item.content)
    }
    tools: dict[str, ToolShare] = {}
    reads: dict[str, list[int]] = defaultdict(list)
    for item in view.items:
        if item.position == 0:
            _count_inserted(found, item)
            continue
        for block in content_blocks(item.content):
            _count_block(found, item, block, calls=calls, tools=tools, reads=reads, family=family)
        if item.message is not None and human_text(item.message):
            found.prompts_tokens += item.tokens
    found.tools = sorted(tools.values(), key=lambda t: (-(t.request_tokens + t.result_tokens), t.name))
    found.repeated_reads = _repeated(reads)
    biggest = sorted((i for i in view.items if i.position), key=lambda i: (-i.tokens, i.position))[:LARGEST]
    found.largest = [LargeMessage(i.position, i.role.value, i.tokens) for i in biggest]
    return found


def _count_inserted(found: ContextAnalysis, item: ViewItem) -> None:
    if ":attachment:" in item.uuid:
        found.attachments_tokens += item.tokens
    else:
        found.summary_tokens += item.tokens


def _count_block(
    found: ContextAnalysis,
    item: ViewItem,
    block: ContentBlock,
    *,
    calls: dict[str, ContentBlock],
    tools: dict[str, ToolShare],
    reads: dict[str, list[int]],
    family: TokenizerFamily,
) -> None:
    tokens = estimate_block(block=block, family=family)
    if block.get("type") == "tool_use" and item.role == Role.ASSISTANT:
        share = _share(tools, block)
        share.calls += 1
        share.request_tokens += tokens
    elif block.get("type") == "tool_result":
        call = calls.get(str(block.get("tool_use_id")), {})
        _share(tools, call).result_tokens += tokens
        path = _path(call)
        if call.get("name") == "Read" and path:
            reads[path].append(tokens)
    else:
        if block.get("type") in ("thinking", "redacted_thinking"):
            found.thinking_tokens += tokens
        else:
            found.roles[item.role.value] += tokens


def _share(tools: dict[str, ToolShare], call: ContentBlock) -> ToolShare:
    name = call.get("name")
    key = name if isinstance(name, str) and name else "(unknown)"
    return tools.setdefault(key, ToolShare(name=key))


def _path(call: ContentBlock) -> str:
    arguments = call.get("input")
    path = arguments.get("file_path") if isinstance(arguments, dict) else None
    return path if isinstance(path, str) else ""


def _repeated(reads: dict[str, list[int]]) -> list[RepeatedRead]:
    found = [RepeatedRead(path, len(t), sum(t[:-1])) for path, t in reads.items() if len(t) > 1]
    return sorted(found, key=lambda r: (-r.wasted_tokens, r.path))
