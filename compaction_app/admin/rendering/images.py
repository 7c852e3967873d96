"""Images of a transcript: only embedded ones, only formats that can't hold a program, only up to a size."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from compaction_app.admin.rendering.text import bytes_text, one_line

SHOWN_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
MOST_BASE64 = 3_000_000  # characters, about 2.2 MB of image
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}\Z")


@dataclass(frozen=True, slots=True)
class ImageBlock:
    """`source` is a data address, empty when the image is not shown; `note` then says why."""

    template: ClassVar[str] = "compaction_app/admin/blocks/image.html"
    source: str
    note: str


def image_block(block: Mapping[str, Any]) -> ImageBlock:
    source = block.get("source")
    source = source if isinstance(source, Mapping) else {}
    media, data = source.get("media_type"), source.get("data")
    if source.get("type") != "base64" or not isinstance(media, str) or not isinstance(data, str):
        where = source.get("url") or source.get("file_id") or "somewhere else"
        return ImageBlock(source="", note=f"image kept at {one_line(str(where), limit=200)}, not loaded")
    size = bytes_text(len(data) * 3 // 4)
    name = one_line(media, limit=60)
    if media not in SHOWN_TYPES:
        return ImageBlock(source="", note=f"{name}, {size}: this format is not shown")
    if len(data) > MOST_BASE64:
        return ImageBlock(source="", note=f"{name}, {size}: too large to show here")
    if not _BASE64.match(data):
        return ImageBlock(source="", note=f"{name}: the data is not base64")
    return ImageBlock(source=f"data:{media};base64,{data}", note=f"{name}, {size}")
