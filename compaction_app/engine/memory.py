"""The text of a memory document (S6): whether it says anything, and what of it goes into a context."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sessions_app.catalog import TokenizerFamily
from sessions_app.transcript.tokens import estimate_text

_HEADING = re.compile(r"^ {0,3}#{1,6}(?:\s|$)")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
# No two parts of this can take the same characters: a document comes from anybody, and is read in linear time.
_BULLET = re.compile(r"(?:[-*+]\s*)?(?:\[ \]\s*)?")
_AROUND = "()[]<>.:… "
# What a template holds where nothing was written yet.
_NOTHING = frozenset({"", "none", "nothing", "n/a", "empty", "todo", "tbd", "none recorded", "nothing yet", "none yet"})
LEFT_OUT = "[… about {tokens:,} tokens of this section left out]"
_LEFT_OUT = re.compile(r"\[… about [\d,]+ tokens of this section left out\]")
MARK_TOKENS = 24  # what that line takes
CUT = " …"  # ends a line that was cut


def says_nothing(*, content: str) -> bool:
    """Whether it is empty, or only a template: headings, hints in italics, placeholders, marks of what was left out."""
    return all(_is_empty(line.strip()) for line in _without_comments(content).splitlines())


def _is_empty(line: str) -> bool:
    if line.startswith("#") or not any(map(str.isalnum, line)) or _LEFT_OUT.fullmatch(line):
        return True
    bullet = _BULLET.match(line)
    rest = line[bullet.end() :] if bullet else line
    return _is_hint(line) or _is_hint(rest) or rest.strip(_AROUND).lower() in _NOTHING


def _is_hint(line: str) -> bool:
    """A description in italics."""
    return len(line) > 2 and line[0] in "_*" and line[-1] == line[0] != line[1]


def _without_comments(text: str) -> str:
    kept, at = [], 0
    while (begin := text.find("<!--", at)) >= 0 and (end := text.find("-->", begin + 4)) >= 0:
        kept.append(text[at:begin])
        at = end + 3
    return "".join([*kept, text[at:]])


@dataclass(frozen=True, slots=True)
class Section:
    """`heading`: its line, "" for what stands before the first one."""

    heading: str
    body: tuple[str, ...]

    def text(self) -> str:
        return "\n".join(([self.heading] if self.heading else []) + list(self.body))


@dataclass(frozen=True, slots=True)
class _Sized:
    """A section whose tokens were counted once: of its body as a whole, and of each line with its end."""

    section: Section
    tokens: int
    lines: tuple[int, ...]


def fit_sections(*, content: str, most_tokens: int, section_tokens: int, family: TokenizerFamily) -> str:
    """The document in at most `most_tokens`, all headings kept; a section that was cut says how much is left out.

    While all does not fit, no section takes more than `section_tokens`, or than its fair share where that is more.
    """
    text = content.strip()
    if _tokens(text, family) <= most_tokens:
        return text
    parts = sections(text)
    sized = [_sized(part, family) for part in parts]
    limit = max(section_tokens, most_tokens // max(len(parts), 1))
    while True:
        shown = "\n".join(_cut(one, limit, family) for one in sized)
        if _tokens(shown, family) <= most_tokens:
            return shown
        if limit <= 1:
            return _headings_only(parts, most_tokens, family)
        limit = limit * 3 // 4


def _sized(section: Section, family: TokenizerFamily) -> _Sized:
    return _Sized(
        section=section,
        tokens=_tokens("\n".join(section.body), family),
        lines=tuple(_tokens(line, family) + 1 for line in section.body),
    )


def _headings_only(parts: Sequence[Section], most_tokens: int, family: TokenizerFamily) -> str:
    """Even without a line of text it is too much: as many headings as there is room for."""
    kept: list[str] = []
    left = most_tokens
    for heading in (section.heading for section in parts if section.heading):
        left -= _tokens(heading, family) + 1
        if left < 0:
            break
        kept.append(heading)
    # Parts together may take a little more than the sum of them.
    while kept and _tokens("\n".join(kept), family) > most_tokens:
        kept = kept[: len(kept) * 9 // 10]
    return "\n".join(kept)


def sections(text: str) -> list[Section]:
    """The document's parts, in its order; a heading within a fence is none."""
    found: list[Section] = []
    heading, fence = "", ""
    body: list[str] = []
    for line in text.splitlines():
        match = _FENCE.match(line)
        if match:
            fence = match[1][0] if not fence else "" if match[1][0] == fence else fence
        if not fence and not match and _HEADING.match(line):
            found.append(Section(heading=heading, body=tuple(body)))
            heading, body = line, []
        else:
            body.append(line)
    found.append(Section(heading=heading, body=tuple(body)))
    return [section for section in found if section.heading or any(line.strip() for line in section.body)]


def _cut(sized: _Sized, most_tokens: int, family: TokenizerFamily) -> str:
    """The section's begin, in at most about `most_tokens` beside its heading, and the mark. The last line is cut where
    it is too long as a whole."""
    section = sized.section
    if sized.tokens <= most_tokens:
        return section.text()
    kept: list[str] = []
    left, fence = most_tokens - MARK_TOKENS, ""
    for line, tokens in zip(section.body, sized.lines, strict=True):
        if tokens > left:
            if begin := _begin_of(line, tokens=tokens, most_tokens=left, family=family):
                kept.append(begin)
            break
        left -= tokens
        match = _FENCE.match(line)
        if match:
            fence = match[1] if not fence else "" if match[1][0] == fence[0] else fence
        kept.append(line)
    left_out = LEFT_OUT.format(tokens=max(sized.tokens - _tokens("\n".join(kept), family), 1))
    lines = [*([section.heading] if section.heading else []), *kept, *([fence] if fence else []), left_out]
    return "\n".join(lines)


def _begin_of(line: str, *, tokens: int, most_tokens: int, family: TokenizerFamily) -> str:
    """As much of a line of `tokens` as there is room for, up to the end of a word where there is one near."""
    if _FENCE.match(line):
        return ""
    length = len(line) * most_tokens // tokens
    while length > 0:
        begin = line[:length]
        space = begin.rfind(" ", length // 2)
        begin = (begin[:space] if space > 0 else begin).rstrip() + CUT
        if _tokens(begin, family) < most_tokens:
            return begin
        length = length * 3 // 4
    return ""


def _tokens(text: str, family: TokenizerFamily) -> int:
    return estimate_text(text=text, family=family) if text else 0
