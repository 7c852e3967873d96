"""The embedded summariser on recorded sessions: floors a little below what it reaches, so that a loss is noticed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
BUDGET = 8_000
# Families of files averaged first. Behind each floor: what was reached when it was written.
FLOORS = {
    "RI": 0.85,  # 0.874
    "fur": 0.94,  # 0.964
    "fur_far": 0.87,  # 0.909
    "bind": 0.70,  # 0.757
    "line": 0.64,  # 0.690
    "cmd": 0.95,  # 1.000
    "user": 0.87,  # 0.900
    "files_mod": 0.97,  # 1.000
    "files_read": 0.97,  # 1.000
    "err": 0.88,  # 0.911
    "errfix": 0.88,  # 0.910
    "todo": 1.0,  # 1.000
}
MOST_INVENTED = 0.002
MOST_SECONDS = 1.0  # for 180,000 tokens of history


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("measure_compaction", ROOT / "tools" / "measure_compaction.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.transcripts
@pytest.mark.thorough
def test_recorded_sessions_keep_what_is_needed() -> None:
    tool = _tool()
    folder = tool.transcripts_dir() / "claude-code"
    files = sorted(folder.glob("*.jsonl")) if folder.is_dir() else []
    if not files:
        pytest.skip("no recorded sessions: set TRANSCRIPTS_DIR to the folder that holds claude-code/")
    cuts = [cut for path in files for cut in tool.cuts_of(path)]
    rows = {cut.name: tool.measure(cut, budget=BUDGET, strategy="extractive") for cut in cuts}
    measured = {name: row for name, row in rows.items() if row is not None}
    average = tool.averaged(measured)
    below = {name: (round(average[name], 3), floor) for name, floor in FLOORS.items() if average[name] < floor}
    assert below == {}
    assert [name for name, row in measured.items() if row["over"]] == []
    assert average["halluc"] <= MOST_INVENTED
    assert average["speed"] <= MOST_SECONDS
