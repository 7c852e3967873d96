"""The acceptance gate: what a summary must be before anything is stored (decision 10)."""

from __future__ import annotations

import re

from compaction_app.engine.outcome import CompactionRefused, FailureReason

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
_FENCED = re.compile(r"^(`{3,}|~{3,})[^\n]*\n.*?^\1[`~]*[ \t]*$", flags=re.MULTILINE | re.DOTALL)


def missing_sections(*, text: str) -> list[str]:
    """Sections whose heading is not there. A heading that is only quoted, in a fence, is none."""
    found = set(re.findall(r"^#{1,4} *(\d)\. ", _FENCED.sub("", text), flags=re.MULTILINE))
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
