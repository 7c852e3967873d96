"""What of a message can be searched, and how it is written so that an index of trigrams finds it.

PostgreSQL's pg_trgm needs three letters in a row, and two Han characters are a word. So each character of the scripts
that write a word in one or two of them is followed by a letter of its own, in the text and in what is looked for:
a text holds another exactly when the one as written here holds the other as written here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from sessions_app.transcript.messages import Content, ContentBlock, content_blocks

# Rare letters that no other character is folded to; pg_trgm counts both as letters (tried with show_trgm, C.UTF-8).
MARKER, ESCAPE = "\ua78f", "\ua78e"
_ESCAPED = str.maketrans({MARKER: ESCAPE + MARKER, ESCAPE: ESCAPE + ESCAPE})
# Han with its radicals, kana, bopomofo, Hangul and their half-width forms (Unicode's blocks of these names).
_SHORT_WORDS = re.compile(
    "([\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3041-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U0001b000-\U0001b16f\U00020000-\U0003ffff])"
)
_MARKED = re.compile(f"(?:{_SHORT_WORDS.pattern}){MARKER}\\Z")
# Keys of a content block that hold words; `data`, `signature` and `encrypted_content` hold none.
_WORDS = ("name", "title", "context", "text", "thinking", "url")
_PIECE = 4_096  # characters that are folded at once, to find the place of a hit in the original


def search_text(*, content: Content) -> str:
    """The words of a message, a line for each: text, thinking, names and inputs of tools, results. No media, no
    signatures."""
    return "\n".join(part for part in _parts(content_blocks(content)) if part)


def _parts(blocks: Sequence[ContentBlock]) -> Iterator[str]:
    """In the order of the content. Without recursion: content of any depth may have been stored."""
    waiting: list[object] = list(reversed(blocks))
    while waiting:
        block = waiting.pop()
        if isinstance(block, str):
            yield block
        if not isinstance(block, Mapping):
            continue
        yield from (block[key] for key in _WORDS if isinstance(block.get(key), str))
        yield from _values(block.get("input"))
        waiting += reversed(list(_inner(block)))


def _inner(block: ContentBlock) -> Iterator[object]:
    """What stands within: results, documents."""
    source, content = block.get("source"), block.get("content")
    if isinstance(source, Mapping) and source.get("type") == "text":
        yield source.get("data")
    elif isinstance(source, Mapping):
        yield {"url": source.get("url"), "content": source.get("content")}
    if isinstance(content, Sequence) and not isinstance(content, str):
        yield from content
    else:
        yield content


def _values(given: object) -> Iterator[str]:
    """Names and values of a tool's input, without what JSON writes around them."""
    waiting = [given]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [part for pair in reversed(list(value.items())) for part in reversed(pair)]
        elif isinstance(value, Sequence) and not isinstance(value, str):
            waiting += reversed(value)
        elif value is not None and not isinstance(value, bool):
            yield str(value)


def fold(*, text: str) -> str:
    """The text without case, each character of a script of short words followed by MARKER."""
    folded = text.casefold()
    if folded.isascii():
        return folded
    if MARKER in folded or ESCAPE in folded:
        folded = folded.translate(_ESCAPED)
    return _SHORT_WORDS.sub(rf"\1{MARKER}", folded)


def fold_query(*, text: str) -> str:
    """What to look for in folded texts: the same, and open at its end."""
    folded = fold(text=text)
    return folded[: -len(MARKER)] if _MARKED.search(folded) else folded


def snippet(*, text: str, query: str, most: int) -> str:
    """At most `most` characters of the text around the first place that holds `query`, whatever its case; from its
    beginning where none does. "…" stands where something is left out."""
    found = fold(text=text).find(fold_query(text=query))
    at = _place(text=text, folded=found) if found > 0 else 0
    first = max(min(at - (most - len(query)) // 2, at, len(text) - most), 0)
    cut = text[first : first + most]
    if first:
        cut = "…" + cut[1:]
    return cut[:-1] + "…" if first + most < len(text) else cut


def _place(*, text: str, folded: int) -> int:
    """Where in the text the character stands that `folded` characters of the folded text lead to."""
    before = 0
    for piece in range(0, len(text), _PIECE):
        size = len(fold(text=text[piece : piece + _PIECE]))
        if before + size > folded:
            return piece + _place_within(text=text[piece : piece + _PIECE], folded=folded - before)
        before += size
    return 0


def _place_within(*, text: str, folded: int) -> int:
    before = 0
    for number, character in enumerate(text):
        before += len(fold(text=character))
        if before > folded:
            return number
    return 0
