"""A look at a summary before somebody accepts it: what it lacks, and what it names that was never said.

No model judges here, and no meaning is compared: headings, words and names are. What is told is where a person should
look, and no measure of how good the summary is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from compaction_app.engine import facts as known
from compaction_app.engine.extractive.names import names_in
from compaction_app.engine.extractive.text import clip, one_line
from compaction_app.engine.summary import SECTIONS, missing_sections
from sessions_app.transcript.messages import Message

MOST_NAMES = 400  # of a summary that are looked for; names beyond are not judged
MOST_TOLD = 50  # names, messages or facts in one list; the counts are of all
MOST_READ = 20_000_000  # characters of the history in which names are looked for, the newest first
QUOTE_CHARS = 200
# What only the provider can read, and what is no text.
_UNREAD = frozenset({"data", "signature", "encrypted_content", "cache_control"})


@dataclass(frozen=True, slots=True)
class Unquoted:
    """A person's message whose first words stand nowhere in the summary."""

    uuid: str
    position: int
    begins: str


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found, in counts and bounded lists.

    `missing_sections`: of the nine; empty where a text is free of them. `unknown_names`: paths, identifiers and numbers
    that the history read does not hold, `names` of them judged. `user_messages`: of the compacted part;
    `unquoted`: those whose words are not in it as they were. `lost`: facts of all that it stands for that it does not
    hold (facts.py). `whole`: whether all of the history was read.
    """

    characters: int
    missing_sections: tuple[str, ...]
    names: int
    unknown_count: int
    unknown_names: tuple[str, ...]
    user_messages: int
    unquoted_count: int
    unquoted: tuple[Unquoted, ...]
    lost: tuple[str, ...]
    whole: bool

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def audit(
    *,
    summary: str,
    has_sections: bool,
    history: Sequence[Message],
    compacted: Sequence[Message],
    instructions: str = "",
    facts: Mapping[str, Any] | None = None,
) -> Audit:
    """Look at `summary`, which is to stand for `compacted`.

    `has_sections`: whether the nine are wanted of it. `history`: all that its writer may have read, oldest first;
    `instructions`: what it was asked to mind, which may name things too. `facts`: of all that it is to stand for, as
    its boundary keeps them. Linear in the history.
    """
    names = names_in(summary)[:MOST_NAMES]
    unknown, whole = _unknown(names, history=history, also=instructions)
    said = one_line(summary)
    prompts = list(known.prompts_in(compacted))
    unquoted = [(message, text) for message, text in prompts if not known.is_told(text=text, said=said)]
    return Audit(
        characters=len(summary),
        missing_sections=tuple(missing_sections(text=summary)) if has_sections else (),
        names=len(names),
        unknown_count=len(unknown),
        unknown_names=tuple(unknown[:MOST_TOLD]),
        user_messages=len(prompts),
        unquoted_count=len(unquoted),
        unquoted=tuple(
            Unquoted(uuid=message.uuid, position=message.position, begins=clip(text, limit=QUOTE_CHARS))
            for message, text in unquoted[:MOST_TOLD]
        ),
        lost=_lost(facts, summary=summary),
        whole=whole,
    )


def _unknown(names: Sequence[str], *, history: Sequence[Message], also: str) -> tuple[list[str], bool]:
    """The names that stand nowhere, in order, and whether all was read before that was said."""
    titles = " ".join(SECTIONS)
    left = dict.fromkeys(name for name in names if name not in also and name not in titles)
    room = MOST_READ
    for message in reversed(history):
        for text in _texts(message.content):
            if not left:
                return [], True
            if room < len(text):
                return list(left), False
            room -= len(text)
            for name in [name for name in left if name in text]:
                del left[name]
    return list(left), True


def _texts(value: Any) -> Iterator[str]:
    """Every text in a content, keys of a tool's input too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            if key not in _UNREAD:
                yield str(key)
                yield from _texts(part)
    elif isinstance(value, Sequence):
        for part in value:
            yield from _texts(part)
    elif value is not None:
        yield str(value)


def _lost(facts: Mapping[str, Any] | None, *, summary: str) -> tuple[str, ...]:
    found = known.lost(facts=known.from_json(facts), text=summary)
    return tuple(clip(one.text, limit=QUOTE_CHARS) for some in found.values() for one in some)[:MOST_TOLD]
