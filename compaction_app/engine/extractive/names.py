"""What counts as a name: the words of a transcript that can't be paraphrased (facts: quality.md, "anchors")."""

from __future__ import annotations

import re

from compaction_app.engine.extractive.text import without_blobs

_FLAGS = r"(?<![^\s\"'`\[,])--?[A-Za-z][\w-]*(?![\w/(])"
NAME = re.compile(
    r"[A-Za-z0-9_.+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"  # mail address
    r"|https?://[^\s'\"<>()\[\]{}`,;|\\]+"  # URL
    r"|(?:~|\.{1,2})?/?(?:[A-Za-z0-9_@.+-]+/)+[A-Za-z0-9_@.+-]+"  # path of two components or more
    r"|/[A-Za-z0-9_@.+-]{3,}"  # absolute path of one component
    r"|(?<![\w.])[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.[A-Za-z][A-Za-z0-9]{0,5}\b"  # file name or dotted name
    rf"|{_FLAGS}"
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"  # UUID
    r"|\b0x[0-9a-fA-F]+\b"
    r"|\b\d+(?:\.\d+)+\b"
    r"|\b(?:[0-9]+[a-f]|[a-f]+[0-9])[0-9a-f]{5,62}\b"  # hash
    r"|\b\d{3,}\b"
    r"|(?<!\\)\b[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+\b|\b_+[A-Za-z][A-Za-z0-9_]*"  # snake_case, CONSTANT_CASE
    r"|(?<!\\)\b[a-z]+[0-9]*[A-Z][A-Za-z0-9]*\b|\b[A-Z][a-z0-9]+[A-Z][A-Za-z0-9]*\b"  # camelCase, PascalCase
    r"|\b[A-Z]{2,}[a-z][A-Za-z0-9]*\b"
    r"|(?<!\\)\b[A-Za-z]+[0-9][A-Za-z0-9]*\b",  # name with a digit
    re.ASCII,
)
_LONGEST = 160


def normal(name: str) -> str:
    """The form in which names are compared: a path by its last two components, no closing punctuation."""
    if "://" in name:
        return name.rstrip(".:/-")
    name = name.rstrip(".:/-+@")
    if "/" in name:
        parts = [part for part in name.split("/") if part not in ("", ".", "..", "~")]
        return "/".join(parts[-2:])
    return name


def names_in(text: str) -> list[str]:
    """The names of a text in order, normalised, each once."""
    found = dict.fromkeys(normal(match) for match in NAME.findall(without_blobs(text)) if len(match) <= _LONGEST)
    found.pop("", None)
    return list(found)
