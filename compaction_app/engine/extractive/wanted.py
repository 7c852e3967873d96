"""What the person's own instructions name."""

from __future__ import annotations

import re
from dataclasses import dataclass

from compaction_app.engine.extractive.names import NAME
from compaction_app.engine.extractive.text import clean, without_blobs

_WORD = re.compile(r"[A-Za-z][A-Za-z-]{3,}|[\u3040-\u30ff\u3400-\u9fff]{2,}|[\uac00-\ud7af]{2,}")
# Words of instructions that say what to do, not about what.
_STOP = frozenset(
    """about above after again all also always and any anything around because before below between both context
    conversation detail details during each every everything except first focus following from have important include
    information keep know last least leave make mention more most much must need never only other over part please
    preserve relevant remember short should some still such summarize summary sure than that their them then there
    these they thing things this those under until very want what when where which while with without words work would
    your""".split()  # noqa: SIM905
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The names and words of the instructions; empty instructions want nothing."""

    pattern: re.Pattern[str] | None

    @classmethod
    def from_instructions(cls, instructions: str) -> Wanted:
        text = without_blobs(clean(instructions))
        words = dict.fromkeys(name.rstrip(".:/-") for name in NAME.findall(text))
        words.update(dict.fromkeys(word for word in _WORD.findall(text) if word.lower() not in _STOP))
        parts = [rf"(?<![A-Za-z0-9_]){re.escape(word)}(?![A-Za-z0-9_])" for word in words if word]
        return cls(pattern=re.compile("|".join(parts), re.IGNORECASE) if parts else None)

    def matches(self, text: str) -> int:
        """How many different ones of them the text holds."""
        if self.pattern is None:
            return 0
        return len({match.lower() for match in self.pattern.findall(text)})
