"""Which summariser writes. Another one: one module here, one row in SUMMARIZERS or in MODELS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from compaction_app.engine.model_summary import native
from compaction_app.engine.model_summary.calls import CallBook
from compaction_app.engine.model_summary.summarizer import ModelSummarizer
from compaction_app.engine.ports import Summarizer
from compaction_app.llm import extractive
from compaction_app.llm.anthropic_messages import AnthropicModel
from sessions_app.catalog import ModelInfo

AUTO, ANTHROPIC = "auto", "anthropic"
CHOICES = (AUTO, ANTHROPIC, native.NAME, extractive.NAME)
LAST_RESORT = extractive.NAME


@dataclass(frozen=True, slots=True)
class Outside:
    """What a summariser that calls a model needs: where calls are kept, and which model ("": the session's own).

    `can_compact(model)`: False where it is known to have no compaction of the provider's.
    """

    calls: CallBook
    override_model: str
    limits_of: Callable[[str], ModelInfo]
    now: Callable[[], datetime]
    can_compact: Callable[[str], bool] = lambda model: True


def _anthropic(outside: Outside) -> ModelSummarizer:
    return ModelSummarizer(
        model=AnthropicModel(),
        calls=outside.calls,
        name=ANTHROPIC,
        override_model=outside.override_model,
        limits_of=outside.limits_of,
        now=outside.now,
    )


def _native(outside: Outside) -> Summarizer:
    return native.NativeSummarizer(own=_anthropic(outside), can_compact=outside.can_compact)


# Those that need nothing from outside, and those that call a model.
SUMMARIZERS: dict[str, Callable[[], Summarizer]] = {extractive.NAME: extractive.ExtractiveSummarizer}
MODELS: dict[str, Callable[[Outside], Summarizer]] = {ANTHROPIC: _anthropic, native.NAME: _native}


def summarizer_name(*, setting: str, key_set: bool) -> str:
    """The summariser that a setting stands for. `auto`: the API where there is a key for it, else the embedded one."""
    if setting != AUTO:
        return setting
    return ANTHROPIC if key_set else extractive.NAME


def as_text(*, name: str) -> str:
    """Who writes in place of the summariser `name` where a block of the provider's will not do."""
    return ANTHROPIC if name == native.NAME else name


def make_summarizer(*, name: str, outside: Outside) -> Summarizer:
    """Raises KeyError for a name that no summariser has."""
    return MODELS[name](outside) if name in MODELS else SUMMARIZERS[name]()


def make_last_resort(*, name: str) -> Summarizer | None:
    """Who writes where the summariser `name` has failed; None where it is that one itself."""
    return None if name == LAST_RESORT else SUMMARIZERS[LAST_RESORT]()
