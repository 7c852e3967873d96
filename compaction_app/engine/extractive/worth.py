"""How likely a name or a line is to be written again soon."""

from __future__ import annotations

from compaction_app.engine.extractive.evidence import LineRecord, NameRecord
from sessions_app.policy import Policy

# More uses than this add nothing (they were counted up to here: see the chances in policy.py).
_MOST_REPEATS = 3


def _faded(chance: float, *, age: int, half_age: int) -> float:
    return chance / (1 + age / half_age)


def name_worth(record: NameRecord, *, end: int, policy: Policy) -> float:
    """How likely a name is to be written again soon: more when the agent wrote it itself, lately and often."""
    seen = policy.extract_seen_name_chance
    worth = _faded(seen, age=end - record.seen_at, half_age=policy.extract_seen_half_age)
    if record.written_at >= 0:
        repeats = 1 + policy.extract_repeat_gain * min(_MOST_REPEATS, record.written - 1)
        own = policy.extract_own_name_chance * repeats
        worth += _faded(own, age=end - record.written_at, half_age=policy.extract_own_name_half_age)
    return worth


def line_worth(line: LineRecord, *, end: int, policy: Policy) -> float:
    """How likely a line is to be written again soon."""
    seen = policy.extract_seen_line_chance * min(_MOST_REPEATS, line.count)
    worth = _faded(seen, age=end - line.seen_at, half_age=policy.extract_seen_half_age)
    if line.written_at >= 0:
        own = policy.extract_own_line_chance * (policy.extract_repeated_line_factor if line.count > 1 else 1)
        worth += _faded(own, age=end - line.written_at, half_age=policy.extract_own_line_half_age)
    return worth if line.names else worth * policy.extract_bare_line_share
