"""State that is restored after a compaction (S15): the files read last, and the plan, within token budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sessions_app.catalog import TokenizerFamily
from sessions_app.policy import Policy
from sessions_app.transcript.boundary import AttachmentValue
from sessions_app.transcript.messages import Message, Role, result_text, tool_results, tool_uses
from sessions_app.transcript.tokens import estimate_text
from sessions_app.transcript.view import attachment_content

READ_TOOLS = frozenset({"Read"})
WRITE_TOOLS = frozenset({"Write"})
EDIT_TOOLS = frozenset({"Edit", "MultiEdit", "NotebookEdit"})


@dataclass(frozen=True, slots=True)
class FileState:
    """The newest whole content seen of one file, where it was seen, and how often the file was edited after that."""

    path: str
    content: str
    position: int
    edits_since: int
    last_touched: int


def restore_attachments(
    *, history: Sequence[Message], tail: Sequence[Message], policy: Policy, family: TokenizerFamily, room_tokens: int
) -> tuple[AttachmentValue, ...]:
    """Attachments for what the history's end needs, newest file first, the plan before them.

    `room_tokens`: most that all of them may take. What the kept tail shows already is left out.
    """
    found: list[AttachmentValue] = []
    room = room_tokens
    plan = _plan(history=history, tail=tail)
    if plan:
        most = min(room, policy.attached_plan_tokens)
        label = "The plan that was approved"
        value = _fitted(
            kind="plan",
            label=label,
            text=plan,
            payload={},
            family=family,
            most=most,
            least=policy.attached_least_tokens,
        )
        if value:
            found.append(value)
            room -= value.tokens
    files_room = min(room, policy.attached_files_tokens)
    for state in _recent_files(history=history, tail=tail)[: policy.attached_files]:
        most = min(files_room, policy.attached_file_tokens)
        value = _file(state, family=family, most=most, least=policy.attached_least_tokens)
        if value:
            found.append(value)
            files_room -= value.tokens
    return tuple(found)


def _file(state: FileState, *, family: TokenizerFamily, most: int, least: int) -> AttachmentValue | None:
    stale = (
        f"; edited {state.edits_since} times after that, so read it again before relying on it"
        if state.edits_since
        else ""
    )
    return _fitted(
        kind="file",
        label=f"File {state.path}, as last seen at position {state.position}{stale}",
        text=state.content,
        payload={"path": state.path, "position": state.position, "edits_since": state.edits_since},
        family=family,
        most=most,
        least=least,
    )


def _fitted(
    *, kind: str, label: str, text: str, payload: Mapping[str, Any], family: TokenizerFamily, most: int, least: int
) -> AttachmentValue | None:
    """The attachment, cut at a line's end with a mark where it is too long; None where too little would be left."""
    if most < least:
        return None

    def render(lines: Sequence[str], cut: int) -> str:
        mark = [f"[… cut: {cut} more lines]"] if cut else []
        return "\n".join([f"{label}:", *lines, *mark])

    def cost(rendered: str) -> int:
        return estimate_text(text=attachment_content(text=rendered), family=family)

    lines = text.splitlines()
    keep = _most_that_fits(count=len(lines), fits=lambda n: cost(render(lines[:n], len(lines) - n)) <= most)
    if keep <= 0:
        return None
    rendered = render(lines[:keep], len(lines) - keep)
    return AttachmentValue(
        kind=kind, text=rendered, payload={**payload, "truncated": keep < len(lines)}, tokens=cost(rendered)
    )


def _most_that_fits(*, count: int, fits: Callable[[int], bool]) -> int:
    """The largest n in 0..count that fits, by halving; -1 when not even 0 does."""
    low, high = -1, count
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _plan(*, history: Sequence[Message], tail: Sequence[Message]) -> str:
    """The last plan that was put to the person and not refused; "" where there is none or the tail holds it."""
    if any(block.get("name") == "ExitPlanMode" for m in tail for block in tool_uses(m.content)):
        return ""
    refused = {b["tool_use_id"] for m in history for b in tool_results(m.content) if b.get("is_error") is True}
    for message in reversed(history):
        for block in tool_uses(message.content):
            plan = _input(block).get("plan")
            if block.get("name") == "ExitPlanMode" and isinstance(plan, str) and plan.strip():
                return "" if block["id"] in refused else plan
    return ""


def _recent_files(*, history: Sequence[Message], tail: Sequence[Message]) -> list[FileState]:
    """Files with a known content, the one touched last first."""
    shown = {_path(block) for m in tail for block in tool_uses(m.content) if _gives_content(block)}
    results = {b["tool_use_id"]: b for m in history for b in tool_results(m.content) if b.get("is_error") is not True}
    states: dict[str, FileState] = {}
    for position, block in _calls(history):
        path, name = _path(block), block.get("name")
        if not path or path in shown or block["id"] not in results:
            continue
        known = states.get(path)
        if _gives_content(block):
            content = _content(block, results[block["id"]])
            if content.strip():
                states[path] = FileState(path, content, position, 0, position)
        elif name in EDIT_TOOLS and known:
            states[path] = FileState(path, known.content, known.position, known.edits_since + 1, position)
    return sorted(states.values(), key=lambda state: state.last_touched, reverse=True)


def _calls(history: Sequence[Message]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for message in history:
        if message.role == Role.ASSISTANT:
            for block in tool_uses(message.content):
                yield message.position, block


def _gives_content(block: Mapping[str, Any]) -> bool:
    return block.get("name") in WRITE_TOOLS or (
        block.get("name") in READ_TOOLS and not {"offset", "limit"} & set(_input(block))
    )


def _content(block: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    written = _input(block).get("content")
    return written if block.get("name") in WRITE_TOOLS and isinstance(written, str) else result_text(result)


def _path(block: Mapping[str, Any]) -> str:
    path = _input(block).get("file_path")
    return path if isinstance(path, str) else ""


def _input(block: Mapping[str, Any]) -> Mapping[str, Any]:
    value = block.get("input")
    return value if isinstance(value, Mapping) else {}
