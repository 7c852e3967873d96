"""What fills the view (S13): one pass over its items, whose memory does not grow with their number.

Every token is counted in exactly one part. All figures are estimates in tokens; of a message its stored one.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter, OrderedDict
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from sessions_app.catalog import TokenizerFamily
from sessions_app.transcript.boundary import Boundary
from sessions_app.transcript.messages import ContentBlock, Role, human_text
from sessions_app.transcript.repeated_reads import (
    READ_TOOLS,
    WHOLE,
    Lines,
    ReadTracker,
    RepeatedRead,
    lines_in,
    path_in,
)
from sessions_app.transcript.splitting import is_cleared, split_tokens
from sessions_app.transcript.tokens import estimate_block, estimate_text
from sessions_app.transcript.view import ViewItem

UNKNOWN_TOOL = "(unknown)"  # a result whose call is not shown
OTHER_TOOLS = "(others)"
MOST_TOOLS = 200  # tools that are told apart
LONGEST_NAME = 200  # characters; a longer one is cut, as in the index of tool calls

# What Claude Code wraps the output of a command in that a person ran (facts: transcript formats, section 2).
_LOCAL_OUTPUT = re.compile(r"<(?:local-command-stdout|local-command-stderr|bash-stdout|bash-stderr)>")


class Part(StrEnum):
    """What a token belongs to. INJECTED: text in user messages that nobody typed (reminders, notices, marks).

    LOCAL_OUTPUT: of commands that a person ran in the client. MEDIA: images and documents beside text; those within a
    result are the result's. OTHER: blocks of types that are not known.
    """

    PROMPTS = "prompts"
    INJECTED = "injected"
    LOCAL_OUTPUT = "local_command_output"
    ASSISTANT_TEXT = "assistant_text"
    THINKING = "thinking"
    SYSTEM_TEXT = "system_text"
    TOOL_REQUESTS = "tool_requests"
    TOOL_RESULTS = "tool_results"
    MEDIA = "media"
    SUMMARY = "summary"
    ATTACHMENTS = "attachments"
    OTHER = "other"


@dataclass(slots=True)
class ToolShare:
    """Tokens of one tool's calls and results as they are shown; `errors`: failed results; `cleared`: placeholders."""

    name: str
    calls: int = 0
    request_tokens: int = 0
    results: int = 0
    result_tokens: int = 0
    errors: int = 0
    cleared: int = 0

    @property
    def tokens(self) -> int:
        return self.request_tokens + self.result_tokens


@dataclass(slots=True)
class Counted:
    """How many of something, and their tokens."""

    count: int = 0
    tokens: int = 0

    def add(self, tokens: int) -> None:
        self.count += 1
        self.tokens += tokens


@dataclass(frozen=True, slots=True)
class LargeMessage:
    """`what`: the part that most of it belongs to; `tool` and `target` (a file): of a call or result, else ""."""

    position: int
    uuid: str
    role: str
    tokens: int
    what: str
    tool: str
    target: str


@dataclass(frozen=True, slots=True)
class ContextAnalysis:
    """`messages`: stored ones that are shown. `parts` add up to `view_tokens`; tools come largest first.

    `images` and `documents`: with those within results. `cleared`: its tokens are what the cleared results would take
    in full. `repeated`, `wasted_tokens`: of all files; `repeated_reads`: the worst of them.
    """

    view_tokens: int
    messages: int
    parts: dict[Part, int]
    tools: list[ToolShare]
    attachments: dict[str, Counted]
    images: Counted
    documents: Counted
    cleared: Counted
    repeated: int
    wasted_tokens: int
    repeated_reads: list[RepeatedRead]
    largest: list[LargeMessage]


class _Call(NamedTuple):
    share: ToolShare
    target: str
    lines: Lines
    reads: bool


class _Result(NamedTuple):
    tokens: int
    error: bool
    cleared: bool


class ContextAnalyzer:
    """Takes the items of a view, oldest first; `finish` tells what was found.

    `boundary`: at the head of the view; `rows`: how many files and messages are listed; `tracked`: how many calls and
    files are remembered, the newest ones. A result further from its call than that counts as an unknown tool's.
    """

    def __init__(self, *, family: TokenizerFamily, boundary: Boundary | None, rows: int, tracked: int) -> None:
        self._family, self._boundary, self._rows, self._tracked = family, boundary, rows, tracked
        self._calls: OrderedDict[str, _Call] = OrderedDict()
        # Clients that run parallel calls while the response streams write some results before their use.
        self._early: OrderedDict[str, _Result] = OrderedDict()
        self._tools: dict[str, ToolShare] = {}
        self._reads = ReadTracker(most_files=tracked)
        self._parts: Counter[Part] = Counter()
        self._attachments: dict[str, Counted] = {}
        self._media = {"image": Counted(), "document": Counted()}
        self._cleared = Counted()
        self._largest: list[tuple[int, int, LargeMessage]] = []
        self._messages = self._view_tokens = 0

    def add(self, item: ViewItem) -> None:
        self._view_tokens += item.tokens
        if item.position == 0:
            self._inserted(item)
            return
        self._messages += 1
        counted, most, of_most = 0, -1, (Part.OTHER, "", "")
        for block, tokens in split_tokens(item=item, family=self._family):
            found = self._block(item, block, tokens)
            counted += tokens
            if tokens > most:
                most, of_most = tokens, found
        self._parts[Part.OTHER] += item.tokens - counted
        if len(self._largest) < self._rows or item.tokens > self._largest[0][0]:
            self._keep(item, *of_most)

    def finish(self) -> ContextAnalysis:
        for result in self._early.values():
            self._give_up(result)
        self._early.clear()
        used = [tool for tool in self._tools.values() if tool.calls or tool.results]
        return ContextAnalysis(
            view_tokens=self._view_tokens,
            messages=self._messages,
            parts={part: self._parts[part] for part in Part},
            tools=sorted(used, key=lambda tool: (-tool.tokens, tool.name)),
            attachments=self._attachments,
            images=self._media["image"],
            documents=self._media["document"],
            cleared=self._cleared,
            repeated=self._reads.repeated,
            wasted_tokens=self._reads.wasted_tokens,
            repeated_reads=self._reads.worst(most=self._rows),
            largest=[message for _, _, message in sorted(self._largest, key=lambda found: (-found[0], -found[1]))],
        )

    def _inserted(self, item: ViewItem) -> None:
        """What the head boundary put in; the uuids of its attachments end in their number."""
        _, mark, number = item.uuid.rpartition(":attachment:")
        if not mark or self._boundary is None:
            self._parts[Part.SUMMARY] += item.tokens
            return
        kind = self._boundary.attachments[int(number)].kind
        self._parts[Part.ATTACHMENTS] += item.tokens
        self._attachments.setdefault(kind, Counted()).add(item.tokens)

    def _keep(self, item: ViewItem, part: Part, tool: str, target: str) -> None:
        found = LargeMessage(item.position, item.uuid, item.role.value, item.tokens, part.value, tool, target)
        # Of equally large ones the earlier stays.
        heapq.heappush(self._largest, (item.tokens, -item.position, found))
        if len(self._largest) > self._rows:
            heapq.heappop(self._largest)

    def _block(self, item: ViewItem, block: ContentBlock, tokens: int) -> tuple[Part, str, str]:
        """Count one block; gives its part, tool and file."""
        kind = block.get("type")
        if kind == "text":
            return self._text(item, block, tokens), "", ""
        if kind == "tool_result" or (isinstance(kind, str) and kind.endswith("_tool_result")):
            return self._result(item, block, tokens)
        if kind in ("tool_use", "server_tool_use", "mcp_tool_use") and item.role == Role.ASSISTANT:
            return self._use(block, tokens)
        part = Part.OTHER
        if kind in ("thinking", "redacted_thinking"):
            part = Part.THINKING
        elif kind in ("image", "document"):
            part = Part.MEDIA
            self._media[kind].add(tokens)
        self._parts[part] += tokens
        return part, "", ""

    def _text(self, item: ViewItem, block: ContentBlock, tokens: int) -> Part:
        if item.role != Role.USER:
            part = Part.ASSISTANT_TEXT if item.role == Role.ASSISTANT else Part.SYSTEM_TEXT
            self._parts[part] += tokens
            return part
        text = block.get("text")
        text = text if isinstance(text, str) else ""
        message = item.message
        typed = human_text(message if message.content == text else replace(message, content=[block])) if message else ""
        if typed == text or (typed and text.lstrip().startswith("<command-")):
            part = Part.PROMPTS if typed else Part.INJECTED
            self._parts[part] += tokens
            return part
        part = Part.LOCAL_OUTPUT if text.lstrip()[:1] == "<" and _LOCAL_OUTPUT.search(text) else Part.INJECTED
        by_person = min(estimate_text(text=typed, family=self._family), tokens)
        self._parts[Part.PROMPTS] += by_person
        self._parts[part] += tokens - by_person
        return part if tokens > 2 * by_person else Part.PROMPTS

    def _use(self, block: ContentBlock, tokens: int) -> tuple[Part, str, str]:
        self._parts[Part.TOOL_REQUESTS] += tokens
        name, arguments = block.get("name"), block.get("input")
        share = self._share(name[:LONGEST_NAME] if isinstance(name, str) and name else UNKNOWN_TOOL)
        share.calls += 1
        share.request_tokens += tokens
        call = _Call(share=share, target=path_in(arguments), lines=lines_in(arguments), reads=share.name in READ_TOOLS)
        use_id = block.get("id")
        if isinstance(use_id, str):
            early = self._early.pop(use_id, None)
            if early is not None:
                self._answer(call, early)
            self._calls[use_id] = call
            if len(self._calls) > self._tracked:
                self._calls.popitem(last=False)
        return Part.TOOL_REQUESTS, share.name, call.target

    def _result(self, item: ViewItem, block: ContentBlock, tokens: int) -> tuple[Part, str, str]:
        self._parts[Part.TOOL_RESULTS] += tokens
        cleared = is_cleared(item, block)
        if cleared:
            self._cleared.add(self._whole(item, block))
        else:
            self._media_in(block.get("content"), most=tokens)
        result = _Result(tokens=tokens, error=block.get("is_error") is True, cleared=cleared)
        use_id = block.get("tool_use_id")
        call = self._calls.get(use_id) if isinstance(use_id, str) else None
        if call is not None:
            self._answer(call, result)
            return Part.TOOL_RESULTS, call.share.name, call.target
        if isinstance(use_id, str):
            self._wait(use_id, result)
        else:
            self._give_up(result)
        return Part.TOOL_RESULTS, "", ""

    def _whole(self, item: ViewItem, block: ContentBlock) -> int:
        """What a cleared result would take in full."""
        if item.message is not None and len(item.message.blocks) == 1:
            return item.message.tokens
        return estimate_block(block=block, family=self._family)

    def _wait(self, use_id: str, result: _Result) -> None:
        before = self._early.pop(use_id, None)
        if before is not None:
            self._give_up(before)
        self._early[use_id] = result
        if len(self._early) > self._tracked:
            self._give_up(self._early.popitem(last=False)[1])

    def _give_up(self, result: _Result) -> None:
        self._answer(_Call(share=self._share(UNKNOWN_TOOL), target="", lines=WHOLE, reads=False), result)

    def _answer(self, call: _Call, result: _Result) -> None:
        call.share.results += 1
        call.share.result_tokens += result.tokens
        call.share.errors += result.error
        call.share.cleared += result.cleared
        if call.reads and call.target and not result.error and not result.cleared:
            self._reads.add(path=call.target, lines=call.lines, tokens=result.tokens)

    def _media_in(self, content: object, *, most: int) -> None:
        """Images and documents within a result: told, but its tokens are the result's already."""
        for part in content if isinstance(content, list) else ():
            kind = part.get("type") if isinstance(part, dict) else None
            if kind in ("image", "document"):
                self._media[kind].add(min(estimate_block(block=part, family=self._family), most))

    def _share(self, name: str) -> ToolShare:
        if name not in self._tools and len(self._tools) >= MOST_TOOLS:
            name = OTHER_TOOLS
        return self._tools.setdefault(name, ToolShare(name=name))
