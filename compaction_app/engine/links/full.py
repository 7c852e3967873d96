"""Full compaction (S5): a summary of the whole past, recent rounds verbatim, state restored."""

from __future__ import annotations

from dataclasses import dataclass

from compaction_app.engine.past import replace_past
from compaction_app.engine.values import Situation, Step


@dataclass(frozen=True, slots=True)
class FullLink:
    name: str = "full"

    def attempt(self, situation: Situation) -> Step:
        """Propose a boundary. Raises CompactionRefused when the summary is not acceptable or saves nothing."""
        return replace_past(situation=situation, summarizer=situation.summarizer)


FULL = FullLink()
