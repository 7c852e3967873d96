"""Parts of an OpenAI content as content blocks (facts: transcript formats, section 10)."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping
from typing import Any

from sessions_app.transcript.messages import ContentBlock
from sessions_app.transcript.request import described

PICTURES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})  # what an image block may hold
PDF = "application/pdf"
LONGEST_NAME = 200  # characters of a kind or a file's name where it is told in a text


def block_of(*, part: object) -> tuple[ContentBlock, bool]:
    """A part as a block, and whether the block tells it whole; one that has no counterpart becomes a text that names
    it."""
    if isinstance(part, str):
        return {"type": "text", "text": part}, True
    if not isinstance(part, Mapping):
        return _named("a part that is no object"), False
    kind = part.get("type")
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    found = reader(part) if reader else None
    return found or (_named(_name_of(part)), False)


def _text(part: Mapping[str, Any]) -> tuple[ContentBlock, bool] | None:
    return (part, True) if isinstance(part.get("text"), str) else None


def _refusal(part: Mapping[str, Any]) -> tuple[ContentBlock, bool] | None:
    told = part.get("refusal")
    return ({"type": "text", "text": told}, False) if isinstance(told, str) else None


def _image(part: Mapping[str, Any]) -> tuple[ContentBlock, bool] | None:
    given = part.get("image_url")
    url = given.get("url") if isinstance(given, Mapping) else given
    if not isinstance(url, str):
        return None
    whole = set(part) == {"type", "image_url"} and (not isinstance(given, Mapping) or set(given) == {"url"})
    if url[:8].lower().startswith(("http://", "https://")):
        return {"type": "image", "source": {"type": "url", "url": url}}, whole
    media_type, data = _data(url)
    return ({"type": "image", "source": _base64(media_type, data)}, whole) if media_type in PICTURES else None


def _file(part: Mapping[str, Any]) -> tuple[ContentBlock, bool] | None:
    file = part.get("file")
    data_url = file.get("file_data") if isinstance(file, Mapping) else None
    if not isinstance(file, Mapping) or not isinstance(data_url, str):
        return None
    media_type, data = _data(data_url)
    if media_type != PDF:
        return None
    name = file.get("filename")
    title = {"title": name} if isinstance(name, str) and name else {}
    whole = set(part) == {"type", "file"} and set(file) <= {"file_data", "filename"}
    return {"type": "document", "source": _base64(media_type, data), **title}, whole


_READERS: dict[str, Callable[[Mapping[str, Any]], tuple[ContentBlock, bool] | None]] = {
    "text": _text,
    "refusal": _refusal,
    "image_url": _image,
    "file": _file,
}


def _data(url: str) -> tuple[str, str]:
    """Media type and base64 text of a data: URL; "" for any other, and for one whose data is damaged."""
    head, _, data = url.partition(",")
    if head[:5].lower() != "data:" or not head.endswith(";base64") or not data:
        return "", ""
    try:
        binascii.a2b_base64(data, strict_mode=True)
    except (binascii.Error, ValueError):
        return "", ""
    return head[5:].split(";", 1)[0].strip().lower(), data


def _base64(media_type: str, data: str) -> dict[str, str]:
    return {"type": "base64", "media_type": media_type, "data": data}


def _name_of(part: Mapping[str, Any]) -> str:
    kind = part.get("type")
    told = kind[:LONGEST_NAME] if isinstance(kind, str) and kind else "a part without a type"
    file = part.get("file")
    name = file.get("filename") if isinstance(file, Mapping) else None
    return f"{told} {name[:LONGEST_NAME]}" if isinstance(name, str) and name else told


def _named(what: str) -> ContentBlock:
    return {"type": "text", "text": f"[{what}: not shown]"}


# The other way


def is_media(*, part: Mapping[str, Any]) -> bool:
    """Whether a part is more than text."""
    return bool(part["type"] != "text")


def part_of(*, block: ContentBlock) -> dict[str, Any]:
    """A block of a request as a part: text, picture or PDF; any other as a text that tells it."""
    kind, source = block.get("type"), block.get("source")
    if kind == "text" and isinstance(block.get("text"), str):
        return {"type": "text", "text": block["text"]}
    given = source if isinstance(source, Mapping) else {}
    if kind == "image" and (url := _url_of(given)):
        return {"type": "image_url", "image_url": {"url": url}}
    if kind == "document":
        return _document(block, given)
    return {"type": "text", "text": described(block=block)}


def _document(block: ContentBlock, source: Mapping[str, Any]) -> dict[str, Any]:
    title, data = block.get("title"), source.get("data")
    if source.get("type") == "base64" and (url := _url_of(source)):
        name = title if isinstance(title, str) and title else "document.pdf"
        return {"type": "file", "file": {"filename": name, "file_data": url}}
    told = data if source.get("type") == "text" and isinstance(data, str) else described(block=block)
    return {"type": "text", "text": f"{title}\n{told}" if isinstance(title, str) and title else told}


def _url_of(source: Mapping[str, Any]) -> str:
    kind, url, data = source.get("type"), source.get("url"), source.get("data")
    if kind == "url" and isinstance(url, str):
        return url
    media_type = source.get("media_type")
    if kind == "base64" and isinstance(data, str) and isinstance(media_type, str):
        return f"data:{media_type};base64,{data}"
    return ""
