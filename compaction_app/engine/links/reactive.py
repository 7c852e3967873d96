"""Reactive compaction (S19): a context that fits, made without more room than there is."""

from __future__ import annotations

from dataclasses import dataclass

from compaction_app.engine.fitting import fit_past
from compaction_app.engine.past import passed_over
from compaction_app.engine.room import room_of
from compaction_app.engine.values import Situation, Step


@dataclass(frozen=True, slots=True)
class ReactiveLink:
    name: str = "reactive"

    def attempt(self, situation: Situation) -> Step:
        """Propose a boundary whose context fits. Raises CompactionRefused: EXCEEDS_WINDOW names what alone does not.

        Where a model is to write, the rounds nearest the limit are peeled off into the kept tail, so that the request
        for the summary has room too.
        """
        found, room = situation.as_found, room_of(situation=situation)
        if room.is_old and room.holds(found.view):
            size = f"{room.size(found.view.tokens):,} tokens of {room.tokens:,}"
            why = f"{_which(found)}; the context now takes about {size}, so it can be sent as it is"
            return passed_over(situation, why)
        # Nobody stands in for the embedded summariser, which asks no model and so has no window of its own.
        return fit_past(
            situation=situation, summarizer=situation.summarizer, by_model=situation.last_resort is not None
        )


def _which(found: Situation) -> str:
    if found.reported is not None and found.reported.tokens is not None:
        return "the request that was refused was made of the context before the last compaction"
    return (
        "nothing was said since the last compaction, and no size was told, so what was refused is taken for the "
        "request before it"
    )


REACTIVE = ReactiveLink()
