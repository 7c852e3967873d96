"""Measure the embedded summariser on recorded Claude Code sessions, without any model.

    python tools/measure_compaction.py [--budgets 4000 8000 16000] [--strategy extractive|newest] [--cuts] [FILE ...]

Metrics, cuts and averaging follow the project's quality page: H is the history before a cut, F the next 40 messages,
C what replaces H (summary and kept tail). Files: `TRANSCRIPTS_DIR` (default `../shared/data/transcripts` beside the
repository), folder `claude-code`. The name pattern here is on purpose not the summariser's own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from compaction_app.engine.extractive import summarize  # noqa: E402
from compaction_app.engine.ports import SummaryRequest  # noqa: E402
from sessions_app.catalog import TokenizerFamily, tokenizer_family  # noqa: E402
from sessions_app.policy import Policy  # noqa: E402
from sessions_app.transcript.messages import (  # noqa: E402
    Message,
    MessageKind,
    Role,
    human_text,
    result_text,
    text_of,
    tool_results,
)
from sessions_app.transcript.rounds import Round, group_by_api_round  # noqa: E402
from sessions_app.transcript.tokens import estimate_text  # noqa: E402

# Cuts and floors of the quality page.
CUTS = (0.50, 0.70, 0.85)
BUDGETS = (4_000, 8_000, 16_000)
TAIL_SHARE = 0.30
FUTURE_MESSAGES = 40
LEAST_HISTORY_TOKENS, LEAST_FUTURE_MESSAGES, LEAST_NAMES = 12_000, 10, 5
OLDER_SHARE = 0.9
LEAST_LINE_CHARS = 24
# A list of names on one long line binds nothing.
MOST_NAMES_PER_LINE = 16
ERROR_LINE_CHARS = 160
REACTION_CALLS = 8

COLUMNS = (
    *("RI", "fur", "fur_far", "fur_path", "bind", "line", "line_whole", "cmd", "user", "files_mod", "files_read"),
    *("err", "errfix", "todo", "halluc", "halluc_set", "ratio", "over", "seconds", "speed"),
)


# reading


def transcripts_dir() -> Path:
    return Path(os.environ.get("TRANSCRIPTS_DIR") or ROOT.parent / "shared" / "data" / "transcripts")


def read_session(path: Path) -> list[Message]:
    """The user and assistant lines of one session file in file order; side chains and unreadable lines left out."""
    messages: list[Message] = []
    with path.open(encoding="utf-8", errors="surrogatepass") as lines:
        for line in lines:
            entry = _json(line)
            body = entry.get("message")
            if entry.get("isSidechain") or not isinstance(body, Mapping):
                continue
            if entry.get("type") in ("user", "assistant"):
                messages.append(_message(entry, body, position=len(messages) + 1))
    return messages


def _json(line: str) -> Mapping[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, Mapping) else {}


def _message(entry: Mapping[str, Any], body: Mapping[str, Any], *, position: int) -> Message:
    content = body.get("content")
    content = content if isinstance(content, (str, list)) else ""
    kind = MessageKind.COMPACT_SUMMARY if entry.get("isCompactSummary") else MessageKind.NORMAL
    if entry.get("isApiErrorMessage"):
        kind = MessageKind.API_ERROR
    message = Message(
        position=position,
        uuid=str(entry.get("uuid") or f"line-{position}"),
        role=Role(entry["type"]),
        content=content,
        message_id=body.get("id") if isinstance(body.get("id"), str) else None,
        kind=kind,
        is_meta=bool(entry.get("isMeta")),
        model=body.get("model") if isinstance(body.get("model"), str) else None,
    )
    return message


# what a message shows


def leaves(value: object) -> Iterator[str]:
    """The texts inside a JSON value, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from leaves(item)


def calls_of(message: Message) -> list[Mapping[str, Any]]:
    if message.role != Role.ASSISTANT:
        return []
    return [block for block in message.blocks if block.get("type") == "tool_use"]


def shown_text(message: Message) -> str:
    """Texts, calls and results of one message, one after the other; thinking and media are not text."""
    if message.kind != MessageKind.NORMAL:
        return ""
    parts = [text_of(message.content)]
    parts += [text for call in calls_of(message) for text in leaves(call.get("input"))]
    parts += [result_text(block) for block in tool_results(message.content)]
    return "\n".join(part for part in parts if part)


_URL = re.compile(r"https?://[^\s\"'<>)\]}`]+")
_PATH = re.compile(r"(?:[\w.@~+-]*/)+[\w.@+-]+|\b[\w-]+\.(?:[a-z]{1,4}|json|toml|jsonl|ipynb)\b", re.ASCII)
_HASH = re.compile(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,64}\b")
_FLAG = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]+")
_NUMBER = re.compile(r"\b0x[0-9a-fA-F]+\b|\b\d+(?:\.\d+)+\b|\b\d{3,}\b")
_IDENTIFIER = re.compile(
    r"\b(?:[a-z]+(?:[A-Z][a-z0-9]*)+|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+"
    r"|[a-zA-Z0-9]*(?:_[a-zA-Z0-9]+)+|[A-Za-z]+\d\w*)\b",
    re.ASCII,
)


@lru_cache(maxsize=200_000)
def names_of_line(line: str) -> tuple[str, ...]:
    """The names of one line, each once; paths by their last two components."""
    found: dict[str, None] = {}
    rest = line
    for pattern in (_URL, _PATH):
        for match in pattern.findall(rest):
            found[_path_name(match) if pattern is _PATH else match.rstrip(".,:;")] = None
        rest = pattern.sub(" ", rest)
    for pattern in (_HASH, _FLAG, _NUMBER, _IDENTIFIER):
        found.update(dict.fromkeys(pattern.findall(rest)))
    found.pop("", None)
    return tuple(found)


def _path_name(path: str) -> str:
    return "/".join([part for part in path.rstrip(".").split("/") if part not in ("", ".", "..")][-2:])


def lines_of(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.strip():
            yield line


def fold(text: str) -> str:
    return " ".join(text.split())


_READ_PREFIX = re.compile(r"^\s*\d+(?:→|\t)")


@dataclass
class Side:
    """Names, lines and pairs of one side (H or C)."""

    names: set[str] = field(default_factory=set)
    pairs: set[frozenset[str]] = field(default_factory=set)
    lines: set[str] = field(default_factory=set)
    last_seen: dict[str, int] = field(default_factory=dict)
    text: str = ""
    folded: str = ""


def side_of(texts: Sequence[str]) -> Side:
    side = Side(text="\n".join(texts))
    for at, text in enumerate(texts):
        for raw in lines_of(text):
            line = _READ_PREFIX.sub("", raw)
            names = names_of_line(line)
            for name in names:
                side.last_seen[name] = at
            if 2 <= len(names) <= MOST_NAMES_PER_LINE:
                side.pairs.update(frozenset((a, b)) for i, a in enumerate(names) for b in names[i + 1 :])
            folded = fold(line)
            if len(folded) >= LEAST_LINE_CHARS:
                side.lines.add(folded)
    side.names = set(side.last_seen)
    side.names |= {name.rpartition("/")[2] for name in side.names if "://" not in name}
    side.folded = fold(side.text)
    return side


# what the future needs, what the past held


@dataclass
class Needs:
    names: set[str] = field(default_factory=set)
    pairs: set[frozenset[str]] = field(default_factory=set)
    lines: set[str] = field(default_factory=set)
    commands: set[str] = field(default_factory=set)


def needs_of(future: Sequence[Message], past: Side, past_commands: set[str]) -> Needs:
    """What the agent writes in F that stood in H and that nothing in F showed it first."""
    needs = Needs()
    shown_names: set[str] = set()
    shown_lines: set[str] = set()
    for message in future:
        for raw in lines_of(shown_text(message)):
            line = _READ_PREFIX.sub("", raw)
            names, folded = names_of_line(line), fold(line)
            if message.role == Role.ASSISTANT:
                wanted = [name for name in names if name in past.names and name not in shown_names]
                needs.names.update(wanted)
                near = {frozenset(pair) for pair in pairwise(wanted)}
                needs.pairs |= near & past.pairs
                if folded in past.lines and folded not in shown_lines:
                    needs.lines.add(folded)
            else:
                shown_names.update(names)
                shown_lines.add(folded)
        needs.commands |= {command for command in commands_of([message]) if command in past_commands}
    return needs


def commands_of(messages: Iterable[Message]) -> list[str]:
    found = []
    for message in messages:
        for call in calls_of(message):
            given = call.get("input")
            command = given.get("command") if isinstance(given, Mapping) else None
            if isinstance(command, str) and call.get("name") in ("Bash", "PowerShell"):
                found.append(command.strip())
    return found


_REDIRECT = re.compile(r"(?<![\d&>=-])>>?[ \t]*([\w./~-]*[A-Za-z][\w./~-]*)(?=\s|$|;)", re.ASCII)


def touched(call: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Paths read, paths modified by one call."""
    given = call.get("input")
    if not isinstance(given, Mapping):
        return [], []
    path = given.get("file_path") or given.get("notebook_path")
    if isinstance(path, str):
        return ([path], []) if call.get("name") == "Read" else ([], [path])
    command = given.get("command")
    if isinstance(command, str):
        return [], [p for p in _REDIRECT.findall(command) if not p.startswith("/dev/")]
    return [], []


_FAILING = re.compile(r"^Traceback|^Exit code [1-9]|^error: |^FAIL", re.MULTILINE)
_ERROR_CUE = re.compile(r"error|exception|fail|fatal|denied|not found|cannot|panic|undefined|invalid", re.IGNORECASE)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def error_line(text: str) -> str:
    lines = [fold(_ANSI.sub("", line)) for line in text.splitlines()[:400]]
    lines = [line for line in lines if line and not line.startswith(("Exit code", "Traceback"))]
    return next((line for line in lines if _ERROR_CUE.search(line)), lines[0] if lines else "")[:ERROR_LINE_CHARS]


def errors_of(history: Sequence[Message]) -> dict[str, tuple[str, str]]:
    """Error line -> (edited path, command) of the first reaction."""
    names: dict[str, str] = {}
    found: dict[str, tuple[str, str]] = {}
    waiting: list[tuple[str, int]] = []
    for message in history:
        for call in calls_of(message):
            names[str(call.get("id"))] = str(call.get("name"))
            changed, command = touched(call)[1], commands_of([message])
            if changed or command:
                for line, _ in waiting:
                    found[line] = (changed[0], "") if changed else ("", command[0])
                waiting = []
            waiting = [(line, left - 1) for line, left in waiting if left > 1]
        for block in tool_results(message.content):
            text = result_text(block)
            shell = names.get(block["tool_use_id"]) in ("Bash", "PowerShell")
            if block.get("is_error") is True or (shell and _FAILING.search(text[:20_000])):
                line = error_line(text)
                if line and line not in found:
                    found[line] = ("", "")
                    waiting.append((line, REACTION_CALLS))
    return found


def open_todos(history: Sequence[Message]) -> list[str]:
    last: list[str] = []
    tasks: dict[str, tuple[str, str]] = {}
    for message in history:
        for call in calls_of(message):
            given = call.get("input")
            if not isinstance(given, Mapping):
                continue
            if call.get("name") == "TodoWrite" and isinstance(given.get("todos"), list):
                items = [item for item in given["todos"] if isinstance(item, Mapping)]
                last = [str(item.get("content")) for item in items if item.get("status") != "completed"]
            elif call.get("name") == "TaskCreate":
                tasks[str(len(tasks) + 1)] = (str(given.get("subject")), "pending")
            elif call.get("name") == "TaskUpdate" and str(given.get("taskId")) in tasks and given.get("status"):
                tasks[str(given["taskId"])] = (tasks[str(given["taskId"])][0], str(given["status"]))
    return last + [text for text, status in tasks.values() if status not in ("completed", "deleted")]


_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")


def user_share(history: Sequence[Message], context: Side) -> float | None:
    shares = []
    for message in history:
        parts = [fold(part) for part in _SENTENCE.split(human_text(message))]
        parts = [part for part in parts if part]
        if parts:
            kept = sum(len(part) for part in parts if part in context.folded)
            shares.append(kept / sum(map(len, parts)))
    return _mean(shares)


# one cut


@dataclass(frozen=True)
class Cut:
    """One place to compact: the rounds before it and the messages after it."""

    name: str
    rounds: tuple[Round, ...]
    future: tuple[Message, ...]
    family: TokenizerFamily

    @property
    def history(self) -> list[Message]:
        return [message for one in self.rounds for message in one.messages]


def size_of(message: Message, family: TokenizerFamily) -> int:
    return estimate_text(text=shown_text(message), family=family)


def cuts_of(path: Path) -> Iterator[Cut]:
    messages = read_session(path)
    models = [message.model for message in messages if (message.model or "").startswith("claude")]
    family = tokenizer_family(models[0] if models else None)
    rounds = group_by_api_round(messages)
    sizes = [sum(size_of(message, family) for message in one.messages) for one in rounds]
    for share in CUTS:
        total, count = 0, 0
        while count < len(rounds) and total < share * sum(sizes):
            total += sizes[count]
            count += 1
        future = [message for one in rounds[count:] for message in one.messages][:FUTURE_MESSAGES]
        if total >= LEAST_HISTORY_TOKENS and len(future) >= LEAST_FUTURE_MESSAGES:
            yield Cut(f"{path.stem}@{share:.0%}", tuple(rounds[:count]), tuple(future), family)


def tail_rounds(cut: Cut, *, budget: int) -> int:
    """How many of the newest whole rounds fit into the budget."""
    total, count = 0, 0
    for one in reversed(cut.rounds):
        total += sum(size_of(message, cut.family) for message in one.messages)
        if total > budget:
            break
        count += 1
    return min(count, len(cut.rounds) - 1)


def compact(cut: Cut, *, budget: int, strategy: str) -> tuple[str, list[Message], float]:
    """Summary, kept tail, seconds."""
    count = tail_rounds(cut, budget=budget if strategy == "newest" else int(budget * TAIL_SHARE))
    split = len(cut.rounds) - count
    head = [message for one in cut.rounds[:split] for message in one.messages]
    tail = [message for one in cut.rounds[split:] for message in one.messages]
    if strategy == "newest":
        return "", tail, 0.0
    used = sum(size_of(message, cut.family) for message in tail)
    request = SummaryRequest(history=head, tail=tail, budget_tokens=budget - used, family=cut.family, policy=Policy())
    started = time.perf_counter()
    return summarize(request=request), tail, time.perf_counter() - started


def measure(cut: Cut, *, budget: int, strategy: str) -> dict[str, float | None] | None:
    """All metrics of one cut, None where nothing was there to be kept; None altogether when F needs too little."""
    history = cut.history
    past = side_of([shown_text(message) for message in history])
    needs = needs_of(cut.future, past, set(commands_of(history)))
    if len(needs.names) < LEAST_NAMES:
        return None
    summary, tail, seconds = compact(cut, budget=budget, strategy=strategy)
    context = side_of([summary, *(shown_text(message) for message in tail)])
    far = {name for name in needs.names if past.last_seen.get(name, 0) < OLDER_SHARE * len(history)}
    row: dict[str, float | None] = {
        "fur": _share(needs.names, context.names),
        "fur_far": _share(far, context.names),
        "fur_path": _share({name for name in needs.names if "/" in name}, context.names),
        "bind": _share(needs.pairs, context.pairs),
        "line": _mean([line in context.folded for line in needs.lines]),
        "line_whole": _share(needs.lines, context.lines),
        "cmd": _mean([command in context.text for command in needs.commands]),
        "user": user_share(history, context),
        "todo": _mean([todo in context.text for todo in open_todos(history)]),
        **_files(history, context),
        **_errors(history, context),
        **_invented(summary, past),
    }
    used = estimate_text(text=summary, family=cut.family) + sum(size_of(message, cut.family) for message in tail)
    whole = sum(size_of(message, cut.family) for message in history)
    row |= {"ratio": used / whole, "over": float(used > budget), "seconds": seconds, "speed": seconds / whole * 180_000}
    parts = [row[key] for key in ("fur", "bind", "line", "cmd", "user", "errfix")]
    parts.append(_mean([value for value in (row["files_mod"], row["files_read"]) if value is not None]))
    row["RI"] = _mean([value for value in parts if value is not None])
    return row


def _files(history: Sequence[Message], context: Side) -> dict[str, float | None]:
    read: set[str] = set()
    changed: set[str] = set()
    for message in history:
        for call in calls_of(message):
            one_read, one_changed = touched(call)
            read.update(map(_path_name, one_read))
            changed.update(map(_path_name, one_changed))
    return {"files_mod": _share(changed, context.names), "files_read": _share(read, context.names)}


def _errors(history: Sequence[Message], context: Side) -> dict[str, float | None]:
    errors = errors_of(history)
    there = {line: line in context.folded for line in errors}
    fixed = [
        there[line] and (_path_name(edited) in context.names if edited else command in context.text)
        for line, (edited, command) in errors.items()
        if edited or command
    ]
    return {"err": _mean(list(there.values())), "errfix": _mean(fixed)}


def _invented(summary: str, past: Side) -> dict[str, float | None]:
    names = side_of([summary]).last_seen
    unknown = [name for name in names if name not in past.names]
    lost = [name for name in unknown if name not in past.text]
    return {"halluc": len(lost) / max(1, len(names)), "halluc_set": len(unknown) / max(1, len(names))}


def _share(wanted: set[Any], there: set[Any]) -> float | None:
    return len(wanted & there) / len(wanted) if wanted else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


# tables


def family_of(cut_name: str) -> str:
    return cut_name.split("-")[0]


def averaged(rows: Mapping[str, Mapping[str, float | None]]) -> dict[str, float]:
    """Each column averaged within a family of files first, then over the families."""
    result = {}
    for column in COLUMNS:
        families: dict[str, list[float]] = {}
        for name, row in rows.items():
            value = row.get(column)
            if value is not None:
                families.setdefault(family_of(name), []).append(value)
        result[column] = _mean([sum(values) / len(values) for values in families.values()]) or 0.0
    return result


def table_row(name: str, row: Mapping[str, float | None]) -> str:
    cells = ("    –" if row.get(column) is None else f"{row[column]:5.3f}" for column in COLUMNS)
    return f"{name[:34]:34} " + " ".join(
        f"{cell:>{max(5, len(column))}}" for cell, column in zip(cells, COLUMNS, strict=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--budgets", nargs="+", type=int, default=list(BUDGETS))
    parser.add_argument("--strategy", choices=("extractive", "newest"), default="extractive")
    parser.add_argument("--cuts", action="store_true", help="one row per cut as well")
    options = parser.parse_args()
    files = options.files or sorted((transcripts_dir() / "claude-code").glob("*.jsonl"))
    cuts = [cut for path in files for cut in cuts_of(path)]
    print(f"{'':34} " + " ".join(f"{column:>5}" for column in COLUMNS))
    for budget in options.budgets:
        rows = {cut.name: measure(cut, budget=budget, strategy=options.strategy) for cut in cuts}
        measured = {name: row for name, row in rows.items() if row is not None}
        if options.cuts:
            for name, row in measured.items():
                print(table_row(name, row))
        print(table_row(f"{budget:,} tokens, {len(measured)} cuts", averaged(measured)))


if __name__ == "__main__":
    main()
