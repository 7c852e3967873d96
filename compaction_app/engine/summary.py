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


def missing_sections(*, text: str) -> list[str]:
    found = set(re.findall(r"^#{1,4} *(\d)\. ", text, flags=re.MULTILINE))
    return [name for number, name in enumerate(SECTIONS, start=1) if str(number) not in found]


def check_summary(*, text: str) -> None:
    """Raises CompactionRefused (no_summary) for a blank text or one without its sections."""
    if not text.strip():
        raise CompactionRefused(reason=FailureReason.NO_SUMMARY, detail="the summariser gave no text")
    missing = missing_sections(text=text)
    if missing:
        raise CompactionRefused(
            reason=FailureReason.NO_SUMMARY, detail=f"the summary lacks sections: {', '.join(missing)}"
        )
