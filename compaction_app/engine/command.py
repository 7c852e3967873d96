"""`/compact …` as a person types it: read here once, for every interface (S19)."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum

WORD = "/compact"
LONGEST_INSTRUCTIONS = 16_384  # characters
LONGEST_UUID = 128  # characters; the column that holds a message's uuid
QUOTED = "Where it is meant as a word of the instructions, put it in quotes."
TWO_SCOPES = f"The command has two scopes: give one of up_to: and from:, once. {QUOTED}"
LATE_SCOPE = f"A scope (up_to: or from:) comes first, before the instructions. {QUOTED}"
NO_SCOPE = (
    "The command begins like a scope, but a scope is written up_to:UUID or from:UUID, with no space and nothing else "
    "around it. Where instructions are meant, begin them with another word."
)
OTHER_COMMAND = f"This is no command that is known here: {WORD} is, and words alone are instructions."
_COMMAND = re.compile(r"/[\w-]+")
_SCOPE = re.compile(r"(up_to|from):(.*)", re.IGNORECASE | re.DOTALL)
# What people write for a scope; "until" because it is what "up to" means.
_NAMES_OF_SCOPES = {"upto", "until", "from"}
_NAME_ALONE = {"up_to", "up-to", "upto"}
# The second is what a text field makes of the first.
_DASHES = ("--", "\u2014")


class CommandError(ValueError):
    """The command can't be read; the message says what is wrong, and quotes nothing of it."""


class Scope(StrEnum):
    """Which part of the history. UP_TO: what is before the message; FROM: the message and what follows (S7)."""

    WHOLE = "whole"
    UP_TO = "up_to"
    FROM = "from"


@dataclass(frozen=True, slots=True)
class CompactCommand:
    """`uuid`: the client's own name of the message that the scope hangs on; "" for the whole."""

    scope: Scope = Scope.WHOLE
    uuid: str = ""
    instructions: str = ""


def parse_command(text: str) -> CompactCommand:
    """`/compact [up_to:UUID | from:UUID] [instructions]`, as a client passes it on. Raises CommandError.

    Whatever doesn't begin with the word `/compact` is refused. So is a scope that is not its first word, and a first
    word that only looks like a scope: a typo must not cost a compaction of the whole. Instructions are kept as they
    are but for the space around them.
    """
    _check_storable(text)
    word, rest = _first(text)
    if word.lower() != WORD:
        raise CommandError(f"A command begins with {WORD}; what a summary should mind alone is no command.")
    return _read(rest)


def parse_typed(text: str) -> CompactCommand:
    """The same where nothing but a compaction can be asked for: its word may be left out. Raises CommandError.

    Another command in its place is refused, so that a mistyped one is not taken for instructions; a path with more
    than one part, or with a dot, is no command.
    """
    _check_storable(text)
    word, rest = _first(text)
    if word.lower() == WORD:
        return _read(rest)
    if _COMMAND.fullmatch(word):
        raise CommandError(OTHER_COMMAND)
    return _read(text.strip())


def _read(text: str) -> CompactCommand:
    """What stands behind the word."""
    scope, uuid, rest = _scope(text)
    if _has_scope(rest, is_second=bool(uuid)):
        raise CommandError(TWO_SCOPES if uuid else LATE_SCOPE)
    if len(rest) > LONGEST_INSTRUCTIONS:
        raise CommandError(f"The instructions are longer than {LONGEST_INSTRUCTIONS:,} characters.")
    return CompactCommand(scope=scope, uuid=uuid, instructions=rest)


def _scope(text: str) -> tuple[Scope, str, str]:
    """The scope, its uuid, and what comes after them."""
    word, rest = _first(text)
    found = _SCOPE.fullmatch(word)
    if found is None:
        if _looks_like_scope(word, rest):
            raise CommandError(NO_SCOPE)
        return Scope.WHOLE, "", text
    scope, uuid = Scope(found[1].lower()), found[2]
    if not uuid:
        raise CommandError(f"A message's uuid is missing right after {scope.value}: (without a space between).")
    if len(uuid) > LONGEST_UUID:
        raise CommandError(f"The uuid after {scope.value}: is longer than {LONGEST_UUID} characters.")
    return scope, uuid, rest


def _looks_like_scope(word: str, rest: str) -> bool:
    """Whether who wrote this first word most likely meant a scope. `from here on` is plain English, `from=X` is not."""
    written = unicodedata.normalize("NFKC", word).casefold()  # a full-width colon is a colon
    name, sign, _ = re.split(r"([:=]|$)", written, maxsplit=1)
    if "".join(filter(str.isalnum, name)) not in _NAMES_OF_SCOPES:
        return False
    return bool(sign) or rest.startswith((":", "=")) or name.startswith(_DASHES) or name in _NAME_ALONE


def _has_scope(instructions: str, *, is_second: bool) -> bool:
    """Whether a scope stands among them. One without a uuid is plain English (`the mail from: Alice`), but right
    behind another scope."""
    words = instructions.split()
    found = [_SCOPE.fullmatch(word) for word in words]
    return any(one and one[2] for one in found) or bool(is_second and found and found[0])


def _first(text: str) -> tuple[str, str]:
    """The first word, and the rest without the space around it."""
    word, *rest = text.split(maxsplit=1) or [""]
    return word, rest[0].strip() if rest else ""


def _check_storable(text: str) -> None:
    """NUL can't be stored, nor can lone surrogates: UTF-8 has none, and a terminal makes them of bytes that are not
    UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        storable = False
    else:
        storable = "\0" not in text
    if not storable:
        raise CommandError("The command holds characters that can not be stored.")
