"""Plain text made safe to look at: hidden characters shown, terminal escapes coloured or dropped, long text folded."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

HEAD_LINES, HEAD_CHARS = 40, 4_000  # of a long text these are shown; the rest is folded
MOST_CHARS = 60_000  # of one block on a page; the message's raw view has it whole

# Characters that change how text is displayed without being seen, and what no UTF-8 page can carry.
_HIDDEN = re.compile(
    "[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c"  # direction
    "\u200b\u2060\ufeff\U000e0000-\U000e007f"  # no width at all; ZWJ stays, emoji are made with it
    "\ud800-\udfff\x00-\x08\x0b-\x1f\x7f-\x9f]"
)

_ESCAPE_SEQUENCE = re.compile(
    r"\x1b\[([0-9;:?<=>]*)[ -/]*([@-~])"  # CSI: colours, cursor, modes
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC and other strings, where they end: titles, hyperlinks
    r"|\x1b[ -/]*[0-~]?"  # everything else that an ESC begins
)
_NAMES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


def visible(text: str) -> str:
    """The text with bidi controls, control characters and lone surrogates spelled out. Newline and tab stay."""
    return _HIDDEN.sub(_spell, text.replace("\r\n", "\n"))


def _spell(match: re.Match[str]) -> str:
    return f"⟦U+{ord(match[0]):04X}⟧"


def has_escapes(text: str) -> bool:
    return "\x1b" in text


def without_escapes(text: str) -> str:
    return _ESCAPE_SEQUENCE.sub("", text)


def one_line(text: str, *, limit: int) -> str:
    """The first line that says something, cut to `limit` characters."""
    line = next((line.strip() for line in without_escapes(text[: limit * 20]).splitlines() if line.strip()), "")
    shown = visible(line)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def terminal_html(text: str) -> SafeString:
    """Terminal output: basic colours and bold as classes, other escape sequences dropped, the rest escaped."""
    parts: list[str] = []
    style = _Style()
    start = 0
    for match in _ESCAPE_SEQUENCE.finditer(text):
        parts.append(style.wrap(text[start : match.start()]))
        start = match.end()
        if match[2] == "m":
            style = style.after(match[1])
    parts.append(style.wrap(text[start:]))
    return mark_safe("".join(parts))  # noqa: S308  each part is escaped by wrap()


@dataclass(frozen=True, slots=True)
class _Style:
    colour: str = ""
    bold: bool = False

    def wrap(self, text: str) -> str:
        shown = str(escape(visible(text)))
        classes = [f"ca-ansi-{self.colour}"] * bool(self.colour) + ["ca-ansi-bold"] * self.bold
        return f'<span class="{" ".join(classes)}">{shown}</span>' if shown and classes else shown

    def after(self, parameters: str) -> _Style:
        """The style once an SGR sequence was read. Extended colours (38;5;n) are passed over."""
        colour, bold = self.colour, self.bold
        codes = [int(code) if code.isdigit() and len(code) < 4 else 0 for code in parameters.split(";")]
        if {38, 48} & set(codes):
            return self
        for code in codes:
            if code == 0:
                colour, bold = "", False
            elif code in (1, 22):
                bold = code == 1
            elif code == 39:
                colour = ""
            elif 30 <= code <= 37 or 90 <= code <= 97:
                colour = _NAMES[code % 10]
        return _Style(colour=colour, bold=bold)


@dataclass(frozen=True, slots=True)
class Fold:
    """A text in two parts: what is shown at once, and what is folded (empty when it is short)."""

    head: SafeString
    rest: SafeString
    size: str
    cut_chars: int = 0


def fold(text: str) -> Fold:
    """`text` as terminal output, folded after its first lines, cut where a page could not hold it."""
    kept = text[:MOST_CHARS].replace("\r\n", "\n").replace("\r", "\n")
    head = _head(kept)
    return Fold(
        head=terminal_html(head),
        rest=terminal_html(kept[len(head) :]),
        size=size_text(text),
        cut_chars=max(len(text) - MOST_CHARS, 0),
    )


def _head(text: str) -> str:
    lines = text.splitlines(keepends=True)
    # A few lines more than the limit are not worth a click.
    if len(lines) <= HEAD_LINES + 5 and len(text) <= HEAD_CHARS * 5 // 4:
        return text
    return "".join(lines[:HEAD_LINES])[:HEAD_CHARS]


def size_text(text: str) -> str:
    lines = text.count("\n") + 1
    return f"{lines:,} line{'' if lines == 1 else 's'}, {bytes_text(len(text))}"


def bytes_text(count: int) -> str:
    if count < 1_000:
        return f"{count} bytes"
    return f"{count / 1_000:.1f} KB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


def pretty_json(value: object) -> str:
    """Indented JSON; a value that has no JSON (never stored, but nothing here may raise) as its repr."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=2)
    except (TypeError, ValueError, RecursionError):
        return repr(value)
