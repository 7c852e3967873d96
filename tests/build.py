"""Tiny builders for histories: u = user, a = assistant, use/res = tool_use/tool_result blocks."""

from __future__ import annotations

from typing import Any

from sessions_app.catalog import TokenizerFamily
from sessions_app.transcript.boundary import Boundary, BoundaryKind
from sessions_app.transcript.messages import Message, MessageKind, Role
from sessions_app.transcript.tokens import estimate_content

FAMILY = TokenizerFamily.UNTIL_OPUS_4_6


def use(call: str, name: str = "Read", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}


def res(call: str, content: Any = "ok", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": content, **more}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def thinking(value: str = "hm", signature: str = "sig") -> dict[str, Any]:
    return {"type": "thinking", "thinking": value, "signature": signature}


class Talk:
    """A growing history. `u` and `a` take strings or blocks; `a` opens a new response unless `same` is given."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.responses = 0

    def _add(self, role: Role, parts: tuple[Any, ...], **more: Any) -> Talk:
        blocks = [text(part) if isinstance(part, str) else part for part in parts]
        content: Any = parts[0] if len(parts) == 1 and isinstance(parts[0], str) else blocks
        number = len(self.messages) + 1
        self.messages.append(
            Message(
                position=number,
                uuid=f"m{number}",
                role=role,
                content=content,
                tokens=estimate_content(content=content, family=FAMILY),
                **more,
            )
        )
        return self

    def u(self, *parts: Any, **more: Any) -> Talk:
        return self._add(Role.USER, parts, **more)

    def a(self, *parts: Any, same: bool = False, **more: Any) -> Talk:
        if not same:
            self.responses += 1
        return self._add(Role.ASSISTANT, parts, message_id=f"msg_{self.responses}", **more)

    def summary(self, value: str) -> Talk:
        return self._add(Role.USER, (value,), kind=MessageKind.COMPACT_SUMMARY)


def boundary(covers_to: int, *, committed_at: int, sequence: int = 1, **more: Any) -> Boundary:
    from datetime import UTC, datetime, timedelta

    kind = more.pop("kind", BoundaryKind.FULL)
    return Boundary(
        id=f"00000000-0000-0000-0000-{sequence:012d}",
        kind=kind,
        covers_to=covers_to,
        committed_at=committed_at,
        created_at=more.pop("created_at", datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=sequence)),
        sequence=sequence,
        summary=more.pop("summary", "what was" if kind.summarizes else None),
        **more,
    )
