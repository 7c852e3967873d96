"""Where the real transcripts lie; they are not part of the project. Tests that want them skip, saying so, without."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(os.environ.get("TRANSCRIPTS_DIR") or ROOT.parent / "shared" / "data" / "transcripts")
CLAUDE_CODE = sorted((FOLDER / "claude-code").glob("*.jsonl"))
CHATS = sorted(path for kind in ("anthropic-messages", "openai-chat") for path in (FOLDER / kind).glob("*.json*"))

needs_transcripts = pytest.mark.skipif(
    not CLAUDE_CODE, reason=f"real transcripts are not at {FOLDER} (TRANSCRIPTS_DIR)"
)


@dataclass(frozen=True)
class Told:
    """What the folder's README says of one file."""

    messages: int
    max_context: int
    features: str

    def count(self, feature: str) -> int:
        found = re.search(rf"(?:^|; ){re.escape(feature)} (\d[\d,]*)", self.features)
        return int(found[1].replace(",", "")) if found else 0


def told() -> dict[str, Told]:
    """File name -> its row. Message counts are the user and assistant lines."""
    rows = {}
    for row in (FOLDER.parent / "README.md").read_text(encoding="utf-8").splitlines():
        if row.startswith("| `claude-code/"):
            cells = [cell.strip() for cell in row.strip("|").split("|")]
            name = cells[0].strip("`").removeprefix("claude-code/")
            if len(cells) < 7:
                continue
            counts = dict(re.findall(r"([a-z-]+) ([\d,]+)", cells[3]))
            number = {kind: int(value.rstrip(",").replace(",", "")) for kind, value in counts.items()}
            largest = int(cells[4].replace(",", "")) if cells[4] != "–" else 0
            rows.setdefault(name, Told(number.get("user", 0) + number.get("assistant", 0), largest, cells[6]))
    return rows
