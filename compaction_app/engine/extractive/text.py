"""Handling of transcript text: cleaning, cutting between words, fencing, sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator

# NUL and lone surrogates can be neither stored nor sent as UTF-8.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# Terminal control sequences (ECMA-48 CSI and OSC) and the remaining control characters but tab and newline.
_TERMINAL = re.compile(
    r"(?:\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])|[\x01-\x08\x0b-\x1f\x7f])+"
)
_WORD_CHARACTER = re.compile(r"[\w./:@+-]")
_HEADING = re.compile(r"^\s{0,3}#{1,6}(?:\s|$)")
_SECTION = re.compile(r"^[^\S\n]*(?:#\s*\d+\.|#{2,6})\s", re.MULTILINE)
_FENCE_RUN = re.compile(r"`{3,}")
# Scripts without spaces between words: kana, Han, full-width forms. Hangul is spaced.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_STOPS = "。！？；，、：」』）"
# Where a text may be cut, best kind first: after a sentence or line, after a clause, between unspaced characters.
_SENTENCE_CUT = re.compile(r"(?<=[.!?])(?=\s)|(?<=[。！？])|(?=\n)")
_WORD_CUT = re.compile(rf"(?=\s)|(?<=[{_STOPS}])")
_UNSPACED_CUT = re.compile(rf"(?<=[{_UNSPACED}])(?=[{_UNSPACED}])")
_SENTENCE = re.compile(r"[^\n。！？]*?(?:[.!?](?=\s|$)|[。！？]+|\n|$)")
# A sentence cut is preferred when it keeps at least this part of what could be kept.
_KEEPS_ENOUGH = 0.75


# Encoded data: no word, name or path is that long, and searching it would take time quadratic in its length.
_BLOB = re.compile(r"[!-~]{500,}")
BLOB_MARK = "[…]"


def without_blobs(text: str) -> str:
    """The text with unbroken runs of 500 and more ASCII characters replaced by a mark."""
    return _BLOB.sub(BLOB_MARK, text)


def clean(text: str) -> str:
    """The text with NUL and lone surrogates replaced by U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def plain(text: str) -> str:
    """Cleaned text without terminal control sequences, as a person saw it on the screen."""
    text = clean(text).replace("\r\n", "\n").replace("\r", "\n")
    return _TERMINAL.sub(_gap, text) if _TERMINAL.search(text) else text


def _gap(match: re.Match[str]) -> str:
    """A blank where a control sequence stood inside a word: two halves must not become a name that never was."""
    before, after = match.string[match.start() - 1 : match.start()], match.string[match.end() : match.end() + 1]
    return " " if _WORD_CHARACTER.match(before) and _WORD_CHARACTER.match(after) else ""


def bounded(text: str, *, head: int, tail: int) -> str:
    """At most the first `head` and last `tail` characters, in whole lines where a line fits; bounds the work."""
    if len(text) <= head + tail:
        return text
    first = text[:head]
    last = text[len(text) - tail :] if tail else ""
    first = first[: first.rfind("\n")] if "\n" in first else prefix(first, limit=head - 1)
    last = last[last.find("\n") + 1 :] if "\n" in last else ""
    return f"{first}\n{last}" if last else first


def prefix(text: str, *, limit: int) -> str:
    """The longest exact beginning of at most `limit` characters that ends between words; may be empty.

    Sentence ends are preferred, then blanks, then gaps between characters of scripts without spaces. Anything else
    (a path, a number, an identifier, an emoji sequence) stays whole.
    """
    if len(text) <= limit:
        return text
    if limit <= 0:
        return ""
    window = text[: limit + 1]
    ends = [_last(pattern, window, limit) for pattern in (_SENTENCE_CUT, _WORD_CUT, _UNSPACED_CUT)]
    if ends[0] >= limit * _KEEPS_ENOUGH:
        return window[: ends[0]].rstrip()
    return window[: max(ends)].rstrip()


def _last(pattern: re.Pattern[str], text: str, limit: int) -> int:
    """The last place, at most `limit`, where the pattern finds a cut; searched in growing windows from the end."""
    size = 64
    while True:
        start = max(0, limit - size)
        found = [m.start() for m in pattern.finditer(text, start) if 0 < m.start() <= limit]
        if found or start == 0:
            return found[-1] if found else 0
        size *= 8


def one_line(text: str) -> str:
    """Line breaks and runs of blanks folded to one blank."""
    return " ".join(text.split())


def clip(text: str, *, limit: int) -> str:
    """One line of at most `limit` characters; a cut is marked."""
    line = one_line(text)
    return line if len(line) <= limit else f"{prefix(line, limit=limit)} …".lstrip()


def fence(text: str) -> str:
    """The text between fences longer than any run of backticks in it, so that nothing inside can end it."""
    longest = max((len(run) for run in _FENCE_RUN.findall(text)), default=2)
    bar = "`" * (longest + 1)
    return f"{bar}\n{text}\n{bar}"


def looks_like_heading(line: str) -> bool:
    return _HEADING.match(line) is not None


def poses_as_section(text: str) -> bool:
    """Whether a line of the text could be taken for one of the summary's own headings, even inside a fence."""
    return _SECTION.search(text) is not None


def bullet(text: str) -> str:
    """A list item for one line of text; the marker keeps it from being read as a heading."""
    return f"- {text}"


def plain_line(text: str) -> bool:
    """Whether a text can stand in a list item with every character as it is: one printable line without fences."""
    return text.isprintable() and text == text.strip() and "```" not in text and not looks_like_heading(text)


def sentences(text: str) -> Iterator[str]:
    """The sentences of a prose text; Chinese and Japanese stops need no blank after them."""
    for match in _SENTENCE.finditer(text):
        sentence = match.group().strip()
        if sentence:
            yield sentence


def rough_size(count: int) -> str:
    """A count in words rather than digits, so that no figure enters the summary that the history doesn't hold."""
    for unit, word in ((1_000_000, "million"), (1_000, "thousand"), (100, "hundred")):
        if count >= unit:
            return f"about {min(99, max(1, round(count / unit)))} {word}"
    return str(count)
