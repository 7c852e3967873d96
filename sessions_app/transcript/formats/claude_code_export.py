"""Lines of a Claude Code session file: what its client resumes from (facts: transcript formats, sections 2 to 5).

Pure: values in, one JSON object a line out. What the client has no field for stands in a field of ours
(`transcript/exported.py`), which it passes over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sessions_app.transcript.boundary import Boundary
from sessions_app.transcript.exported import MARK, REVERTED, SESSION_LINE, mark_of
from sessions_app.transcript.messages import Content, MessageKind, Role, content_blocks
from sessions_app.transcript.view import attachment_content, summary_content

NAME = "claude-code"
MEDIA_TYPE = "application/x-ndjson"
SUFFIX = ".jsonl"


@dataclass(frozen=True, slots=True)
class Where:
    """What each line says of its session. `cwd`: where its client worked, "" where that is not known."""

    session_id: str
    cwd: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored message for a line. `parent`: the line that it hangs on, None for a root; `changed_parent`: whether that
    is another one than its client gave, which is `given_parent`. `dead`: no loader may go on from it."""

    uuid: str
    role: str
    content: Content
    parent: str | None
    sent_at: datetime | None = None
    kind: str = MessageKind.NORMAL
    message_id: str | None = None
    model: str = ""
    usage: Mapping[str, Any] | None = None
    is_meta: bool = False
    is_sidechain: bool = False
    envelope: Mapping[str, Any] | None = None
    changed_parent: bool = False
    given_parent: str | None = None
    dead: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """What a boundary keeps, as uuids of lines. `before`: in front of its summary; `after`: behind it."""

    before: Sequence[str] = ()
    after: Sequence[str] = ()

    def segment(self, *, boundary_uuid: str, summary_uuid: str) -> dict[str, Any]:
        """Both forms of it. The kept messages hang on the anchor, and what follows the anchor follows them: the
        summary, or the boundary itself where they stand in front of the summary."""
        uuids, anchor = (self.before, boundary_uuid) if self.before else (self.after, summary_uuid)
        if not uuids:
            return {}
        return {
            "preservedSegment": {"headUuid": uuids[0], "anchorUuid": anchor, "tailUuid": uuids[-1]},
            "preservedMessages": {"anchorUuid": anchor, "uuids": list(uuids)},
        }


def message_line(*, entry: Entry, where: Where) -> dict[str, Any]:
    """A message: its own line as it came, else one that its client takes."""
    return _as_it_came(entry) if _is_line(entry.envelope) else _made(entry, where)


def _is_line(envelope: Mapping[str, Any] | None) -> bool:
    """Whether the message came in a line of this format; chats have envelopes of their own."""
    came = envelope or {}
    return came.get("type") in (Role.USER, Role.ASSISTANT) and isinstance(came.get("message"), Mapping)


def _as_it_came(entry: Entry) -> dict[str, Any]:
    came: Mapping[str, Any] = entry.envelope or {}
    given = dict(_given(came))
    message = came.get("message")
    line = {
        **came,
        "message": {**(message if isinstance(message, Mapping) else {}), "content": _content(entry, given)},
        "uuid": entry.uuid,
    }
    if entry.changed_parent:
        given.setdefault("parentUuid", entry.given_parent)
        line["parentUuid"] = entry.parent
    if entry.dead:
        given.setdefault("isSidechain", entry.is_sidechain)
        line["isSidechain"] = True
    return _marked(line, given)


def _made(entry: Entry, where: Where) -> dict[str, Any]:
    given: dict[str, Any] = {"envelope": dict(entry.envelope)} if entry.envelope else {}
    role = entry.role
    if role not in (Role.USER, Role.ASSISTANT):
        # Its client knows no such line; it sends injected text as the user's.
        given |= {"role": role, "isMeta": entry.is_meta}
        role = Role.USER.value
    line: dict[str, Any] = {
        "parentUuid": entry.parent,
        **_common(where, entry.sent_at),
        "isSidechain": entry.is_sidechain or entry.dead,
        "type": str(role),
        "message": _message(entry, str(role), given),
        "uuid": entry.uuid,
    }
    if entry.dead:
        given["isSidechain"] = entry.is_sidechain
    if entry.is_meta or "role" in given:
        line["isMeta"] = True
    if entry.kind == MessageKind.API_ERROR:
        line["isApiErrorMessage"] = True
    if entry.kind == MessageKind.COMPACT_SUMMARY:
        line |= {"isCompactSummary": True, "isVisibleInTranscriptOnly": True}
    if entry.changed_parent:
        given["parentUuid"] = entry.given_parent
    return _marked(line, given)


def _common(where: Where, moment: datetime | None) -> dict[str, Any]:
    return {
        "isSidechain": False,
        "userType": "external",
        "cwd": where.cwd,
        "sessionId": where.session_id,
        "version": "",
        "gitBranch": "",
        "timestamp": timestamp(moment),
    }


def timestamp(moment: datetime | None) -> str:
    """As its client writes it; microseconds only where there are some."""
    moment = (moment or datetime.fromtimestamp(0, tz=UTC)).astimezone(UTC)
    exact = "microseconds" if moment.microsecond % 1_000 else "milliseconds"
    return moment.isoformat(timespec=exact).replace("+00:00", "Z")


def _message(entry: Entry, role: str, given: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": role}
    if role == Role.ASSISTANT:
        if entry.message_id is None:
            # Its client joins the lines of one response by this id; those without one are each their own.
            given["messageId"] = None
        message["id"] = entry.message_id or f"msg_{entry.uuid}"
        message |= {"type": "message", "stop_reason": None, "stop_sequence": None}
    elif entry.message_id is not None:
        message["id"] = entry.message_id
    if entry.model:
        message["model"] = entry.model
    if entry.usage is not None:
        message["usage"] = dict(entry.usage)
    return {**message, "content": _content(entry, given)}


def _content(entry: Entry, given: dict[str, Any]) -> Any:
    """The content to the letter; an assistant's text as a block, because its client takes nothing else there."""
    if entry.role == Role.ASSISTANT and isinstance(entry.content, str):
        given["content"] = "text"
        return [dict(block) for block in content_blocks(entry.content)]
    return entry.content


def _given(line: Mapping[str, Any]) -> Mapping[str, Any]:
    given = mark_of(line).get("given")
    return given if isinstance(given, Mapping) else {}


def _marked(line: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    return {**line, MARK: {**mark_of(line), "given": dict(given)}} if given else line


def boundary_line(
    *,
    boundary: Boundary,
    summary_uuid: str,
    logical_parent: str | None,
    kept: Kept,
    summarized: int,
    instructions: str,
    written: Mapping[str, Any],
    where: Where,
) -> dict[str, Any]:
    """Where its client stops when it resumes. `summarized`: messages that the summary stands for; `written`: the
    boundary as we restore it."""
    metadata: dict[str, Any] = {
        "trigger": _trigger(written),
        "preTokens": written["tokens_before"],
        "messagesSummarized": summarized,
        **kept.segment(boundary_uuid=boundary.id, summary_uuid=summary_uuid),
    }
    if written["tokens_after"] is not None:
        metadata["postTokens"] = written["tokens_after"]
    if instructions:
        metadata["userContext"] = instructions
    return {
        "parentUuid": None,
        "logicalParentUuid": logical_parent,
        **_common(where, boundary.created_at),
        "type": "system",
        "subtype": "compact_boundary",
        "content": "Conversation compacted",
        "isMeta": False,
        "level": "info",
        "compactMetadata": metadata,
        "uuid": boundary.id,
        MARK: {"boundary": dict(written)},
    }


def summary_line(*, boundary: Boundary, summary_uuid: str, where: Where) -> dict[str, Any]:
    """What the model reads in place of what is hidden. The attachments are blocks of the same line: a line of their own
    would be the last one of a file that ends here, and injected text is no line that its client goes on from."""
    texts = [summary_content(summary=boundary.summary or "")]
    texts += [attachment_content(text=attachment.text) for attachment in boundary.attachments]
    content: Any = texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts]
    return {
        "parentUuid": boundary.id,
        **_common(where, boundary.created_at),
        "type": "user",
        "message": {"role": "user", "content": content},
        "isVisibleInTranscriptOnly": True,
        "isCompactSummary": True,
        "uuid": summary_uuid,
        MARK: {"part": "summary", "of": boundary.id},
    }


def kept_copy(*, line: Mapping[str, Any], uuid: str, parent: str, boundary_uuid: str) -> dict[str, Any]:
    """A message once more, behind the summary, where the boundary's one segment can't tell that it is kept.

    Without its usage: that is of the context before, and would have its client compact again.
    """
    message = {key: value for key, value in line["message"].items() if key != "usage"}
    mark = {"part": "kept", "of": boundary_uuid}
    return {**line, "message": message, "uuid": uuid, "parentUuid": parent, MARK: mark}


def clearing_line(
    *, boundary: Boundary, parent: str | None, written: Mapping[str, Any], where: Where
) -> dict[str, Any]:
    """Results that were cleared, at the place in the chain where it was done."""
    before, after = written["tokens_before"], written["tokens_after"]
    return {
        "parentUuid": parent,
        **_common(where, boundary.created_at),
        "type": "system",
        "subtype": "microcompact_boundary",
        "content": "Context microcompacted",
        "isMeta": False,
        "level": "info",
        "microcompactMetadata": {
            "trigger": _trigger(written),
            "preTokens": before,
            "tokensSaved": max(before - after, 0) if after is not None else 0,
            "compactedToolIds": list(written["cleared_tool_use_ids"]),
            "clearedAttachmentUUIDs": [],
        },
        "uuid": boundary.id,
        MARK: {"boundary": dict(written)},
    }


def _trigger(written: Mapping[str, Any]) -> str:
    return "manual" if written["trigger"] == "manual" else "auto"


def reverted_line(*, raw: Mapping[str, Any]) -> dict[str, Any]:
    """A client's boundary that was taken back here: kept, and no boundary any more."""
    return {**raw, "subtype": REVERTED}


def moved_line(*, raw: Mapping[str, Any], parent: str | None) -> dict[str, Any]:
    """A side line that hung on what is no part of the chain any more."""
    given = {"parentUuid": raw.get("parentUuid"), **_given(raw)}
    return _marked({**raw, "parentUuid": parent}, given)


def set_aside(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of ours that belongs to a boundary which holds no more: nothing goes on from it."""
    return {**line, "isSidechain": True}


def session_line(*, columns: Mapping[str, Any], where: Where) -> dict[str, Any]:
    """What the session's client gave beside messages, for which there is no other line. `columns`: as a session item
    has them (`transcript/history_items.py`)."""
    return {"type": SESSION_LINE, "sessionId": where.session_id, MARK: {"session": dict(columns)}}


def leaf_line(*, leaf: str, prompt: str, where: Where) -> dict[str, Any]:
    """Which line the conversation goes on from, for a file that holds an older word on it."""
    return {"type": "last-prompt", "lastPrompt": prompt, "leafUuid": leaf, "sessionId": where.session_id}
