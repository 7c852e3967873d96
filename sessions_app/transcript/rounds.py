"""API rounds, and the only answer to "where may one cut?".

A round is one API response with what answered it: a new round starts at an assistant message whose API message id
differs from the one before (source document: groupMessagesByApiRound). Claude Code writes one response as several
entries with one `message_id`, tool results in between; they belong to one round.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from sessions_app.policy import APPROVAL_TOOLS
from sessions_app.transcript.messages import ContentBlock, Message, Role, tool_results, tool_uses


@dataclass(frozen=True, slots=True)
class Round:
    """Messages of one round, oldest first. The first round may hold only what came before any assistant message."""

    messages: tuple[Message, ...]

    @property
    def first(self) -> int:
        return self.messages[0].position

    @property
    def last(self) -> int:
        return self.messages[-1].position

    @property
    def tokens(self) -> int:
        return sum(message.tokens for message in self.messages)


@dataclass(frozen=True, slots=True)
class CallSpan:
    """One tool call: where it stands, where its result stands (None: none came), and whether a person must answer."""

    tool_use_id: str
    use_position: int
    result_position: int | None
    is_approval: bool


def starts_round(*, message: Message, last_message_id: str | None, seen_assistant: bool) -> bool:
    """Whether an assistant message opens a new round, given the id of the assistant message before it.

    Without ids (None) each assistant message is a response of its own.
    """
    if message.role != Role.ASSISTANT:
        return False
    return not seen_assistant or message.message_id is None or message.message_id != last_message_id


def group_by_api_round(messages: Sequence[Message]) -> list[Round]:
    """The messages (oldest first), split into rounds; every message is in exactly one."""
    groups: list[list[Message]] = []
    last_id: str | None = None
    seen_assistant = False
    for message in messages:
        opens = starts_round(message=message, last_message_id=last_id, seen_assistant=seen_assistant)
        if message.role == Role.ASSISTANT:
            last_id, seen_assistant = message.message_id, True
        if opens or not groups:
            groups.append([])
        groups[-1].append(message)
    return [Round(messages=tuple(group)) for group in groups]


def call_spans(messages: Sequence[Message]) -> list[CallSpan]:
    """Every tool call of the messages with its result; an id that is used again starts anew."""
    uses: list[tuple[str, int, bool]] = []
    pairs, calls, last_id = CallPairs(), ResponseCalls(), None
    for message in messages:
        if message.role == Role.ASSISTANT:
            if message.message_id is None or message.message_id != last_id:
                calls, last_id = ResponseCalls(), message.message_id
            for block in tool_uses(message.content):
                number = calls.number(block)
                if number is None:
                    continue
                pairs.use(block["id"], len(uses), is_further=number > 0)
                uses.append((block["id"], message.position, block.get("name") in APPROVAL_TOOLS))
        elif message.role == Role.USER:
            for block in tool_results(message.content):
                pairs.result(block["tool_use_id"], message.position)
    return [CallSpan(use, at, pairs.found.get(number), approval) for number, (use, at, approval) in enumerate(uses)]


class ResponseCalls:
    """The calls of one response, told block by block.

    Some clients write a block of a response twice, others give one id to several calls: what has the same id, name and
    input is the same call, anything else is a call of its own.
    """

    def __init__(self) -> None:
        self._first: dict[str, ContentBlock] = {}
        self._of_id: dict[str, set[str]] = {}  # only where an id comes again

    def number(self, block: ContentBlock) -> int | None:
        """How many other calls of the response have this call's id so far; None for a call that was told already."""
        use_id = block["id"]
        if use_id not in self._first:
            self._first[use_id] = block
            return 0
        known = self._of_id.setdefault(use_id, {_told(self._first[use_id])})
        before = len(known)
        known.add(_told(block))
        return before if len(known) > before else None


def _told(call: ContentBlock) -> str:
    return json.dumps([call.get("name"), call.get("input")], sort_keys=True, default=str)


class CallPairs:
    """Which result answers which use, told in the order of the history. `found`: token of the use -> of the result.

    A result belongs to the newest use of its id that has none, else to the next use: clients that run parallel calls
    while the response still streams write some results before their use. A second result of a call that is
    answered already is a repetition and belongs to nobody. Calls of one response with one id are answered in their
    order.
    """

    def __init__(self) -> None:
        self.found: dict[int, int] = {}
        self._pending: dict[str, deque[int]] = {}
        self._early: dict[str, int] = {}
        self._answered: set[str] = set()

    def use(self, use_id: str, token: int, *, is_further: bool = False) -> None:
        """`is_further`: another call of the same response has the id."""
        if use_id in self._early:
            self.found[token] = self._early.pop(use_id)
            self._answered.add(use_id)
        else:
            if not is_further or use_id not in self._pending:
                self._pending[use_id] = deque()
            self._pending[use_id].append(token)
            self._answered.discard(use_id)

    def result(self, use_id: str, token: int) -> None:
        if self._pending.get(use_id):
            self.found[self._pending[use_id].popleft()] = token
            self._answered.add(use_id)
        elif use_id not in self._answered:
            self._early.setdefault(use_id, token)


def cut_points(messages: Sequence[Message]) -> list[int]:
    """Positions where one may cut: what is before such a position can go, what is at or after it stays.

    Ascending. A legal cut splits no response and no call from its result, and goes past no call of the last round
    that still waits for its result (known failures T1, T2, T5). A call that was never answered although
    later rounds followed is dead, and blocks nothing (T6). The position after the last message is included when
    everything may go.
    """
    if not messages:
        return []
    rounds = group_by_api_round(messages)
    blocked = _blocked_spans(messages=messages, rounds=rounds)
    end = messages[-1].position + 1
    candidates = [message.position for message in messages[1:]] + [end]
    legal, span, reach = [], 0, 0
    for position in candidates:
        while span < len(blocked) and blocked[span][0] < position:
            reach = max(reach, blocked[span][1])
            span += 1
        if position > reach:
            legal.append(position)
    return legal


def _blocked_spans(*, messages: Sequence[Message], rounds: Sequence[Round]) -> list[tuple[int, int]]:
    """Pairs (after, to), sorted: no cut at a position p with after < p <= to."""
    end = messages[-1].position + 1
    last_round_at = rounds[-1].first
    spans = []
    for call in call_spans(messages):
        if call.result_position is not None:
            ends = (call.use_position, call.result_position)
            spans.append((min(ends), max(ends)))
        elif call.use_position >= last_round_at:
            spans.append((call.use_position, end))
    for one in rounds:
        lines = [m.position for m in one.messages if m.role == Role.ASSISTANT]
        if len(lines) > 1:
            spans.append((lines[0], lines[-1]))
    return sorted(spans)


def waiting_approvals(messages: Sequence[Message]) -> list[CallSpan]:
    """Calls that wait for a person's answer, wherever they stand (known failure T8)."""
    return [call for call in call_spans(messages) if call.is_approval and call.result_position is None]
