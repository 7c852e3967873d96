"""How far a session's estimates are off: what was billed per estimated token, from its own responses.

Two sums decay as the session goes on: what steps were billed, and what they had been estimated at. Both begin as if a
few thousand tokens had been billed as estimated. So large steps say more than small ones, no small one can swing their
quotient, and it comes to what is billed in the end.
What was tried, and what it brings: docs/token-estimation.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sessions_app.policy import Policy


@dataclass(frozen=True, slots=True)
class Calibration:
    """What one model's responses of a session have taught. Both sums in tokens, decayed, above zero."""

    model: str
    billed: float
    estimated: float

    @classmethod
    def begun(cls, *, model: str, figures: Policy) -> Calibration:
        """Nothing learned yet."""
        prior = float(figures.calibration_prior_tokens)
        return cls(model=model, billed=prior, estimated=prior)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any] | None) -> Calibration | None:
        """What `as_json` gave; None for None."""
        return cls(**raw) if raw is not None else None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def learned(self, *, billed: int, estimated: int, figures: Policy) -> Calibration:
        """With one more step: its prompt grew by `billed` tokens, and had been estimated to grow by `estimated`.

        Passed over: a prompt that did not grow, and a step too small to tell anything. A step's own quotient is bounded
        too, because clients add text (changed files, reminders) that no message holds. Constant cost.
        """
        if billed <= 0 or estimated < figures.calibration_least_tokens:
            return self
        believed = _bounded(billed / estimated, figures) * estimated
        kept = 0.5 ** (estimated / figures.calibration_half_tokens)
        return Calibration(
            model=self.model,
            billed=round(self.billed * kept + believed, 1),
            estimated=round(self.estimated * kept + estimated, 1),
        )

    def ratio(self, *, figures: Policy) -> float:
        """Billed tokens per estimated one, within the policy's bounds; 1 while nothing was learned."""
        return _bounded(self.billed / self.estimated, figures)


def _bounded(ratio: float, figures: Policy) -> float:
    return min(max(ratio, figures.calibration_least_ratio), figures.calibration_most_ratio)
