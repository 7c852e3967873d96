"""Which files were read and which were changed, by tools, patches and shell commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from compaction_app.engine.extractive.story import Call

EDIT_TOOLS = frozenset({"Edit", "MultiEdit", "NotebookEdit", "str_replace_editor", "str_replace_based_edit_tool"})
WRITE_TOOLS = frozenset({"Write", "create_file", "write_file"})
READ_TOOLS = frozenset({"Read", "NotebookRead", "View", "read_file"})
_PATCH = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (.+?)\s*$|^\+\+\+ b/(\S+)", re.MULTILINE)
_WORD = r"[\"']?([\w@%+=:,./~-]*[A-Za-z_][\w@%+=:,./~-]*)[\"']?"
_REDIRECT = re.compile(rf"(?<![\d&<>=|-])>>?[ \t]*{_WORD}(?=[\s;&|)]|$)", re.ASCII)
# What a here-document holds is data, not commands.
_HEREDOC = re.compile(r"(<<-?\s*([\"']?)(\w+)\2[^\n]*)\n.*?(?:\n\s*\3\b|\Z)", re.DOTALL)
_FILE_LIKE = re.compile(r"[./]|^[A-Z][a-z]+file$")
_TEE = re.compile(rf"\btee\s+(?:-a\s+)?{_WORD}", re.ASCII)
_SED = re.compile(r"\bsed\s+(?:-\w+\s+)*-i\S*\s+(.+)")
_SED_TARGET = re.compile(r"(?:^|\s)([\w@+./~-]*[\w@+-]\.\w+)(?=\s|$)", re.ASCII)
_SHOWN = re.compile(r"(?:^|[;&|\n])[ \t]*(?:cat|head|tail|less|nl|sed[ \t]+-n)[ \t]+([^;&|\n<>]+)")
_SHOWN_TARGET = re.compile(r"(?:^|\s)[\"']?([\w@+./~-]*[\w@+-]\.\w+)[\"']?(?=\s|$)", re.ASCII)
_NOT_FILES = ("/dev/",)


@dataclass(frozen=True, slots=True)
class Touch:
    """One file touched by one call; `how` is "edited", "written" or "read"."""

    at: int
    path: str
    how: str


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file: where it was last touched and how, in the order in which that happened first."""

    path: str
    last_at: int
    how: tuple[str, ...]

    @property
    def is_changed(self) -> bool:
        return self.how != ("read",)


def file_records(calls: Iterable[Call]) -> list[FileRecord]:
    """Every file that calls touched, most recently touched first."""
    last: dict[str, int] = {}
    how: dict[str, dict[str, None]] = {}
    for call in calls:
        for touch in touches(call):
            last[touch.path] = touch.at
            how.setdefault(touch.path, {})[touch.how] = None
    records = [FileRecord(path=path, last_at=at, how=tuple(how[path])) for path, at in last.items()]
    return sorted(records, key=lambda record: -record.last_at)


def touches(call: Call) -> Iterator[Touch]:
    """The files that one call touched. A failed call changed nothing, but what it named was meant."""
    path = call.path
    if path and "\n" not in path:
        how = _how(call)
        if how:
            yield Touch(at=call.at, path=path, how=how)
    patch = call.value("patch", "input", "diff")
    for first, second in _PATCH.findall(patch or call.command):
        yield Touch(at=call.at, path=first or second, how="edited")
    if call.command:
        yield from _shell_touches(call)


def edited_path(call: Call) -> str:
    """The first path that a call changed, "" when none."""
    return next((touch.path for touch in touches(call) if touch.how != "read"), "")


def _how(call: Call) -> str:
    if call.name in EDIT_TOOLS:
        return "read" if call.value("command") == "view" else "edited"
    if call.name in WRITE_TOOLS:
        return "written"
    return "read" if call.name in READ_TOOLS else ""


def _shell_touches(call: Call) -> Iterator[Touch]:
    command = _HEREDOC.sub(r"\1", call.command)
    for pattern in (_REDIRECT, _TEE):
        for path in pattern.findall(command):
            if _FILE_LIKE.search(path) and not path.startswith(_NOT_FILES):
                yield Touch(at=call.at, path=path, how="written")
    for rest in _SED.findall(command):
        for path in _SED_TARGET.findall(rest):
            yield Touch(at=call.at, path=path, how="edited")
    for rest in _SHOWN.findall(command):
        for path in _SHOWN_TARGET.findall(rest):
            yield Touch(at=call.at, path=path, how="read")


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def short_path(path: str) -> str:
    """The last two components, enough to recognise a file next to a full path of its folder."""
    return "/".join(path.split("/")[-2:])
