"""The text of a memory document (S6): whether it says anything, and what of it goes into a context."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sessions_app.catalog import TokenizerFamily
from sessions_app.transcript.tokens import estimate_text

_HEADING = re.compile(r"^ {0,3}#{1,6}(?:\s|$)")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
# What a template holds where nothing was written yet: a description in italics, or a word that says so.
_HINT = re.compile(r"^(?:[-*+]\s*(?:\[ \]\s*)?)?(?:_[^_].*_|\*[^*].*\*)$")
_NOTHING = re.compile(
    r"^(?:[-*+]\s*)?(?:\[ \]\s*)?[(\[<]?\s*"
    r"(?:none|nothing|n/a|empty|todo|tbd|none recorded|nothing yet|none yet|\.\.\.|…)?"
    r"\s*[)\]>]?[.:]?$",
    re.IGNORECASE,
)
LEFT_OUT = "[… about {tokens:,} tokens of this section left out]"
MARK_TOKENS = 24  # what that line takes


def says_nothing(*, content: str) -> bool:
    """Whether it is empty, or only a template: headings, hints in italics, placeholders."""
    lines = (line.strip() for line in _COMMENT.sub("", content).splitlines())
    return all(not line or line.startswith("#") or _HINT.match(line) or _NOTHING.match(line) for line in lines)


@dataclass(frozen=True, slots=True)
class Section:
    """`heading`: its line, "" for what stands before the first one."""

    heading: str
    body: tuple[str, ...]

    def text(self) -> str:
        return "\n".join(([self.heading] if self.heading else []) + list(self.body))


def fit_sections(*, content: str, most_tokens: int, section_tokens: int, family: TokenizerFamily) -> str:
    """The document in at most `most_tokens`, all headings kept; a section that was cut says how much is left out.

    While all does not fit, no section takes more than `section_tokens`; then all that is over its fair share is cut.
    """
    text = content.strip()
    if _tokens(text, family) <= most_tokens:
        return text
    parts = sections(text)
    limit = section_tokens
    while True:
        shown = "\n".join(_cut(section, limit, family) for section in parts)
        if _tokens(shown, family) <= most_tokens:
            return shown
        if limit <= 1:
            return _headings_only(parts, most_tokens, family)
        limit = limit * 3 // 4


def _headings_only(parts: Sequence[Section], most_tokens: int, family: TokenizerFamily) -> str:
    """Even without a line of text it is too much: as many headings as there is room for."""
    kept: list[str] = []
    for heading in (section.heading for section in parts if section.heading):
        if _tokens("\n".join([*kept, heading]), family) > most_tokens:
            break
        kept.append(heading)
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


def _cut(section: Section, most_tokens: int, family: TokenizerFamily) -> str:
    """Whole lines from the section's begin, in at most about `most_tokens` beside its heading, and the mark."""
    whole = _tokens("\n".join(section.body), family)
    if whole <= most_tokens:
        return section.text()
    kept: list[str] = []
    used, fence = 0, ""
    for line in section.body:
        used += _tokens(line, family) + 1
        if used > most_tokens - MARK_TOKENS:
            break
        match = _FENCE.match(line)
        if match:
            fence = match[1] if not fence else "" if match[1][0] == fence[0] else fence
        kept.append(line)
    left_out = LEFT_OUT.format(tokens=max(whole - _tokens("\n".join(kept), family), 1))
    lines = [*([section.heading] if section.heading else []), *kept, *([fence] if fence else []), left_out]
    return "\n".join(lines)


def _tokens(text: str, family: TokenizerFamily) -> int:
    return estimate_text(text=text, family=family) if text else 0
