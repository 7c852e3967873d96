"""A boundary's summary, section by section."""

from __future__ import annotations

import re
from dataclasses import dataclass

from compaction_app.admin.rendering.blocks import MarkdownBlock, PlainBlock, render_text
from compaction_app.engine.summary import SECTIONS

_HEADING = re.compile(r"^\s{0,3}(?:#{1,4}\s*|\*\*)?\d\.\s+(?P<name>[A-Za-z][A-Za-z ]{2,39})[\s:*]*$")
_NAMES = frozenset(name.casefold() for name in SECTIONS)


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    body: MarkdownBlock | PlainBlock


def summary_sections(text: str) -> list[Section]:
    """The sections by their known names, in the summary's order; what stands before the first is "Opening".

    A summary without any of them is one section.
    """
    parts: list[tuple[str, list[str]]] = [("", [])]
    for line in text.splitlines():
        match = _HEADING.match(line)
        if match and match["name"].strip().casefold() in _NAMES:
            parts.append((match["name"].strip(), []))
        else:
            parts[-1][1].append(line)
    opening = "Opening" if len(parts) > 1 else "Summary"
    bodies = [(name or opening, "\n".join(lines).strip()) for name, lines in parts]
    return [Section(title=title, body=render_text(body)) for title, body in bodies if body]
