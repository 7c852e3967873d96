"""Names and lines of the history with what speaks for their being needed again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from compaction_app.engine.extractive.files import short_path
from compaction_app.engine.extractive.names import names_in, normal
from compaction_app.engine.extractive.story import Story, written_texts
from compaction_app.engine.extractive.text import clean, sentences
from sessions_app.policy import Policy

# "    12→code" and "12<tab>code" in results of Read.
_NUMBERED = re.compile(r"^\s*\d+(?:→|\t)")
# "path:12:code", "path-12-code" and "12:code" in results of grep.
_FOUND = re.compile(
    r"^(?:(?P<path>[\w@+./~-]*[\w@+-]\.\w{1,5})(?P<sep>[:-]))?\d{1,6}(?(sep)(?P=sep)|[:-])(?P<code>.*)$"
)

# A line of a diff counts as the line of the file that it is.
_DIFF = re.compile(r"^[+-](?=[^+-])\s*")


@dataclass(slots=True)
class NameRecord:
    """One name: when the agent last wrote it, when it was last seen at all (-1: never), how often it was written."""

    written_at: int = -1
    seen_at: int = -1
    written: int = 0


@dataclass(slots=True)
class LineRecord:
    """One distinct line: its names, its file, when the agent last wrote it and when it was last seen (-1: never)."""

    text: str
    names: tuple[str, ...]
    written_at: int = -1
    seen_at: int = -1
    count: int = 0
    source: str = ""

    def note(self, *, at: int, own: bool) -> None:
        self.count += 1
        self.seen_at = max(self.seen_at, at)
        if own:
            self.written_at = max(self.written_at, at)


@dataclass(slots=True)
class Evidence:
    names: dict[str, NameRecord] = field(default_factory=dict)
    lines: dict[str, LineRecord] = field(default_factory=dict)


def gather_evidence(*, story: Story, policy: Policy) -> Evidence:
    """Names and candidate lines of everything that was said, called and returned."""
    evidence = Evidence()
    for at, text, own, source, skipped in _texts(story, policy):
        for raw in text.split("\n"):
            if raw.strip() in skipped:
                continue
            for line in _pieces(raw, policy.extract_line_chars) if own else (raw,):
                _note_line(evidence, line, at, own, source, policy)
    return evidence


def _pieces(line: str, longest: int) -> Iterable[str]:
    """A long line of prose by its sentences (a Chinese paragraph is one line)."""
    return sentences(line) if len(line) > longest else (line,)


def _note_line(evidence: Evidence, raw: str, at: int, own: bool, source: str, policy: Policy) -> None:
    line = raw.strip() if own else bare_line(raw)
    found = None if own else _FOUND.match(raw.strip())
    if found and found["path"]:
        source = short_path(found["path"])
        _note_name(evidence, found["path"], at)
    if line:
        _note(evidence, line, at, own, source, policy)


def bare_line(raw: str) -> str:
    """A line of a result without line number, match prefix and diff sign."""
    found = _FOUND.match(raw.strip())
    return _DIFF.sub("", found["code"].strip() if found else _NUMBERED.sub("", raw).strip())


def _texts(story: Story, policy: Policy) -> Iterator[tuple[int, str, bool, str, frozenset[str]]]:
    """(at, text, written by the agent, file, lines to pass over) of every text."""
    none: frozenset[str] = frozenset()
    for said in story.users:
        yield said.at, said.text[: policy.extract_result_head_chars], False, "", none
    for said in story.agent:
        yield said.at, said.text, True, "", none
    for call in story.calls:
        source = short_path(call.path)
        for text in written_texts(call, policy=policy):
            yield call.at, text, True, source, none
        if call.result:
            yield call.at, call.result, False, source, call.styled


def _note(evidence: Evidence, line: str, at: int, own: bool, source: str, policy: Policy) -> None:
    known = evidence.lines.get(line)
    names = known.names if known else tuple(names_in(line[: policy.extract_line_chars * 4]))
    for name in names:
        record = evidence.names.get(name)
        if record is None:
            record = evidence.names[name] = NameRecord()
        record.seen_at = max(record.seen_at, at)
        if own:
            record.written_at = max(record.written_at, at)
            record.written += 1
    if known is None:
        known = evidence.lines[line] = LineRecord(text=line, names=names)
    known.note(at=at, own=own)
    known.source = source or known.source


def _note_name(evidence: Evidence, path: str, at: int) -> None:
    record = evidence.names.setdefault(normal(path), NameRecord())
    record.seen_at = max(record.seen_at, at)


def shown_names(texts: list[str]) -> set[str]:
    """The names that these texts show, and the base names of their paths."""
    found: set[str] = set()
    for text in texts:
        for line in clean(text).split("\n"):
            for name in names_in(line):
                found.add(name)
                found.add(name.rpartition("/")[2])
    return found
