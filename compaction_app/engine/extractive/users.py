"""Section 6 and 1: what the human said, to the letter."""

from __future__ import annotations

from collections.abc import Sequence

from compaction_app.engine.extractive.draft import Draft, Group
from compaction_app.engine.extractive.story import Said
from compaction_app.engine.extractive.text import bullet, clip, fence, one_line, plain_line, prefix, rough_size
from sessions_app.policy import Policy

_CUT, _GAP = "[… cut, ", "[… "
_LEADING = 2  # the first and the newest message lead the order of worth


def write_users(*, draft: Draft, users: Sequence[Said], policy: Policy) -> Group:
    """Every message verbatim, or as much of the longest as the purse allows, shared fairly; oldest first."""
    purse = draft.begin(policy.extract_user_share)
    group = draft.group(6)
    for line in _lines(draft=draft, users=users, purse=purse, policy=policy):
        draft.add(group, line)
    draft.end()
    return group


def widen_users(*, draft: Draft, group: Group, users: Sequence[Said], policy: Policy) -> None:
    """Give messages that were cut a part of what the other sections left."""
    spare = draft.begin_last() - int(draft.budget * policy.extract_lines_kept_share)
    if spare <= 0 or not any(_CUT in line or line.startswith(_GAP) for line in group.lines):
        return
    purse = spare + sum(draft.line_cost(line) for line in group.lines)
    group.lines[:] = _lines(draft=draft, users=users, purse=purse, policy=policy)


def _lines(*, draft: Draft, users: Sequence[Said], purse: int, policy: Policy) -> list[str]:
    """The entries of section 6; where messages are left out, one line says which."""
    shown = _entries(draft=draft, users=users, purse=purse, policy=policy)
    gone = [index for index in range(len(users)) if index not in shown]
    lines = [shown[index] for index in sorted(shown)]
    if gone:
        first, last = users[gone[0]].position, users[gone[-1]].position
        lines.insert(gone[0], f"{_GAP}{len(gone)} more user messages left out: positions {first}–{last}]")
    return lines


def write_request(*, draft: Draft, users: Sequence[Said], instructions: str, policy: Policy) -> None:
    """Section 1: the first request when it is short, else its beginning; the newest one; the instructions."""
    group = draft.group(1)
    draft.begin(policy.extract_request_share)
    if instructions.strip():
        draft.add(
            group, bullet(f"Instruction for this summary: “{clip(instructions, limit=policy.extract_quote_chars)}”")
        )
    if users:
        draft.add(group, bullet(f"First request: {_pointer(users[0].text, policy)}"))
    if len(users) > 1:
        draft.add(group, bullet(f"Newest request: {_pointer(users[-1].text, policy)}"))
    draft.end()


def _pointer(text: str, policy: Policy) -> str:
    quote = clip(text, limit=policy.extract_request_chars)
    whole = quote == one_line(text)
    return f"“{quote}”" + ("" if whole else " (more in section 6)")


def _entries(*, draft: Draft, users: Sequence[Said], purse: int, policy: Policy) -> dict[int, str]:
    """Which messages are shown, by index, and how.

    As many as can be shown in a useful length, the first, then newest to oldest. The longest are cut to a common cap.
    """
    whole = [_whole(said.text) for said in users]
    costs = [draft.line_cost(entry) for entry in whole]
    mark = draft.line_cost(_whole("a\nb" + _cut_mark(99_000)))
    least = policy.extract_least_marks * mark
    order = _worth_order(len(users))
    ranked = [costs[index] for index in order]
    if _most_that_fit(ranked, purse=purse, least=least) < len(order):
        purse -= draft.line_cost(f"{_GAP}99999 more user messages left out: positions 99999–99999]")
    order = order[: _most_that_fit(ranked, purse=purse, least=least)]
    cap = _fair_cap(ranked[: len(order)], purse, policy.extract_favour)
    shown: dict[int, str] = {}
    for rank, index in enumerate(order):
        limit = min(purse, cap * (policy.extract_favour if rank < _LEADING else 1))
        entry, cost = whole[index], costs[index]
        if cost > max(limit, least):
            entry = _shortened(draft, users[index].text, limit - mark)
            cost = draft.line_cost(entry)
        if cost <= purse:
            shown[index] = entry
            purse -= cost
    return shown


def _worth_order(count: int) -> list[int]:
    """First, then newest to oldest."""
    return [0, *range(count - 1, 0, -1)] if count else []


def _most_that_fit(costs: Sequence[int], *, purse: int, least: int) -> int:
    """The largest number of messages, in order of worth, each of which gets its whole cost or at least `least`."""
    total = 0
    for count, cost in enumerate(costs):
        total += min(cost, least)
        if total > purse:
            return max(1, count)
    return len(costs)


def _fair_cap(costs: Sequence[int], purse: int, favour: int) -> int:
    """The largest cap c with sum(min(cost, c)) <= purse (those that lead the list: up to `favour` times c)."""
    low, high = 0, max(costs, default=0)
    while low < high:
        middle = (low + high + 1) // 2
        total = sum(min(cost, middle * (favour if i < _LEADING else 1)) for i, cost in enumerate(costs))
        low, high = (middle, high) if total <= purse else (low, middle - 1)
    return low


def _whole(text: str) -> str:
    """One message: a list item when it is one plain line, else fenced, so that every character stays as it was."""
    return bullet(text) if plain_line(text) else fence(text)


def _shortened(draft: Draft, text: str, tokens: int) -> str:
    """The exact beginning that costs about `tokens`, then the cut mark; the mark alone when nothing fits."""
    if tokens <= 0:
        return bullet(_cut_mark(len(text)).strip())
    sample = text[: tokens * 8]
    limit = min(len(text) - 1, len(sample) * tokens // max(1, draft.cost(sample)))
    start = ""
    for _ in range(6):
        start = prefix(text, limit=limit)
        if draft.cost(start) <= tokens:
            break
        limit = limit * 9 // 10
    return _whole(start + _cut_mark(len(text) - len(start))) if start else bullet(_cut_mark(len(text)).strip())


def _cut_mark(missing: int) -> str:
    return f" {_CUT}{rough_size(missing)} more characters]"
