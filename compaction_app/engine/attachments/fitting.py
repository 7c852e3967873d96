"""Making one attachment fit its budget, so that nothing in it can pose as more than a quotation."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sessions_app.catalog import TokenizerFamily
from sessions_app.transcript.boundary import AttachmentValue
from sessions_app.transcript.tokens import estimate_text
from sessions_app.transcript.view import attachment_content

# No tokenizer puts more characters of a text that is worth restoring into one token: what lies behind is not measured.
MOST_CHARACTERS_A_TOKEN = 40
LONGEST_NAME = 300  # characters of a path or a name in a label; the payload has it whole
# Tags by which clients tell a model what no person typed (Claude Code's); quoted content must not bring its own.
_TAG = re.compile(
    # Possessive, so that a long run of blanks is looked at once: content is hostile.
    r"<(?=\s*+(?:/\s*+)?(?:system-reminder|system|command-[a-z]+|local-command-[a-z]+|bash-[a-z]+|task-notification)\b)",
    re.IGNORECASE,
)
_BARS = re.compile(r"`{3,}")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f\u0085\u2028\u2029\u202a-\u202e\u2066-\u2069]+")


@dataclass(slots=True)
class Purse:
    """The tokens that are left for all attachments together."""

    tokens: int
    family: TokenizerFamily

    def cost(self, text: str) -> int:
        return estimate_text(text=attachment_content(text=text), family=self.family)

    def pay(self, value: AttachmentValue | None) -> AttachmentValue | None:
        self.tokens -= value.tokens if value else 0
        return value


@dataclass(frozen=True, slots=True)
class Fitted:
    """The attachment, and how many of its units stand in it whole."""

    value: AttachmentValue
    kept: int


def one_line(name: str) -> str:
    """A name from outside, in a line of ours: no line breaks, nothing that turns the writing, no tags, not endless."""
    line = quoted(" ".join(_UNSEEN.sub(" ", name).split()))
    return line if len(line) <= LONGEST_NAME else line[: LONGEST_NAME - 1] + "…"


def quoted(text: str) -> str:
    """The text with the clients' own tags made visible as text."""
    return _TAG.sub("&lt;", text)


def fit_lines(
    *, kind: str, label: str, text: str, payload: Mapping[str, Any], purse: Purse, most: int, least: int
) -> AttachmentValue | None:
    """The text as an attachment, cut at a line's end with a mark where it is too long; a first line that is too long is
    cut within. None where less than `least` tokens are left, or nothing of it fits. Pays from the purse."""
    lines = quoted(text).splitlines()
    fitted = fit(
        kind=kind, label=label, units=lines, unit="lines", payload=payload, purse=purse, most=most, least=least
    )
    if fitted is None and lines:
        parts = list(lines[0][: max(most, 0) * MOST_CHARACTERS_A_TOKEN])
        more = len(lines[0]) - len(parts) + sum(len(line) + 1 for line in lines[1:])
        fitted = fit(
            kind=kind,
            label=label,
            units=parts,
            unit="characters",
            joint="",
            more=more,
            payload=payload,
            purse=purse,
            most=most,
            least=least,
        )
    return fitted.value if fitted else None


def fit(
    *,
    kind: str,
    label: str,
    units: Sequence[str],
    unit: str,
    payload: Mapping[str, Any],
    purse: Purse,
    most: int,
    least: int,
    joint: str = "\n",
    more: int = 0,
) -> Fitted | None:
    """As many of the units as fit `most` tokens, fenced, with a mark that tells how many are cut. Pays from the purse.

    `more`: units that are cut anyhow.
    """
    most = min(most, purse.tokens)
    if most < max(least, 1) or not units:
        return None
    bound = _measurable(units, characters=most * MOST_CHARACTERS_A_TOKEN)
    bar = "`" * max([3, *(len(run) + 1 for run in _BARS.findall(joint.join(units[:bound])))])

    def render(kept: int) -> str:
        cut = len(units) - kept + more
        mark = [f"[… cut: {cut} more {unit}]"] if cut else []
        return "\n".join([f"{label}:", bar, joint.join(units[:kept]), bar, *mark])

    kept = _most_that_fits(count=bound, fits=lambda n: purse.cost(render(n)) <= most)
    if kept <= 0:
        return None
    text = render(kept)
    truncated = kept < len(units) or more > 0
    value = AttachmentValue(kind=kind, text=text, payload={**payload, "truncated": truncated}, tokens=purse.cost(text))
    purse.pay(value)
    return Fitted(value=value, kept=kept)


def _measurable(units: Sequence[str], *, characters: int) -> int:
    """How many units are worth measuring, so that the work is bounded by the budget and not by what was given."""
    total = 0
    for number, one in enumerate(units):
        total += len(one) + 1
        if total > characters:
            return number
    return len(units)


def _most_that_fits(*, count: int, fits: Callable[[int], bool]) -> int:
    """The largest n in 0..count that fits, by halving; -1 when not even 0 does."""
    low, high = -1, count
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
