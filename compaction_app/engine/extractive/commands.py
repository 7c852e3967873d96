"""Shell commands that the agent ran, in the order in which it is likely to need them again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from compaction_app.engine.extractive.draft import Draft
from compaction_app.engine.extractive.story import Call
from compaction_app.engine.extractive.text import poses_as_section
from sessions_app.policy import Policy


def ranked_commands(*, calls: Sequence[Call], length: int, policy: Policy) -> list[str]:
    """Distinct commands, most needed first: newest, and repeated ones before those that ran once."""
    longest = policy.extract_command_chars
    last: dict[str, int] = {}
    runs: Counter[str] = Counter()
    for call in calls:
        if call.command and len(call.command) <= longest:
            last[call.command] = call.at
            runs[call.command] += 1

    def need(command: str) -> float:
        return (
            last[command] / max(1, length)
            + policy.extract_repeat_gain * min(4, runs[command] - 1)
            - len(command) / longest
        )

    return sorted(last, key=lambda command: (-need(command), command))


def write_commands(*, draft: Draft, calls: Sequence[Call], length: int, policy: Policy) -> None:
    """Section 5: commands to the letter in one fence."""
    draft.begin(policy.extract_commands_share)
    written = draft.text()
    group = draft.group(5, title="Commands run:", fenced=True)
    for command in ranked_commands(calls=calls, length=length, policy=policy):
        if command in written or poses_as_section(command):
            continue
        if not draft.add(group, command) and draft.purse < 8:
            break
    draft.end()
