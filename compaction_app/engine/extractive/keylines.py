"""The appendix: lines and single names that look most as if they were needed again and are not shown yet."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compaction_app.engine.extractive.draft import Draft
from compaction_app.engine.extractive.evidence import Evidence, LineRecord, bare_line, shown_names
from compaction_app.engine.extractive.text import poses_as_section
from compaction_app.engine.extractive.wanted import Wanted
from compaction_app.engine.extractive.worth import line_worth, name_worth
from sessions_app.policy import Policy

_APPENDIX = 10
_LINES, _NAMES = "### Key lines", "### Names"
# Characters per token and tokens per line break, only to rank candidates; what they take is estimated properly.
_CHARACTERS, _BREAK = 2.6, 4
# Lines of one file from which on the file is named above them.
_LABELLED = 3


@dataclass(frozen=True, slots=True)
class Candidate:
    """A line, or (without `line`) a single name for the ledger; `own_worth` is its worth beyond its names."""

    names: tuple[str, ...]
    cost: float
    own_worth: float = 0.0
    line: LineRecord | None = None


def write_key_lines(
    *, draft: Draft, evidence: Evidence, end: int, tail_texts: Sequence[str], wanted: Wanted, policy: Policy
) -> None:
    """Both appendix parts, from what is left of the budget. `end` is the age 0, in messages from the start."""
    worth = {
        name: name_worth(record, end=end, policy=policy) + policy.extract_wanted_chance * wanted.matches(name)
        for name, record in evidence.names.items()
    }
    written = draft.text()
    cover = Cover(worth=worth, shown=shown_names([written, *tail_texts]), shown_share=policy.extract_shown_name_share)
    candidates = _lines(evidence, written, tail_texts, end, wanted, policy)
    candidates += [
        Candidate(names=(name,), cost=(1 + len(name) / _CHARACTERS) * policy.extract_name_cost_share)
        for name in worth
        if name not in cover.shown
    ]
    draft.begin_last()
    chosen = cover.choose(candidates, draft)
    _write_lines(draft, [candidates[index].line for index in sorted(chosen)])
    _write_ledger(draft, [candidates[i].names[0] for i in chosen if candidates[i].line is None], policy)
    draft.end()


def _lines(
    evidence: Evidence, written: str, tail_texts: Sequence[str], end: int, wanted: Wanted, policy: Policy
) -> list[Candidate]:
    """The lines that may be shown: of useful length, not there already, and harmless between fences."""
    in_tail = {bare_line(line) for text in tail_texts for line in text.split("\n")}
    return [
        Candidate(
            names=line.names,
            cost=_BREAK + len(line.text) / _CHARACTERS,
            own_worth=line_worth(line, end=end, policy=policy)
            + policy.extract_wanted_chance * wanted.matches(line.text),
            line=line,
        )
        for line in evidence.lines.values()
        if policy.extract_shortest_line_chars <= len(line.text) <= policy.extract_line_chars
        and line.text not in in_tail
        and "```" not in line.text
        and not poses_as_section(line.text)
        and line.text not in written
    ]


@dataclass(slots=True)
class Cover:
    """Greedy cover: again and again what has the most worth for its size, given what is shown by then."""

    worth: Mapping[str, float]
    shown: set[str]
    shown_share: float

    def choose(self, candidates: Sequence[Candidate], draft: Draft) -> list[int]:
        """The indexes of the chosen candidates, best first, for what the draft's purse holds."""
        heap = [(-self._gain(candidate), index) for index, candidate in enumerate(candidates)]
        heapq.heapify(heap)
        chosen: list[int] = []
        room = draft.purse - draft.line_cost(f"{_LINES}\n```\n```\n{_NAMES}")
        while heap and room > 0:
            stale, index = heapq.heappop(heap)
            candidate = candidates[index]
            fresh = -self._gain(candidate)
            if fresh > stale and heap and fresh > heap[0][0]:
                heapq.heappush(heap, (fresh, index))
                continue
            cost = self._cost(candidate, draft)
            if cost <= room:
                room -= cost
                chosen.append(index)
                self.shown.update(candidate.names)
        return chosen

    def _gain(self, candidate: Candidate) -> float:
        seen = self.shown_share if candidate.line else 0.0
        worth = sum(self.worth[name] * (seen if name in self.shown else 1.0) for name in candidate.names)
        return (worth + candidate.own_worth) / candidate.cost

    def _cost(self, candidate: Candidate, draft: Draft) -> int:
        if candidate.line:
            return draft.line_cost(candidate.line.text)
        name = candidate.names[0]
        return draft.purse if name in self.shown else draft.cost(f" {name}")


def _write_lines(draft: Draft, chosen: Sequence[LineRecord | None]) -> None:
    """The lines by file, files and lines in the order in which they came up."""
    group = draft.group(_APPENDIX, title=_LINES, fenced=True)
    sources: dict[str, list[str]] = {}
    for line in chosen:
        if line:
            sources.setdefault(line.source, []).append(line.text)
    for source, lines in sources.items():
        if source and len(lines) >= _LABELLED:
            draft.add(group, f"-- {source}")
        for text in lines:
            draft.add(group, text)


def _write_ledger(draft: Draft, names: Sequence[str], policy: Policy) -> None:
    """The names in rows; what the purse still holds after rounding."""
    group = draft.group(_APPENDIX, title=_NAMES)
    row = policy.extract_names_per_row
    for start in range(0, len(names), row):
        if not draft.add(group, " ".join(names[start : start + row])):
            break
