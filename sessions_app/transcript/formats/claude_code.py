"""Claude Code's session files: one JSON object a line. Reading is lenient: what is not known is kept raw.

The format is its client's own and changes with any release (facts: transcript formats); so nothing but the few fields
used here is expected, and each of them may be missing or of another type.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from sessions_app.transcript.entries import (
    ImportedBoundary,
    LineProblem,
    ParsedLine,
    TranscriptMessage,
    TranscriptNote,
    TranscriptSession,
)
from sessions_app.transcript.exported import REVERTED, SESSION_LINE, BadMark, Written, mark_of, read_boundary
from sessions_app.transcript.history_items import BadItem, read_columns
from sessions_app.transcript.json_values import Unreadable, first_value, is_too_deep
from sessions_app.transcript.messages import SYNTHETIC_MODEL, Content, MessageKind, Role

NAME = "claude-code"

# Lines that name the session, the weightiest last.
TITLE_FIELDS = {"summary": ("summary", 1), "ai-title": ("aiTitle", 2), "custom-title": ("customTitle", 3)}
# Side lines that are known to be no messages (facts: transcript formats, section 2, and real files).
KNOWN_KINDS = frozenset(
    """agent-color agent-name agent-setting ai-title atis-latch attachment bridge-session content-replacement
    custom-title file-history-delta file-history-snapshot frame-link last-prompt mode permission-mode pr-link progress
    queue-operation relocated summary system tag worktree-state""".split()  # noqa: SIM905
)
_SESSION_ID = re.compile(rb'"sessionId"\s*:\s*"([^"\\]{1,128})"')
# PostgreSQL's text can't hold NUL, UTF-8 no lone surrogate; the columns for ids take 128 characters.
_UNUSABLE_ID = re.compile("[\x00\ud800-\udfff]")
LONGEST_ID = 128
LARGEST_COUNT = 2_000_000_000  # what a 32-bit column holds; a token count beyond it is no count


def recognizes(*, objects: list[Mapping[str, Any]]) -> bool:
    """Whether the first objects of a file look like this format: a conversation line, or only its known side lines."""
    return any(
        entry.get("type") in ("user", "assistant")
        and isinstance(entry.get("message"), Mapping)
        and ("sessionId" in entry or "parentUuid" in entry or "isSidechain" in entry)
        for entry in objects
    )


def session_id_of(*, line: bytes) -> str | None:
    """The session id that a line carries, found without parsing it. Quotes inside strings are escaped, so text
    that quotes such a field does not match."""
    match = _SESSION_ID.search(line)
    return match[1].decode("utf-8", "replace") if match else None


def read_line(*, text: str, line_number: int) -> Iterator[ParsedLine]:
    """What one line holds. A line may hold two objects with no newline between them, or be cut; blank: nothing."""
    rest = text.lstrip("\ufeff \t\r\n")
    while rest:
        try:
            entry, end = first_value(text=rest)
        except Unreadable as why:
            yield LineProblem(line_number=line_number, reason=str(why))
            return
        rest = rest[end:].lstrip(" \t\r\n")
        if is_too_deep(value=entry, text=text):
            yield LineProblem(line_number=line_number, reason="nested too deeply")
        elif isinstance(entry, dict):
            yield from _read_entry(entry, line_number)
        else:
            yield LineProblem(line_number=line_number, reason=f"a JSON object is expected, not {type(entry).__name__}")


def _read_entry(entry: dict[str, Any], line_number: int) -> Iterator[ParsedLine]:
    kind = entry.get("type")
    if kind == SESSION_LINE:
        yield _session(entry, line_number)
        return
    if bad := _bad_mark(entry):
        yield LineProblem(line_number=line_number, reason=f"a boundary of an export: {bad}; kept raw", kept=True)
    if kind not in ("user", "assistant") or mark_of(entry).get("part"):
        if kind not in ("user", "assistant") and (not isinstance(kind, str) or kind not in KNOWN_KINDS):
            told = json.dumps(kind)[:60]
            yield LineProblem(line_number=line_number, reason=f"an unknown kind of line ({told}); kept raw", kept=True)
        yield _note(entry, line_number)
        return
    fault = _message_fault(entry)
    if fault:
        yield LineProblem(line_number=line_number, reason=f"{fault}; kept raw, not part of the conversation", kept=True)
        yield _note(entry, line_number)
    else:
        yield _message(entry, line_number)


def _session(entry: Mapping[str, Any], line_number: int) -> ParsedLine:
    try:
        return TranscriptSession(line_number=line_number, columns=read_columns(value=mark_of(entry).get("session")))
    except BadItem as bad:
        return LineProblem(line_number=line_number, reason=f"the session of an export: {bad}")


def _message_fault(entry: Mapping[str, Any]) -> str:
    message = entry.get("message")
    if not isinstance(message, Mapping):
        return f"a {entry['type']} line without a message"
    content = message.get("content")
    if isinstance(content, str):
        return ""
    if not isinstance(content, list) or not all(
        isinstance(b, Mapping) and isinstance(b.get("type"), str) for b in content
    ):
        return f"a {entry['type']} line whose content is neither text nor content blocks"
    return ""


def _message(entry: dict[str, Any], line_number: int) -> TranscriptMessage:
    message, given = entry["message"], _given(entry)
    role = Role.ASSISTANT if entry["type"] == "assistant" else Role.USER
    usage = message.get("usage")
    injected, aside = given.get("isMeta", entry.get("isMeta")), given.get("isSidechain", entry.get("isSidechain"))
    return TranscriptMessage(
        line_number=line_number,
        uuid=_id(entry.get("uuid")) or _derived_key(entry, line_number),
        parent_uuid=_parent(entry),
        role=Role.SYSTEM if given.get("role") == Role.SYSTEM else role,
        content=_content(message["content"], given),
        kind=_kind(entry, message),
        message_id=None if "messageId" in given else _text(message.get("id")) or None,
        model=_text(message.get("model")),
        sent_at=_moment(entry.get("timestamp")),
        usage=usage if isinstance(usage, Mapping) else None,
        is_meta=injected is True,
        is_sidechain=aside is True,
        envelope=_mapping(given.get("envelope"))
        or {**entry, "message": {k: v for k, v in message.items() if k != "content"}},
    )


def _given(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the history held, where an export of ours had to write something else."""
    return _mapping(mark_of(entry).get("given"))


def _content(content: Content, given: Mapping[str, Any]) -> Content:
    """The content; a text that an export had to write as a block is a text again."""
    if given.get("content") == "text" and isinstance(content, list) and len(content) <= 1:
        text = content[0].get("text") if content else ""
        return text if isinstance(text, str) else content
    return content


def _kind(entry: Mapping[str, Any], message: Mapping[str, Any]) -> MessageKind:
    if entry.get("isCompactSummary") is True:
        return MessageKind.COMPACT_SUMMARY
    if entry.get("isApiErrorMessage") is True or message.get("model") == SYNTHETIC_MODEL:
        return MessageKind.API_ERROR
    return MessageKind.NORMAL


def read_note(*, entry: dict[str, Any], line_number: int) -> TranscriptNote:
    """A line that is no message, as it is kept; also for entries that were stored raw."""
    return _note(entry, line_number)


def _note(entry: dict[str, Any], line_number: int) -> TranscriptNote:
    kind = _text(entry.get("type")) or "unknown"
    # A snapshot's id may be a message's uuid, so only lines of the chain (with parentUuid) count as nodes.
    uuid = _id(entry.get("uuid")) if "parentUuid" in entry else ""
    title_field, rank = TITLE_FIELDS.get(kind, ("", 0))
    return TranscriptNote(
        line_number=line_number,
        key=uuid or _derived_key(entry, line_number),
        uuid=uuid,
        parent_uuid=_parent(entry),
        type=kind[:60],
        subtype=_text(entry.get("subtype"))[:60],
        raw=entry,
        title=_text(entry.get(title_field)) if title_field else "",
        title_rank=rank,
        boundary=_boundary(entry),
        ours=_ours(entry, uuid),
    )


def _ours(entry: Mapping[str, Any], uuid: str) -> str:
    mark = mark_of(entry)
    return _id(mark.get("of")) if mark.get("part") else uuid if mark.get("boundary") else ""


def _bad_mark(entry: Mapping[str, Any]) -> str:
    """What is wrong with a boundary that says to be ours; "" where nothing is."""
    told = mark_of(entry).get("boundary")
    if told is None:
        return ""
    try:
        read_boundary(told)
    except BadMark as bad:
        return str(bad)
    return ""


def _written(entry: Mapping[str, Any]) -> Written | None:
    try:
        return read_boundary(mark_of(entry).get("boundary"))
    except BadMark:
        return None


def _boundary(entry: Mapping[str, Any]) -> ImportedBoundary | None:
    if entry.get("type") != "system" or entry.get("isSidechain") is True:
        return None
    if entry.get("subtype") == REVERTED:
        return ImportedBoundary(is_microcompact=False, trigger="", reverted=True)
    if mark_of(entry).get("boundary") is not None:
        written = _written(entry)
        micro = entry.get("subtype") == "microcompact_boundary"
        return ImportedBoundary(is_microcompact=micro, trigger="", written=written) if written else None
    if entry.get("subtype") == "microcompact_boundary":
        meta = _mapping(entry.get("microcompactMetadata"))
        before, saved = _count(meta.get("preTokens")), _count(meta.get("tokensSaved"))
        return ImportedBoundary(
            is_microcompact=True,
            trigger=_text(meta.get("trigger")),
            tokens_before=before,
            tokens_after=before - saved if before is not None and saved is not None and saved <= before else None,
            cleared_tool_use_ids=_texts(meta.get("compactedToolIds")),
        )
    if entry.get("subtype") != "compact_boundary":
        return None
    meta = _mapping(entry.get("compactMetadata"))
    kept, segment = _mapping(meta.get("preservedMessages")), _mapping(meta.get("preservedSegment"))
    uuids = _texts(kept.get("uuids")) or _texts([segment.get("headUuid"), segment.get("tailUuid")])
    return ImportedBoundary(
        is_microcompact=False,
        trigger=_text(meta.get("trigger")),
        tokens_before=_count(meta.get("preTokens")),
        tokens_after=_count(meta.get("postTokens")),
        preserved_uuids=uuids,
        anchor_uuid=_text(kept.get("anchorUuid")) or _text(segment.get("anchorUuid")),
        instructions=_text(meta.get("userContext")),
    )


def _parent(entry: Mapping[str, Any]) -> str | None:
    """The line that this one hangs on; None for a root, "" where it can't be told.

    A boundary starts a new root and names its past apart.
    """
    entry = {**entry, "parentUuid": given["parentUuid"]} if "parentUuid" in (given := _given(entry)) else entry
    found = _id(entry.get("parentUuid")) or _id(entry.get("logicalParentUuid"))
    is_root = "parentUuid" in entry and entry["parentUuid"] is None
    return found or (None if is_root else "")


def _derived_key(entry: Mapping[str, Any], line_number: int) -> str:
    """A key for a line without uuid: its number and content, so that reading the file again finds it."""
    canonical = json.dumps(entry, sort_keys=True, separators=(",", ":"))
    return f"line-{line_number}-{hashlib.sha256(canonical.encode()).hexdigest()[:32]}"


def _id(value: object) -> str:
    """An id as it can be stored and compared; "" for one that can't."""
    usable = isinstance(value, str) and len(value) <= LONGEST_ID and not _UNUSABLE_ID.search(value)
    return value if usable and isinstance(value, str) else ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if _id(item)) if isinstance(value, list) else ()


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_COUNT else None


def _moment(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
