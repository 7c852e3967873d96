"""`/compact …` as a person types it: read here once, for every interface (S19)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

WORD = "/compact"
LONGEST_INSTRUCTIONS = 16_384  # characters
LONGEST_UUID = 128  # characters; the column that holds a message's uuid
_SCOPE = re.compile(r"(up_to|from):(.*)", re.IGNORECASE | re.DOTALL)


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
    """`[/compact] [up_to:UUID | from:UUID] [instructions]`. Raises CommandError.

    A scope is one only where it comes first: later on the same words are instructions, which are kept as they are
    but for the space around them.
    """
    if "\0" in text or not _is_unicode(text):
        raise CommandError("The command holds characters that can not be stored.")
    word, rest = _first(text)
    if word.lower() != WORD:
        rest = text.strip()
    scope, uuid, rest = _scope(rest)
    if scope is not Scope.WHOLE and _SCOPE.fullmatch(_first(rest)[0]):
        raise CommandError("The command has two scopes: give one of up_to: and from:, once.")
    if len(rest) > LONGEST_INSTRUCTIONS:
        raise CommandError(f"The instructions are longer than {LONGEST_INSTRUCTIONS:,} characters.")
    return CompactCommand(scope=scope, uuid=uuid, instructions=rest)


def _scope(text: str) -> tuple[Scope, str, str]:
    """The scope, its uuid, and what comes after them."""
    word, rest = _first(text)
    found = _SCOPE.fullmatch(word)
    if found is None:
        return Scope.WHOLE, "", text
    scope, uuid = Scope(found[1].lower()), found[2]
    if not uuid:
        raise CommandError(f"A message's uuid is missing right after {scope.value}: (without a space between).")
    if len(uuid) > LONGEST_UUID:
        raise CommandError(f"The uuid after {scope.value}: is longer than {LONGEST_UUID} characters.")
    return scope, uuid, rest


def _first(text: str) -> tuple[str, str]:
    """The first word, and the rest without the space around it."""
    word, *rest = text.split(maxsplit=1) or [""]
    return word, rest[0].strip() if rest else ""


def _is_unicode(text: str) -> bool:
    """Whether there are no lone surrogates: UTF-8 has none, and a terminal makes them of bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
