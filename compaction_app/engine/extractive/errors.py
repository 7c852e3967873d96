"""Failing results and what the agent did about them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from compaction_app.engine.extractive.files import edited_path
from compaction_app.engine.extractive.story import Call
from compaction_app.engine.extractive.text import one_line

# A result that reports a failure although the client did not mark it.
_FAILED = re.compile(
    r"^Traceback \(most recent call last\)|^(?:--- )?FAIL(?:ED)?\b|\b[1-9]\d* (?:failed|failing)\b|^error(?:\[\w+\])?:"
    r"|^(?:fatal|panic): |\bexit(?:ed with)? (?:code|status):? [1-9]|^[\w.]{0,100}(?:Error|Exception): "
    r"|npm ERR!|command not found",
    re.MULTILINE | re.IGNORECASE,
)
# Tools whose results are data: a file that speaks of errors is not an error.
_DATA_TOOLS = frozenset(
    {"Read", "Grep", "Glob", "WebFetch", "WebSearch", "TodoWrite", "Task", "Agent", "Edit", "Write"}
)
_TELLING = re.compile(
    r"(?<![\w.])[\w.]{0,100}(?:Error|Exception|Warning)\b|\berror\b|\bfail(?:ed|ure|s)?\b|\bfatal\b|\bpanic\b|\bcannot\b"
    r"|\bnot found\b"
    r"|\bundefined\b|\bdenied\b|\binvalid\b|\bno such\b|\bunexpected\b|\bmissing\b|✗|×"
    r"|错误|失败|异常|无法|エラー|失敗|오류|실패",
    re.IGNORECASE,
)
_MESSAGE = re.compile(r"(?:E +)?(?:error|fatal|panic|[\w.]{0,100}(?:Error|Exception))\b[^:]*:|CONFLICT", re.IGNORECASE)
# A refused call may carry what the human answered instead of allowing it.
_USER_SAID = re.compile(r"the user said:\s*\S[\s\S]*")
# Lines that say that, but not what, and echoes of the command.
_STATUS_ONLY = re.compile(
    r"^(?:Exit code \d+|<\w+>|Traceback \(most recent call last\):?"
    r"|\W*(?:FAIL|FAILED|FAILURES|ERROR|ERRORS)\W*|[$>] .*)$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Failure:
    """One distinct failure: its telling lines, and the first reaction (an edited path or a command, "" for none)."""

    at: int
    lines: tuple[str, ...]
    edited: str
    command: str


def failures(calls: Sequence[Call], *, reaction_calls: int) -> list[Failure]:
    """The distinct failures, newest first; the same lines with another reaction count once, by the newest."""
    found: dict[tuple[str, ...], Failure] = {}
    for index in range(len(calls) - 1, -1, -1):
        call = calls[index]
        if not failed(call):
            continue
        lines = telling_lines(call.result or "")
        if lines and lines not in found:
            edited, command = _reaction(calls[index + 1 : index + 1 + reaction_calls])
            found[lines] = Failure(at=call.at, lines=lines, edited=edited, command=command)
    return list(found.values())


def failed(call: Call) -> bool:
    if call.is_error:
        return True
    return call.name not in _DATA_TOOLS and bool(call.result) and _FAILED.search(call.result or "") is not None


def telling_lines(result: str) -> tuple[str, ...]:
    """The first line that says what went wrong, the first that is an error message, the last of the former; uncut.

    When the human refused the call with words, these come first, then the first line.
    """
    said = _USER_SAID.search(result)
    if said:
        first = result.strip().partition("\n")[0]
        return one_line(said.group()), first
    given = [line.strip() for line in result.split("\n") if line.strip()]
    lines = [line for line in given if not _STATUS_ONLY.match(line)] or given
    telling = [line for line in lines if _TELLING.search(line)] or lines[:1]
    if not telling:
        return ()
    message = next((line for line in telling if _MESSAGE.match(line)), telling[0])
    return tuple(dict.fromkeys((telling[0], message, telling[-1])))


def _reaction(calls: Sequence[Call]) -> tuple[str, str]:
    """The first edited path and the first command among the calls after a failure, whichever came first only."""
    for call in calls:
        edited = edited_path(call)
        if edited:
            return edited, ""
        if call.command:
            return "", call.command
    return "", ""
