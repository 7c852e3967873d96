"""Signals for code in the same process: other Django apps are asked and told about compactions here.

Sent robustly: a receiver that raises never hurts a run. HTTP hooks get the same (services/hooks.py).
"""

from __future__ import annotations

import logging
from typing import Any

from django.dispatch import Signal

logger = logging.getLogger(__name__)


class Refuse(Exception):
    """Raised or given back by a receiver of `pre_compact`: this compaction is not to be. `reason`: for people."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class QuietSignal(Signal):
    """Logs what kind of error a receiver raised, and never its text, which may quote a transcript."""

    def _log_robust_failure(self, receiver: Any, err: BaseException) -> None:
        if not isinstance(err, Refuse):
            name = getattr(receiver, "__qualname__", type(receiver).__qualname__)
            logger.error("receiver %s of a signal raised %s", name, type(err).__name__)


# Before a summary is asked for; sent with `session`, `run`, `trigger`, `tokens`, `instructions`. A receiver may return
# a string, instructions for the summary, or raise or return Refuse.
pre_compact = QuietSignal()
# After the commit of what they tell; sent with `session`, `run` (None where there is none) and `payload`.
post_compact = QuietSignal()
compact_failed = QuietSignal()
breaker_opened = QuietSignal()
