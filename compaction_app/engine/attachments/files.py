"""The files touched last, with the newest content that is known of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from compaction_app.engine.attachments.calls import Call
from compaction_app.engine.attachments.fitting import Purse, fit_lines, one_line
from compaction_app.engine.client_state import StateValue
from sessions_app.policy import Policy
from sessions_app.transcript.boundary import AttachmentValue
from sessions_app.transcript.file_tools import EDIT_TOOLS, FILE_TOOLS, READ_TOOLS, WRITE_TOOLS
from sessions_app.transcript.view import CLEARED_RESULT

# What Claude Code answers instead of a content that it has shown before.
UNCHANGED = "File unchanged since last read"
PARTS = frozenset({"offset", "limit", "pages"})  # arguments by which a reading is of a part of the file


@dataclass(frozen=True, slots=True)
class FileState:
    """The newest whole content known of one file.

    `position`: where it was seen; None: the client has told it. `edits_since`: edits in the history after that;
    `last_touched`: position of the last call, 0 where no call is known.
    """

    path: str
    content: str
    position: int | None
    edits_since: int
    last_touched: int


def file_attachments(
    *, calls: Sequence[Call], state: StateValue, policy: Policy, purse: Purse
) -> Iterator[AttachmentValue]:
    """The newest first, within the budgets of one file and of all."""
    room = policy.attached_files_tokens
    for file in _recent(calls=calls, state=state)[: policy.attached_files]:
        value = fit_lines(
            kind="file",
            label=_label(file),
            text=file.content,
            payload={"path": file.path, "position": file.position, "edits_since": file.edits_since},
            purse=purse,
            most=min(room, policy.attached_file_tokens),
            least=policy.attached_least_tokens,
        )
        if value:
            room -= value.tokens
            yield value


def _label(file: FileState) -> str:
    name = one_line(file.path)
    if file.position is None:
        return f"File {name}, as the client had it when the conversation was compacted"
    stale = f"; edited {file.edits_since} times after that, so its content is older than the file"
    return f"File {name}, as last seen at position {file.position}{stale if file.edits_since else ''}"


def _recent(*, calls: Sequence[Call], state: StateValue) -> list[FileState]:
    """Files with a known content that the tail does not show, the one touched last first; then those that the client
    has told of and no call names, in its order."""
    found: dict[str, FileState] = {}
    shown, touched = set(), {}
    for call in calls:
        if call.name not in FILE_TOOLS or not call.path or not call.succeeded:
            continue
        path = call.path
        touched[path] = call.position
        content = _content(call)
        if content:
            found[path] = FileState(path, content, call.position, 0, call.position)
            if _is_shown(call):
                shown.add(path)
        elif path in found:
            known = found[path]
            # Edits in the tail are shown behind the content, so they make it no older than it looks.
            edited = call.name in EDIT_TOOLS and not call.in_tail
            found[path] = replace(known, edits_since=known.edits_since + edited, last_touched=call.position)
    for path, content in state.files.items():
        if content.strip():
            found[path] = FileState(path, content, None, 0, touched.get(path, 0))
    standing = [file for path, file in found.items() if path not in shown]
    order = {path: number for number, path in enumerate(state.files)}
    return sorted(standing, key=lambda file: (-file.last_touched, order.get(file.path, 0)))


def _content(call: Call) -> str:
    """The whole content that a call shows; "" where it shows none, or a part."""
    if call.name in WRITE_TOOLS:
        written = call.argument("content")
        return written if written.strip() else ""
    if call.name not in READ_TOOLS or PARTS & set(call.arguments):
        return ""
    answer = call.answer
    told = answer.strip()
    return "" if not told or told == CLEARED_RESULT or told.startswith(UNCHANGED) else answer


def _is_shown(call: Call) -> bool:
    """Whether the tail holds the content: of a Write its input, of a Read its result."""
    return call.in_tail if call.name in WRITE_TOOLS else call.result_in_tail
