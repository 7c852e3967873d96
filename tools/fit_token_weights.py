"""Fit the token estimator's weights on recorded Claude Code sessions, and measure what they reach.

    python tools/fit_token_weights.py [DIR] [--write]

DIR holds Claude Code session files (*.jsonl), searched with its subfolders; default: `claude-code` in the folder that
TRANSCRIPTS_DIR names (`../shared/data/transcripts` beside the repository). Prints the errors of the table in use, of a
fit on the other half of the files, and of fits that left a whole repository out, each beside the session's calibration,
and those of a quarter of the characters. --write puts the fit on all files into
sessions_app/transcript/token_weights.py. Only the standard library is needed.

The truth is what the API billed (docs/token-estimation.md): a step, from one response to the next of its chain, adds
in(B) - in(A) tokens; a reply adds its output_tokens where the client logs the real figure.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sessions_app.catalog import TokenizerFamily, tokenizer_family  # noqa: E402
from sessions_app.policy import Policy  # noqa: E402
from sessions_app.transcript.calibration import Calibration  # noqa: E402
from sessions_app.transcript.entries import TranscriptMessage, TranscriptNote  # noqa: E402
from sessions_app.transcript.formats.claude_code import read_line  # noqa: E402
from sessions_app.transcript.messages import (  # noqa: E402
    ContentBlock,
    MessageKind,
    Role,
    Usage,
    content_blocks,
    result_text,
)
from sessions_app.transcript.token_weights import BLOCKS, FEATURES, PRIOR, SCRIPTS, WEIGHTS  # noqa: E402
from sessions_app.transcript.tokens import count_block, estimate_text  # noqa: E402

TABLE = ROOT / "sessions_app" / "transcript" / "token_weights.py"
BEGIN, END = "# --- fitted (tools/fit_token_weights.py --write) ---", "# --- end of fitted ---"
FROM_ENV = "TRANSCRIPTS_DIR"

# Clients before this one log a placeholder as output_tokens (facts: token estimation).
REAL_OUTPUT_SINCE = (2, 1, 60)
LEAST_OUTPUT_TOKENS = 9
# Attachments that the client does not send to the model; the text of all others is not in any message.
UNSENT_ATTACHMENTS = frozenset({"hook_success", "hook_system_message", "hook_cancelled"})
# Where the others hold what is sent; their remaining fields say where it is from.
ATTACHMENT_TEXT = ("content", "snippet", "addedLines", "addedBlocks", "text", "skills", "files", "allowedTools")
ATTACHMENT_PLACE = frozenset({"type", "path", "filePath", "displayPath"})
CHARS_PER_TOKEN = 4
FIGURES = Policy()
# A quarter of the characters is off by a half: believing it at the beginning would only make it worse.
CHARS_FIGURES = replace(FIGURES, calibration_prior_tokens=1_000)

# Errors are relative to the truth, that of small steps to this many tokens (a step's wrapping alone is as large).
SMALL_STEP_TOKENS = 60
# Relative error from which a row's pull no longer grows: some steps hold text that the transcript does not show.
OUTLIER_ERROR = 0.04
REWEIGHTINGS = 15
# Pull towards the prior, as a share of what the data say about a feature of average size.
PRIOR_PULL = 0.01
# The same for a feature that hardly occurs, as a count per token of the row. Scripts are held harder: these sessions
# hold a few thousand characters of them, each in a handful of steps.
LEAST_SCALE = 3e-4
LEAST_SCRIPT_SCALE = 3e-2
# The fit meets the middle step; text that clients add unseen makes the sum larger. An undercount costs a refused
# request, an overcount only an early compaction, so the table leans to the upper side.
MARGIN = 1.03
# The bar of the facts page looks 20 steps ahead; Korean replies are those with this many syllables at least.
STEPS_AHEAD = 20
LEAST_HANGUL = 30
HELD_FEATURE = FEATURES.index("media_token")
HANGUL = FEATURES.index("hangul")

Weights = Sequence[float]
# Tokens of a step's reply, and of what followed it.
Estimate = Callable[["Step"], tuple[float, float]]


@dataclass
class Step:
    """From one response to the next. `reply`: features of the response's blocks; `added`: of what followed.

    `run` numbers the unbroken chains of the file, `chain` names the agent; `unseen`: the client also sent text that no
    message holds, and `attached_tokens` is the estimate of what the file tells of it.
    """

    file: str
    chain: str
    model: str
    family: TokenizerFamily
    run: int
    prompt_tokens: int
    grown_tokens: int
    output_tokens: int
    output_is_real: bool
    unseen: bool
    reply: list[float]
    added: list[float]
    reply_chars: int
    added_chars: int
    attached_tokens: int

    @property
    def repository(self) -> str:
        return self.file.split("-", 1)[0]

    @property
    def whole(self) -> list[float]:
        return [a + b for a, b in zip(self.reply, self.added, strict=True)]


@dataclass
class _Response:
    """The last response of a chain while the file is read."""

    message_id: str
    model: str
    version: str
    prompt_tokens: int
    run: int
    output_tokens: int = 0
    reply: list[float] = field(default_factory=lambda: [0.0] * len(FEATURES))
    added: list[float] = field(default_factory=lambda: [0.0] * len(FEATURES))
    reply_chars: int = 0
    added_chars: int = 0
    attached_tokens: int = 0
    blocks: set[str] = field(default_factory=set)
    uuids: set[str] = field(default_factory=set)
    branched: bool = False
    unseen: bool = False


class StepReader:
    """Reads one session file line by line and gives its steps. Sub-agents' chains are apart from the main one.

    Left out: steps across a compaction, a change of model, a branch, or a response without usage.
    """

    def __init__(self, *, file: str) -> None:
        self.file = file
        self._last: dict[str, _Response] = {}
        self._runs = 0

    def read(self, *, lines: Iterable[str]) -> Iterator[Step]:
        for number, line in enumerate(lines, start=1):
            for entry in read_line(text=line, line_number=number):
                if isinstance(entry, TranscriptNote):
                    self._note(entry)
                elif isinstance(entry, TranscriptMessage):
                    yield from self._message(entry)

    def _note(self, note: TranscriptNote) -> None:
        chain = _chain(note.raw)
        if note.boundary is not None:
            self._last.pop(chain, None)
        last = self._last.get(chain)
        if last is None:
            return
        if note.uuid:
            last.uuids.add(note.uuid)
        attachment = note.raw.get("attachment")
        if isinstance(attachment, Mapping) and attachment.get("type") not in UNSENT_ATTACHMENTS:
            last.unseen = True
            text = "\n".join(_strings([attachment.get(name) for name in ATTACHMENT_TEXT]))
            last.attached_tokens += estimate_text(text=text, family=tokenizer_family(last.model))

    def _message(self, message: TranscriptMessage) -> Iterator[Step]:
        chain = _chain(message.envelope)
        if message.kind != MessageKind.NORMAL:
            self._last.pop(chain, None)
            return
        last = self._last.get(chain)
        if message.role == Role.USER:
            if last is not None:
                last.branched |= message.parent_uuid not in last.uuids
                last.uuids.add(message.uuid)
                last.added_chars += _add(last.added, message, tokenizer_family(last.model))
            return
        usage = Usage.from_json(message.usage) or Usage()
        if last is None or not message.message_id or message.message_id != last.message_id:
            follows = last is not None and self._follows(last, message, usage)
            if last is not None and follows:
                yield self._step(last, usage, chain)
            else:
                self._runs += 1
            last = self._last[chain] = _Response(
                message_id=message.message_id or "",
                model=message.model,
                version=str(message.envelope.get("version") or ""),
                prompt_tokens=usage.prompt_tokens,
                run=self._runs,
            )
        last.uuids.add(message.uuid)
        last.output_tokens = max(last.output_tokens, usage.output_tokens)
        last.reply_chars += _add(last.reply, message, tokenizer_family(last.model), last.blocks)

    @staticmethod
    def _follows(last: _Response, message: TranscriptMessage, usage: Usage) -> bool:
        grown = usage.prompt_tokens - last.prompt_tokens
        return (
            last.prompt_tokens > 0
            and grown > 0
            and last.model == message.model
            and "claude" in message.model
            and not last.branched
            and message.parent_uuid in last.uuids
        )

    def _step(self, last: _Response, usage: Usage, chain: str) -> Step:
        return Step(
            file=self.file,
            chain=chain,
            model=last.model,
            family=tokenizer_family(last.model),
            run=last.run,
            prompt_tokens=last.prompt_tokens,
            grown_tokens=usage.prompt_tokens - last.prompt_tokens,
            output_tokens=last.output_tokens,
            output_is_real=_version(last.version) >= REAL_OUTPUT_SINCE and last.output_tokens >= LEAST_OUTPUT_TOKENS,
            unseen=last.unseen,
            reply=last.reply,
            added=last.added,
            reply_chars=last.reply_chars,
            added_chars=last.added_chars,
            attached_tokens=last.attached_tokens,
        )


def _chain(envelope: Mapping[str, Any]) -> str:
    return str(envelope.get("agentId") or "sidechain") if envelope.get("isSidechain") is True else "main"


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def _add(counts: list[float], message: TranscriptMessage, family: TokenizerFamily, seen: set[str] | None = None) -> int:
    """Add the message's features; a block that `seen` holds is the repeated part of a stream and does not count.

    Gives the characters of what was added.
    """
    chars = 0
    for block in content_blocks(message.content):
        if seen is not None:
            key = json.dumps(block, sort_keys=True)
            if key in seen:
                continue
            seen.add(key)
        for index, count in enumerate(count_block(block=block, family=family)):
            counts[index] += count
        chars += _chars(block)
    return chars


def _chars(block: ContentBlock) -> int:
    """Characters of a block's text, call, result, or sealed thinking; media have none."""
    if block.get("type") == "tool_use":
        return len(str(block.get("name"))) + len(json.dumps(block.get("input"), ensure_ascii=False))
    if block.get("type") == "tool_result":
        return len(result_text(block))
    text = block.get("text") or block.get("thinking") or block.get("signature")
    return len(text) if isinstance(text, str) else 0


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _strings([inner for name, inner in value.items() if name not in ATTACHMENT_PLACE])
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def read_steps(*, folder: Path) -> list[Step]:
    """All steps of the session files under `folder`, in the files' order."""
    steps: list[Step] = []
    for path in sorted(folder.rglob("*.jsonl")):
        with path.open(encoding="utf-8", errors="replace") as lines:
            steps.extend(StepReader(file=path.name).read(lines=lines))
    return steps


# --- Fit --------------------------------------------------------------------------------------------------------


def fit(*, steps: Sequence[Step], family: TokenizerFamily) -> list[float]:
    """Non-negative weights with the least relative error, drawn towards the prior; then the margin.

    Reweighted least squares: a row that is far off pulls less, so the loss grows like the absolute error.
    """
    rows = [(step.whole, step.grown_tokens) for step in steps if not step.unseen]
    # The reply is part of its step too: twice counted where the client logs it, which is where it is known best.
    rows += [(step.reply, step.output_tokens) for step in steps if step.output_is_real]
    prior = [PRIOR[family][name] for name in FEATURES]
    scaled = [_scaled_row(counts, truth) for counts, truth in rows]
    squares = [0.0] * len(FEATURES)
    for row, _ in scaled:
        for index, value in row:
            squares[index] += value * value
    least = [LEAST_SCRIPT_SCALE if name in SCRIPTS else LEAST_SCALE for name in FEATURES]
    pull = [
        PRIOR_PULL * len(rows) * ((total / max(len(rows), 1)) ** 0.5 + floor) ** 2
        for total, floor in zip(squares, least, strict=True)
    ]
    weights = list(prior)
    for _ in range(REWEIGHTINGS):
        trust = [_trust(row, truth, weights) for row, truth in scaled]
        weights = _solve(scaled, trust, prior, pull, weights)
    return [weight if index == HELD_FEATURE else weight * MARGIN for index, weight in enumerate(weights)]


def _scaled_row(counts: Sequence[float], truth: int) -> tuple[list[tuple[int, float]], float]:
    scale = 1 / max(truth, SMALL_STEP_TOKENS)
    row = [(index, count * scale) for index, count in enumerate(counts) if count and index != HELD_FEATURE]
    return row, (truth - counts[HELD_FEATURE]) * scale


def _trust(row: list[tuple[int, float]], truth: float, weights: Weights) -> float:
    error = abs(sum(value * weights[index] for index, value in row) - truth)
    return OUTLIER_ERROR / max(error, OUTLIER_ERROR)


def _solve(
    scaled: Sequence[tuple[list[tuple[int, float]], float]],
    trust: Sequence[float],
    prior: Weights,
    pull: Sequence[float],
    start: Weights,
) -> list[float]:
    """Weighted non-negative ridge regression, by coordinate descent on the normal equations."""
    size = len(FEATURES)
    matrix = [[0.0] * size for _ in range(size)]
    target = [p * w for p, w in zip(pull, prior, strict=True)]
    for (row, truth), share in zip(scaled, trust, strict=True):
        for index, value in row:
            weighted = value * share
            line = matrix[index]
            target[index] += weighted * truth
            for other, other_value in row:
                line[other] += weighted * other_value
    for index in range(size):
        matrix[index][index] += pull[index]
    weights = list(start)
    for _ in range(400):
        moved = 0.0
        for index in range(size):
            line = matrix[index]
            if index == HELD_FEATURE or line[index] <= 0:
                continue
            rest = target[index] - sum(a * w for a, w in zip(line, weights, strict=True)) + line[index] * weights[index]
            value = max(rest / line[index], 0.0)
            moved = max(moved, abs(value - weights[index]) / (abs(value) + 1e-3))
            weights[index] = value
        if moved < 1e-5:
            break
    return weights


# --- Measures ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Errors:
    """Median and 90th percentile of |estimate - truth| / truth, and the median and spread of estimate / truth."""

    count: int
    median: float
    p90: float
    ratio: float
    low: float
    high: float

    @classmethod
    def of(cls, ratios: Iterable[float]) -> Errors:
        ordered = sorted(ratios)
        off = sorted(abs(ratio - 1) for ratio in ordered)
        return cls(
            count=len(ordered),
            median=_quantile(off, 0.5),
            p90=_quantile(off, 0.9),
            ratio=_quantile(ordered, 0.5),
            low=_quantile(ordered, 0.1),
            high=_quantile(ordered, 0.9),
        )

    def __str__(self) -> str:
        return (
            f"n {self.count:5d}  median {self.median:6.2%}  p90 {self.p90:6.2%}"
            f"  ratio {self.ratio:.3f} ({self.low:.2f}-{self.high:.2f})"
        )


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def weigh(counts: Sequence[float], weights: Weights) -> float:
    return sum(count * weight for count, weight in zip(counts, weights, strict=True) if count)


def table(family: TokenizerFamily) -> list[float]:
    """The weights in use."""
    return [WEIGHTS[family][name] for name in FEATURES]


def step_errors(*, steps: Iterable[Step], weights: Callable[[Step], Weights]) -> Errors:
    """Errors of the whole step, no anchor."""
    return Errors.of(weigh(step.whole, weights(step)) / step.grown_tokens for step in steps)


def korean_errors(*, steps: Iterable[Step], weights: Callable[[Step], Weights]) -> Errors:
    """Errors of Korean replies, against their output_tokens."""
    return Errors.of(
        weigh(step.reply, weights(step)) / step.output_tokens
        for step in steps
        if step.output_is_real and step.reply[HANGUL] >= LEAST_HANGUL
    )


def by_weights(weights: Callable[[Step], Weights]) -> Estimate:
    return lambda step: (weigh(step.reply, weights(step)), weigh(step.added, weights(step)))


def by_weights_and_attachments(weights: Callable[[Step], Weights]) -> Estimate:
    """As if the text of the client's attachments stood in messages."""
    return lambda step: (weigh(step.reply, weights(step)), weigh(step.added, weights(step)) + step.attached_tokens)


def by_chars(step: Step) -> tuple[float, float]:
    return step.reply_chars / CHARS_PER_TOKEN, step.added_chars / CHARS_PER_TOKEN


def anchored_errors(
    *,
    steps: Iterable[Step],
    estimate: Estimate,
    ahead: int = STEPS_AHEAD,
    figures: Policy | None = None,
    shown_only: bool = False,
) -> Errors:
    """Errors of the whole context `ahead` steps after the last known usage, the rest estimated.

    `figures`: calibrate, as a session does that has seen the steps before the anchor and no later one. `shown_only`
    leaves out the windows in which the client sent an attachment that no message holds.
    """
    sessions: dict[tuple[str, str], list[Step]] = {}
    for step in steps:
        sessions.setdefault((step.file, step.chain), []).append(step)
    ratios: list[float] = []
    for session in sessions.values():
        estimates = [estimate(step) for step in session]
        scales = _scales(session, estimates, figures) if figures else [1.0] * len(session)
        for index in range(len(session) - ahead):
            part = session[index : index + ahead + 1]
            first, last = part[0], part[-1]
            if first.run != last.run or (shown_only and any(step.unseen for step in part[:-1])):
                continue
            scale = scales[index]
            reply, added = estimates[index]
            later = sum(sum(pair) for pair in estimates[index + 1 : index + ahead])
            known = first.prompt_tokens + max(first.output_tokens, reply * scale)
            ratios.append((known + (added + later) * scale) / last.prompt_tokens)
    return Errors.of(ratios)


def _scales(session: Sequence[Step], estimates: Sequence[tuple[float, float]], figures: Policy) -> list[float]:
    """The session's ratio at each step's first response: what the steps before it taught."""
    scales = []
    calibration: Calibration | None = None
    for step, estimated in zip(session, estimates, strict=True):
        if calibration is None or calibration.model != step.model:
            calibration = Calibration.begun(model=step.model, figures=figures)
        scales.append(calibration.ratio(figures=figures))
        calibration = calibration.learned(billed=step.grown_tokens, estimated=round(sum(estimated)), figures=figures)
    return scales


# --- Report and table -------------------------------------------------------------------------------------------


def report(*, steps: Sequence[Step], family: TokenizerFamily) -> None:
    chosen = [step for step in steps if step.family is family]
    print(f"\n{family.value}: {len(chosen)} steps of {len({step.file for step in chosen})} files")
    if not chosen:
        return
    in_use = table(family)
    _print_errors("table in use", chosen, lambda _: in_use)
    files = sorted({step.file for step in chosen}, key=lambda name: (-sum(s.file == name for s in chosen), name))
    halves = {name: index % 2 for index, name in enumerate(files)}
    by_half = [fit(steps=[s for s in chosen if halves[s.file] != half], family=family) for half in (0, 1)]
    _print_errors("fitted on the other half of the files", chosen, lambda step: by_half[halves[step.file]])
    print("  a quarter of the characters")
    chars = Errors.of(sum(by_chars(step)) / step.grown_tokens for step in chosen)
    print(f"    whole step                 {chars}")
    _print_anchored("context", chosen, by_chars, figures=CHARS_FIGURES)
    names = sorted({step.repository for step in chosen})
    if len(names) > 1:
        without = {n: fit(steps=[s for s in chosen if s.repository != n], family=family) for n in names}
        _print_errors("fitted without the repository", chosen, lambda step: without[step.repository])
        for name in names:
            part = [step for step in chosen if step.repository == name]
            seen, unseen = (
                step_errors(steps=part, weights=weights) for weights in (lambda _: in_use, lambda _, n=name: without[n])
            )
            print(f"    {name:14s} {seen}\n    {'  left out':14s} {unseen}")


def _print_errors(title: str, steps: Sequence[Step], weights: Callable[[Step], Weights]) -> None:
    print(f"  {title}")
    print(f"    whole step                 {step_errors(steps=steps, weights=weights)}")
    shown = [step for step in steps if not step.unseen]
    print(f"    without unseen attachments {step_errors(steps=shown, weights=weights)}")
    replies = Errors.of(weigh(s.reply, weights(s)) / s.output_tokens for s in steps if s.output_is_real)
    print(f"    replies                    {replies}")
    korean = korean_errors(steps=steps, weights=weights)
    if korean.count:
        print(f"    Korean replies             {korean}")
    _print_anchored("context", steps, by_weights(weights))
    attached = by_weights_and_attachments(weights)
    _print_anchored("with attachments", steps, attached, aheads=(STEPS_AHEAD,))


def _print_anchored(
    title: str,
    steps: Sequence[Step],
    estimate: Estimate,
    *,
    aheads: Sequence[int] = (1, 5, STEPS_AHEAD),
    figures: Policy = FIGURES,
) -> None:
    """Each without and with the session's calibration."""
    for ahead in aheads:
        for used, how in ((None, "raw"), (figures, "calibrated")):
            errors = anchored_errors(steps=steps, estimate=estimate, ahead=ahead, figures=used)
            print(f"    {title} after {ahead:2d}, {how}".ljust(42) + str(errors))


def write_table(*, fitted: Mapping[TokenizerFamily, Weights]) -> None:
    """Replace the fitted part of token_weights.py."""
    lines = [BEGIN, "WEIGHTS: Mapping[TokenizerFamily, Mapping[str, float]] = MappingProxyType(", "    {"]
    for family, weights in fitted.items():
        lines.append(f"        TokenizerFamily.{family.name}: {{")
        for name, weight in zip(FEATURES, weights, strict=True):
            digits = 2 if name in BLOCKS and weight >= 1 else 3
            lines.append(f'            "{name}": {round(weight, digits)},')
        lines.append("        },")
    lines += ["    }", ")", END]
    text = TABLE.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    TABLE.write_text(head + "\n".join(lines) + rest.split(END)[1], encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    default = Path(os.environ.get(FROM_ENV) or ROOT.parent / "shared" / "data" / "transcripts") / "claude-code"
    parser.add_argument("folder", nargs="?", type=Path, default=default)
    parser.add_argument("--write", action="store_true", help="put the fit on all files into token_weights.py")
    arguments = parser.parse_args()
    steps = read_steps(folder=arguments.folder)
    if not steps:
        parser.error(f"no steps in {arguments.folder}")
    for family in TokenizerFamily:
        report(steps=steps, family=family)
    if arguments.write:
        # A family without a step in these files keeps its weights.
        present = {step.family for step in steps}
        fitted = {
            family: fit(steps=[s for s in steps if s.family is family], family=family)
            if family in present
            else table(family)
            for family in TokenizerFamily
        }
        write_table(fitted=fitted)
        print(f"\nwritten: {TABLE.relative_to(ROOT)}; run again to see its errors")


if __name__ == "__main__":
    main()
