"""Lines of Claude Code transcripts, made up for tests."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

SESSION = "7f3c5a10-0000-4000-8000-000000000001"


def line(kind: str, uuid: str, parent: str | None, **more: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": SESSION,
        "timestamp": "2026-10-01T08:00:00.000Z",
        "isSidechain": more.pop("isSidechain", False),
        "cwd": "/srv/app",
        "version": "2.1.0",
        **more,
    }


def human(uuid: str, parent: str | None, content: Any, **more: Any) -> dict[str, Any]:
    return line("user", uuid, parent, message={"role": "user", "content": content}, **more)


def reply(
    uuid: str, parent: str | None, *blocks: Any, message_id: str = "", usage: Any = None, **more: Any
) -> dict[str, Any]:
    message = {
        "id": message_id or f"msg_{uuid}",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5-20250929",
        "content": [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks],
        "stop_reason": None,
        "usage": usage or {"input_tokens": 6, "cache_read_input_tokens": 15_000, "output_tokens": 12},
    }
    return line("assistant", uuid, parent, message=message, **more)


def compact_boundary(uuid: str, last: str, **metadata: Any) -> dict[str, Any]:
    return line(
        "system",
        uuid,
        None,
        subtype="compact_boundary",
        logicalParentUuid=last,
        content="Conversation compacted",
        compactMetadata={"trigger": "auto", "preTokens": 171_200, **metadata},
    )


def compact_summary(
    uuid: str, boundary_uuid: str, text: str = "This session is being continued. Summary: X."
) -> dict[str, Any]:
    return human(uuid, boundary_uuid, text, isCompactSummary=True, isVisibleInTranscriptOnly=True)


def file_of(*lines: Any, end: bytes = b"\n") -> BytesIO:
    """A transcript file: dictionaries become JSON lines, bytes stay as they are."""
    parts = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in lines]
    return BytesIO(b"\n".join(parts) + end)
