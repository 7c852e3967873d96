"""Which summariser writes. Another provider: one module here, one row in SUMMARIZERS."""

from __future__ import annotations

from collections.abc import Callable

from compaction_app.engine.ports import Summarizer
from compaction_app.llm import extractive

SUMMARIZERS: dict[str, Callable[[], Summarizer]] = {extractive.NAME: extractive.ExtractiveSummarizer}
AUTO = "auto"


def summarizer_name(*, setting: str) -> str:
    """The summariser that a setting stands for. `auto` is the embedded one as long as there is no other."""
    return extractive.NAME if setting == AUTO else setting


def make_summarizer(*, name: str) -> Summarizer:
    """Raises KeyError for a name that no summariser has."""
    return SUMMARIZERS[name]()
