"""The acceptance gate: what a summary must be before anything is stored (decision 10)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from compaction_app.engine.outcome import CompactionRefused, FailureReason
from compaction_app.engine.ports import Completion

SECTIONS = (
    "Primary Request and Intent",
    "Key Technical Concepts",
    "Files and Code Sections",
    "Errors and Fixes",
    "Problem Solving",
    "All User Messages",
    "Pending Tasks",
    "Current Work",
    "Optional Next Step",
)


def heading(number: int) -> str:
    """The Markdown heading of section `number`, 1 to 9."""
    return f"## {number}. {SECTIONS[number - 1]}"


EMPTY_SECTION = "(none recorded)"
_OURS = re.compile(r"#{1,4} *(\d)\. ")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_ANALYSIS_END = re.compile(r"</\s*analysis\s*>", re.IGNORECASE)
_ANALYSIS = re.compile(r"<\s*analysis\s*>", re.IGNORECASE)
_SUMMARY = re.compile(r"<\s*summary\s*>", re.IGNORECASE)
_SUMMARY_END = re.compile(r"</\s*summary\s*>", re.IGNORECASE)
_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]*(.+)$")
_BOLD = re.compile(r"^ {0,3}\*\*([^*\n]{1,140})\*\*[ \t]*[:：]?[ \t]*(.*)$")
_PLAIN = re.compile(r"^(\S.{0,119})()$")
_TITLED = re.compile(rf"^(\d[ \t]*[.)、．。][ \t]*(?:{'|'.join(SECTIONS)}))[ \t]*[:：][ \t]*(\S.*)$", re.IGNORECASE)
# A number of a section, and never that of a subsection ("3.1") or a time.
_NUMBERED = re.compile(r"^(?:section[ \t]+|[(（])?(\d)[ \t]*[.)、．。:：）\-–—|](?!\d)[ \t]*(.*)$", re.IGNORECASE)
_BARE_NUMBER = re.compile(r"^(?:section[ \t]+)?(\d)(?:[ \t]+(.*))?$", re.IGNORECASE)
_TITLES = {name.casefold(): number for number, name in enumerate(SECTIONS, start=1)}
# Tags that a text quotes are tried too, but no more of them than this from either end.
MOST_TAGS = 3


def missing_sections(*, text: str) -> list[str]:
    """Sections whose heading is not there. A heading that is only quoted, in a fence, is none."""
    found = {match[1] for match in (_OURS.match(line) for _, line in _unfenced(text)) if match}
    return [name for number, name in enumerate(SECTIONS, start=1) if str(number) not in found]


def says_nothing(*, text: str) -> bool:
    """Whether there is no line beside headings and empty sections."""
    lines = (line.strip() for line in text.splitlines())
    return all(not line or line.startswith("#") or line == EMPTY_SECTION for line in lines)


def check_summary(*, text: str) -> None:
    """Raises CompactionRefused (no_summary) for a text that says nothing, or lacks its sections."""
    if says_nothing(text=text):
        raise CompactionRefused(reason=FailureReason.NO_SUMMARY, detail="the summariser gave no text")
    missing = missing_sections(text=text)
    if missing:
        raise CompactionRefused(
            reason=FailureReason.NO_SUMMARY, detail=f"the summary lacks sections: {', '.join(missing)}"
        )


def accepted(*, completion: Completion) -> str:
    """The summary that a model's response holds, in our own form. Raises CompactionRefused.

    TRUNCATED, REFUSED: by its stop reason; NO_SUMMARY: no text, a tool call, or sections missing.
    """
    stopped = completion.stop_reason
    if stopped in (None, "max_tokens"):
        how = "the stream ended before the response did" if stopped is None else "it reached its longest output"
        raise CompactionRefused(reason=FailureReason.TRUNCATED, detail=f"the model's summary is cut off: {how}")
    if stopped == "refusal":
        raise CompactionRefused(reason=FailureReason.REFUSED, detail="the model refused to write a summary")
    if stopped == "tool_use" or "tool_use" in completion.blocks:
        detail = "the model called a tool instead of writing a summary"
        raise CompactionRefused(reason=FailureReason.NO_SUMMARY, detail=detail)
    if not completion.text.strip():
        only = " only thinking" if any("thinking" in kind for kind in completion.blocks) else " no text"
        detail = f"the model gave{only} (stop reason {stopped})"
        raise CompactionRefused(reason=FailureReason.NO_SUMMARY, detail=detail)
    text = parse_summary(text=completion.text)
    check_summary(text=text)
    return text


def parse_summary(*, text: str) -> str:
    """What a model wrote as nine sections under our headings, in their order, its analysis left out.

    Headings are recognised by number or title, in whatever style; a section that is not there stays away, so that
    `check_summary` names it. A section that comes twice is joined.
    """
    body, found = _body(text)
    if not found:
        return body.strip()
    parts: dict[int, list[str]] = {}
    lines = body.splitlines()
    for place, one in enumerate(found):
        end = found[place + 1].line if place + 1 < len(found) else len(lines)
        parts.setdefault(one.number, []).append(_closed("\n".join([one.rest, *lines[one.line + 1 : end]]).strip("\n")))
    rendered = []
    for number in sorted(parts):
        said = "\n".join(part for part in parts[number] if part.strip())
        rendered.append(f"{heading(number)}\n{said.rstrip() or EMPTY_SECTION}")
    return "\n\n".join(rendered)


@dataclass(frozen=True, slots=True)
class _Heading:
    """The heading of a section; `rest`: what stands behind it on its line, and belongs to the section."""

    line: int
    number: int
    rest: str = ""


def _body(text: str) -> tuple[str, list[_Heading]]:
    """The part of the text that is the summary, with its headings: the first candidate that has all sections, else the
    one that has most. A summary may quote the tags that it stands in, so a tag alone does not tell."""
    best: tuple[str, list[_Heading]] = ("", [])
    most = -1
    for candidate in _candidates(text):
        found = _sections(candidate)
        count = len({one.number for one in found})
        if count > most:
            best, most = (candidate, found), count
        if count == len(SECTIONS):
            break
    return best


def _candidates(text: str) -> Iterator[str]:
    """What may be the summary, the likeliest first: the last `<summary>` behind the last analysis, then what is behind
    the analysis, then the same for earlier tags."""
    ends = [match.end() for match in _ANALYSIS_END.finditer(text)]
    for begin in _few(ends) or [0]:
        behind = text[begin:]
        closed = [match.start() for match in _SUMMARY_END.finditer(behind)]
        for opened in _few([match.end() for match in _SUMMARY.finditer(behind)]):
            yield behind[opened : closed[-1]] if closed and closed[-1] >= opened else behind[opened:]
        if ends or not _ANALYSIS.search(text):
            yield behind
    if not ends and (begun := _ANALYSIS.search(text)):
        # An analysis that never ends: what comes from the first section's heading on is the summary.
        rest = text[begun.end() :]
        first = next((one.line for one in _sections(rest) if one.number == 1), None)
        yield "" if first is None else "\n".join(rest.splitlines()[first:])


def _few(places: list[int]) -> list[int]:
    """The last ones, then the first ones; the last first."""
    newest = places[::-1]
    return newest if len(newest) <= 2 * MOST_TAGS else newest[:MOST_TAGS] + newest[-MOST_TAGS:]


def _sections(text: str) -> list[_Heading]:
    """Each heading of a section, in order: of the first style that gives all nine, else of the one that gives most."""
    lines = list(_unfenced(text))
    styles = [
        _by_heading(lines),
        _by_style(lines, _BOLD, closing=":： \t"),
        _by_style(lines, _TITLED),
        _by_style(lines, _PLAIN, titled=True),
    ]
    return max(styles, key=lambda found: len({one.number for one in found}))


def _by_heading(lines: list[tuple[int, str]]) -> list[_Heading]:
    """Markdown headings down to the level that has most sections: deeper ones belong to a section's text."""
    levels: dict[int, list[_Heading]] = {}
    for index, line in lines:
        match = _HEADING.match(line)
        number = _number(match[2].rstrip(" \t#").strip("* "), bare=True) if match else None
        if match and number:
            levels.setdefault(len(match[1]), []).append(_Heading(line=index, number=number))
    most = max(sorted(levels), key=lambda level: len({one.number for one in levels[level]}), default=0)
    found = [one for level, headings in levels.items() if level <= most for one in headings]
    return sorted(found, key=lambda one: one.line)


def _by_style(
    lines: list[tuple[int, str]], style: re.Pattern[str], *, titled: bool = False, closing: str = ""
) -> list[_Heading]:
    """`titled`: only with the section's own title, or a colon at the end, because lists are numbered too. So does a
    line that goes on behind its heading. `closing`: characters that end a heading and are none of it."""
    found = []
    for index, line in lines:
        match = style.match(line.rstrip(" \t"))
        text = match[1].strip(" \t").rstrip(closing) if match else ""
        number = _number(text)
        if match and number and (not (titled or match[2]) or _is_titled(text, number)):
            found.append(_Heading(line=index, number=number, rest=match[2]))
    return found


def _is_titled(text: str, number: int) -> bool:
    plain = unicodedata.normalize("NFKC", text).rstrip().casefold()
    return SECTIONS[number - 1].casefold() in plain or (plain.endswith(":") and len(plain) < len("1. ") + 40)


def _number(text: str, *, bare: bool = False) -> int | None:
    """The section that a heading names: by its title, else by its number in any script's digits. `bare`: also by a
    number with nothing behind it."""
    digits = "".join(str(unicodedata.decimal(char)) if char.isdecimal() else char for char in text[:40]) + text[40:]
    match = _NUMBERED.match(digits) or (_BARE_NUMBER.match(digits) if bare else None)
    named = _TITLES.get(((match[2] or "") if match else text).strip(" :：*").casefold())
    if named or match is None:
        return named
    return int(match[1]) if 1 <= int(match[1]) <= len(SECTIONS) else None


def _unfenced(text: str) -> Iterator[tuple[int, str]]:
    """The lines outside of code fences, with their numbers. A fence that never closes hides nothing."""
    fence = ""
    held: list[tuple[int, str]] = []
    for index, line in enumerate(text.splitlines()):
        match = _FENCE.match(line)
        if fence:
            held.append((index, line))
            if _closes(match, line, fence):
                fence, held = "", []
        elif match:
            fence, held = match[1], []
        else:
            yield index, line
    yield from held


def _closes(match: re.Match[str] | None, line: str, fence: str) -> bool:
    return match is not None and match[1][0] == fence[0] and len(match[1]) >= len(fence) and not line.strip(" \t`~")


def _closed(part: str) -> str:
    """The part with its last fence closed: an open one would hide the headings that come to stand behind it."""
    fence = ""
    for line in part.splitlines():
        match = _FENCE.match(line)
        if fence:
            fence = "" if _closes(match, line, fence) else fence
        elif match:
            fence = match[1]
    return f"{part}\n{fence}" if fence else part
