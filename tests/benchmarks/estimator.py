"""How far token estimates are off on the real Claude Code transcripts: ours and chars/4, raw and calibrated.

Truth is what the API billed from one response to the next; reading and measuring are the fitting tool's own. Our
weights were fitted on these files; the tool itself shows what fits on other files reach on them.
"""

from __future__ import annotations

from typing import Any

from sessions_app.catalog import TokenizerFamily
from tests.benchmarks.measuring import say, skip
from tests.real_transcripts import CLAUDE_CODE, FOLDER
from tools import fit_token_weights as tool

AHEAD = (1, 5, 20)


def run() -> None:
    if not CLAUDE_CODE:
        skip("estimator", why=f"no real transcripts at {FOLDER} (TRANSCRIPTS_DIR)")
        return
    steps = tool.read_steps(folder=FOLDER / "claude-code")
    for family in TokenizerFamily:
        chosen = [step for step in steps if step.family is family]
        if chosen:
            _compare(family, chosen)


def _compare(family: TokenizerFamily, steps: list[tool.Step]) -> None:
    weights = tool.table(family)
    ours = tool.by_weights(lambda _: weights)
    for name, estimate, figures in (
        ("ours", ours, None),
        ("ours, calibrated", ours, tool.FIGURES),
        ("chars/4", tool.by_chars, None),
        ("chars/4, calibrated", tool.by_chars, tool.CHARS_FIGURES),
    ):
        found: dict[str, Any] = {}
        if figures is None:
            ratios = (sum(estimate(step)) / step.grown_tokens for step in steps)
            found["whole_step"] = _percents(tool.Errors.of(ratios))
        for ahead in AHEAD:
            errors = tool.anchored_errors(steps=steps, estimate=estimate, ahead=ahead, figures=figures)
            found[f"context_after_{ahead}"] = _percents(errors)
        say("estimator", models=family.value, steps=len(steps), estimator=name, **found)


def _percents(errors: tool.Errors) -> dict[str, float]:
    return {
        "median_pct": round(100 * errors.median, 2),
        "p90_pct": round(100 * errors.p90, 2),
        "median_ratio": round(errors.ratio, 3),
    }
