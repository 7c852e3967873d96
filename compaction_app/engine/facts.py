"""What must survive every compaction, in words of the originals: a few lines of each kind, carried from boundary to
boundary.

They are drawn from messages by the same parts that the embedded summariser is made of, and looked for in a summary by
the test that the audit uses. No meaning is compared: what a summary says in other words counts as lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from compaction_app.engine.extractive.commands import ranked_commands
from compaction_app.engine.extractive.errors import failures
from compaction_app.engine.extractive.files import file_records, folder_of, short_path
from compaction_app.engine.extractive.story import Call, Story, tell
from compaction_app.engine.extractive.text import bullet, clean, clip, one_line
from compaction_app.engine.extractive.todos import Todo, todo_state
from sessions_app.catalog import TokenizerFamily
from sessions_app.policy import APPROVAL_TOOLS, Policy
from sessions_app.transcript.file_tools import PLAN_TOOL
from sessions_app.transcript.messages import Message, human_text
from sessions_app.transcript.tokens import estimate_text

BEGIN_CHARS = 60  # of a text, by which it is found again
CUT = " …"  # how a text ends that was cut (extractive/text.py: clip)


class FactKind(StrEnum):
    """ASKED: what a person wrote; ANSWERED: what they answered when they were asked; TODO: what is still open; ERROR:
    what went wrong; FILE: what was changed; COMMAND: what was run."""

    ASKED = "asked"
    ANSWERED = "answered"
    TODO = "todo"
    ERROR = "error"
    FILE = "file"
    COMMAND = "command"


TITLES = {
    FactKind.ASKED: "The person wrote:",
    FactKind.ANSWERED: "The person answered when asked:",
    FactKind.TODO: "Open todos:",
    FactKind.ERROR: "Errors that came up:",
    FactKind.FILE: "Files that were changed:",
    FactKind.COMMAND: "Commands that were run:",
}
# Whose turn it is to place one more while there is room: what a person said takes about half of it.
TURNS = (
    FactKind.ASKED,
    FactKind.ANSWERED,
    FactKind.TODO,
    FactKind.ASKED,
    FactKind.ERROR,
    FactKind.FILE,
    FactKind.ASKED,
    FactKind.COMMAND,
)


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the originals. `position`: of the message that it stands in; `key`: of a task, its number."""

    text: str
    position: int
    key: str = ""


Facts = Mapping[FactKind, tuple[Fact, ...]]
NONE: Facts = dict.fromkeys(FactKind, ())


def collect(*, messages: Sequence[Message], policy: Policy, earlier: Facts = NONE) -> Facts:
    """The facts of these messages (oldest first), each kind by position. `earlier`: of what came before them: todos go
    on from there. Linear in the messages."""
    story = tell(messages=messages, policy=policy)
    most = policy.fact_chars

    def facts(found: Sequence[tuple[int, str]]) -> tuple[Fact, ...]:
        placed = (Fact(text=clip(clean(text), limit=most), position=messages[at].position) for at, text in found)
        return tuple(sorted((one for one in placed if one.text), key=lambda one: one.position))

    return {
        FactKind.ASKED: tuple(
            Fact(text=clip(clean(text), limit=most), position=message.position)
            for message, text in prompts_in(messages)
        ),
        FactKind.ANSWERED: facts([(call.at, call.result or "") for call in story.calls if _is_answer(call)]),
        FactKind.TODO: _todos(story=story, messages=messages, earlier=earlier[FactKind.TODO], most=most),
        FactKind.ERROR: facts(
            [(one.at, one.lines[0]) for one in failures(story.calls, reaction_calls=policy.extract_reaction_calls)]
        ),
        FactKind.FILE: facts(
            [(one.last_at, one.path) for one in file_records(story.calls) if one.is_changed and len(one.path) <= most]
        ),
        FactKind.COMMAND: facts(_commands(story=story, policy=policy)),
    }


def prompts_in(messages: Sequence[Message]) -> Iterator[tuple[Message, str]]:
    """Each message that a person wrote, and what they wrote, on one line."""
    for message in messages:
        if text := one_line(human_text(message)):
            yield message, text


def _is_answer(call: Call) -> bool:
    """Not of a plan: that is in the call, and what comes back is the client's own words."""
    return call.name in APPROVAL_TOOLS and call.name != PLAN_TOOL and bool(call.result) and not call.is_error


def _todos(*, story: Story, messages: Sequence[Message], earlier: Sequence[Fact], most: int) -> tuple[Fact, ...]:
    """What is open now: a state, so the earlier one goes on, and what is not in it any more is done."""
    known = [Todo(text=fact.text, status="pending", key=fact.key) for fact in earlier]
    places = {fact.text: fact.position for fact in earlier}
    newest = messages[-1].position if messages else 0
    texts = [(clip(one.text, limit=most), one.key) for one in todo_state(story.calls, known=known).items if one.is_open]
    return tuple(Fact(text=text, position=places.get(text, newest), key=key) for text, key in texts)


def _commands(*, story: Story, policy: Policy) -> list[tuple[int, str]]:
    """Those of one line that need no cut: a command is of use to the letter only."""
    last = {call.command: call.at for call in story.calls}
    ranked = ranked_commands(calls=story.calls, length=story.length, policy=policy)
    return [(last[one], one) for one in ranked if len(one) <= policy.fact_chars and one_line(one) == one]


def merge(*, earlier: Facts, newer: Facts, most_tokens: int, family: TokenizerFamily) -> Facts:
    """Both, in at most `most_tokens` as lines: of each kind the newest stay, of a person's words the very first too,
    and no kind crowds out another. Todos are those of `newer`, which was collected with the earlier ones in mind."""
    waiting = {kind: deque(_ranked(kind, earlier=earlier[kind], newer=newer[kind])) for kind in FactKind}
    kept: dict[FactKind, list[Fact]] = {kind: [] for kind in FactKind}
    left = most_tokens
    order: list[FactKind] = []
    while any(waiting.values()) and left > 0:
        for kind in TURNS:
            if not waiting[kind]:
                continue
            fact = waiting[kind].popleft()
            line = bullet(fact.text) + "\n"
            cost = estimate_text(text=line if kept[kind] else f"{TITLES[kind]}\n{line}", family=family)
            if cost <= left:
                kept[kind].append(fact)
                order.append(kind)
                left -= cost
    # Each line's estimate is rounded, so all of them together may come to a little more.
    while order and estimate_text(text="\n".join(as_lines(_in_order(kept))), family=family) > most_tokens:
        kept[order.pop()].pop()
    return _in_order(kept)


def _in_order(kept: Mapping[FactKind, Sequence[Fact]]) -> Facts:
    return {kind: tuple(sorted(some, key=lambda fact: fact.position)) for kind, some in kept.items()}


def _ranked(kind: FactKind, *, earlier: Sequence[Fact], newer: Sequence[Fact]) -> list[Fact]:
    """Each text once, the most worthy first."""
    if kind is FactKind.TODO:
        return list(newer)
    facts = sorted((*earlier, *newer), key=lambda fact: -fact.position)
    if kind is FactKind.ASKED:
        facts = [*facts[-1:], *facts[:-1]]
    found: dict[str, Fact] = {}
    for fact in facts:
        found.setdefault(fact.text, fact)
    return list(found.values())


def lost(*, facts: Facts, text: str) -> Facts:
    """Those that a summary does not hold."""
    said = one_line(text)
    return {kind: tuple(one for one in some if not _holds(said, kind, one.text)) for kind, some in facts.items()}


def _holds(said: str, kind: FactKind, text: str) -> bool:
    if kind is FactKind.FILE:
        base = text.rpartition("/")[2]
        both = folder_of(text) in said and is_told(text=base, said=said)
        return both or is_told(text=short_path(text), said=said)
    return is_told(text=text, said=said, whole=kind is FactKind.COMMAND)


def is_told(*, text: str, said: str, whole: bool = False) -> bool:
    """Whether `said` holds the first words of `text`, or all of it where that is `whole` or short; both on one line."""
    given = text.removesuffix(CUT)
    wanted = given if whole else given[:BEGIN_CHARS].rstrip()
    at = said.find(wanted)
    while at >= 0:
        end = at + len(wanted)
        # "step 12" does not tell of "step 1". What was cut may go on.
        if wanted != text or not (_goes_on(wanted[-1:]) and _goes_on(said[end : end + 1])):
            return True
        at = said.find(wanted, at + 1)
    return False


def _goes_on(character: str) -> bool:
    return character.isascii() and character.isalnum()


def as_lines(facts: Facts) -> tuple[str, ...]:
    """For a prompt: each kind under its title, one line for each fact. Not escaped."""
    return tuple(
        line for kind in FactKind if facts[kind] for line in (TITLES[kind], *(bullet(one.text) for one in facts[kind]))
    )


def as_json(facts: Facts) -> dict[str, Any]:
    """As a boundary keeps them: every kind by its name, so that none found differs from none looked for."""
    return {
        kind.value: [
            {"text": one.text, "position": one.position, **({"key": one.key} if one.key else {})} for one in facts[kind]
        ]
        for kind in FactKind
    }


def is_kept(stored: object) -> bool:
    """Whether a boundary carries facts at all; one without any was written before there were some, or elsewhere."""
    return isinstance(stored, Mapping) and any(kind.value in stored for kind in FactKind)


def from_json(stored: object) -> Facts:
    """What `as_json` gave. Whatever else stands there is left out: a boundary may come from somebody's file."""
    told = stored if isinstance(stored, Mapping) else {}
    return {kind: tuple(_read(told.get(kind.value))) for kind in FactKind}


def _read(rows: object) -> Iterator[Fact]:
    for row in rows if isinstance(rows, Sequence) and not isinstance(rows, str) else ():
        text, position, key = (
            row.get(name) if isinstance(row, Mapping) else None for name in ("text", "position", "key")
        )
        if isinstance(text, str) and text.strip() and isinstance(position, int) and not isinstance(position, bool):
            yield Fact(text=one_line(clean(text)), position=position, key=key if isinstance(key, str) else "")
