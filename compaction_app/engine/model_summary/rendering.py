"""Messages as text, for a request that stands alone: originals, escaped, media as markers, thinking left out.

Who speaks is told by tags, because what is said is escaped: a tool's result can't pose as the user.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from compaction_app.engine.model_summary.prompt import escaped
from sessions_app.catalog import TokenizerFamily
from sessions_app.transcript.messages import ContentBlock, Message, Role, content_blocks
from sessions_app.transcript.request import THINKING
from sessions_app.transcript.tokens import estimate_text

MEDIA = frozenset({"image", "document"})
# What only the provider can read, and what is no text at all.
UNREADABLE_KEYS = frozenset(
    {"type", "data", "signature", "encrypted_content", "encrypted_index", "cache_control", "id"}
)
BRIEF_CHARS = 1_000  # of a block that is no text, call or result; it stays in the history
TITLE_CHARS = 200


def as_text(*, messages: Sequence[Message], most_tokens: int, family: TokenizerFamily) -> str:
    """The messages, oldest first. `most_tokens`: longest that one text, call or result may be before it is cut."""
    told = (message_as_text(message=message, most_tokens=most_tokens, family=family) for message in messages)
    return "\n\n".join(one for one in told if one)


def message_as_text(*, message: Message, most_tokens: int, family: TokenizerFamily) -> str:
    """One message as tagged parts, each result and call in its own; "" where there is nothing to tell."""
    speaker = _speaker(message)
    parts: list[tuple[str, str]] = []
    for block in message.blocks:
        name, told = _block(block, speaker, most_tokens, family)
        if told and name == speaker and parts and parts[-1][0] == name:
            parts[-1] = (name, f"{parts[-1][1]}\n{told}")
        elif told:
            parts.append((name, told))
    return "\n".join(f"<{name}>\n{told}\n</{name.split()[0]}>" for name, told in parts)


def _speaker(message: Message) -> str:
    if message.role == Role.USER:
        return "added_by_client" if message.is_meta else "user"
    return message.role.value


def _block(block: ContentBlock, speaker: str, most_tokens: int, family: TokenizerFamily) -> tuple[str, str]:
    """The tag that a block stands in, and what it says; "" for nothing."""
    kind = block.get("type")
    if kind == "text":
        text = str(block.get("text") or "").strip()
        return speaker, shortened(text=text, most_tokens=most_tokens, family=family)
    if kind in THINKING:
        return speaker, ""
    if kind in MEDIA:
        return speaker, media_marker(block)
    if kind == "tool_use":
        return "tool_call", shortened(text=call_as_text(block=block), most_tokens=most_tokens, family=family)
    if kind == "tool_result":
        name = 'tool_result error="true"' if block.get("is_error") is True else "tool_result"
        return name, result_as_text(block=block, most_tokens=most_tokens, family=family)
    return speaker, escaped(_brief(block))


def call_as_text(*, block: ContentBlock) -> str:
    """One tool_use: its name and its input. Not escaped."""
    return f"{block.get('name')} {_json(block.get('input'))}"


def result_as_text(*, block: ContentBlock, most_tokens: int, family: TokenizerFamily) -> str:
    """What one tool_result held, escaped, cut in the middle where it is longer than `most_tokens`."""
    content = block.get("content")
    parts: Sequence[object] = content_blocks(content) if isinstance(content, str | list) else [content]
    text = "\n".join(told for told in (_part(part) for part in parts if part) if told.strip()) or "(empty)"
    return shortened(text=text, most_tokens=most_tokens, family=family)


def _part(part: object) -> str:
    if not isinstance(part, Mapping):
        return part if isinstance(part, str) else _json(part)
    if part.get("type") == "text":
        return str(part.get("text") or "")
    return media_marker(part) if part.get("type") in MEDIA else _brief(part)


def media_marker(block: Mapping[str, Any]) -> str:
    """What stands for an image or a document."""
    title = block.get("title")
    named = f": {escaped(title[:TITLE_CHARS])}" if isinstance(title, str) and title.strip() else ""
    return f"[{block.get('type')}{named}]"


def _brief(block: Mapping[str, Any]) -> str:
    """A block that is no text, call or result of a client's tool, in few words."""
    told = _json(_readable(block))
    more = " …" if len(told) > BRIEF_CHARS else ""
    return f"[{block.get('type')}: {told[:BRIEF_CHARS]}{more}]"


def _readable(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _readable(part) for key, part in value.items() if key not in UNREADABLE_KEYS}
    return [_readable(part) for part in value] if isinstance(value, list) else value


def shortened(*, text: str, most_tokens: int, family: TokenizerFamily) -> str:
    """The text, escaped; where it is longer than `most_tokens`, its begin and its end with a mark between them."""
    size = estimate_text(text=text, family=family)
    if size <= most_tokens:
        return escaped(text)
    keep = int(len(text) * most_tokens / size)
    head, tail = keep * 2 // 3, keep // 3
    left = len(text) - head - tail
    return f"{escaped(text[:head])}\n[… {left:,} characters left out …]\n{escaped(text[len(text) - tail :])}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
