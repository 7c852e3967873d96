"""docs/tour.md, run as it stands: what a newcomer types in the first five minutes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.functional.processes import ROOT, Served, environment, manage, serving

PAGE = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
MESSAGES = 28


def blocks(language: str) -> str:
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))


def at(served: Served, text: str) -> str:
    """The page's text for this server and this Python, in the place of those of the page."""
    found = text.replace("http://127.0.0.1:8000", served.address)
    assert found != text, "the page names the address"
    return found.replace(".venv/bin/python", sys.executable)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    data_dir = tmp_path_factory.mktemp("tour")
    with serving(data_dir) as process:
        process.wait_for("Serving")
        process.data_dir = data_dir  # type: ignore[attr-defined]
        yield process  # type: ignore[misc]


def run(served: Served, command: list[str], text: str, **variables: str) -> list[str]:
    data_dir: Path = served.data_dir  # type: ignore[attr-defined]
    folder = data_dir / "here"
    folder.mkdir(exist_ok=True)
    for name in ("manage.py", "samples"):
        if not (folder / name).exists():
            os.symlink(ROOT / name, folder / name)
    done = subprocess.run(
        command,
        input=text,
        cwd=folder,
        env=environment(data_dir, **variables),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_with_curl(served: Served) -> None:
    out = run(served, ["bash", "-euo", "pipefail"], at(served, blocks("sh")))
    told = "\n".join(out)
    assert "'level': 'ok'" in told
    assert "cache warm" in told
    [(before, after)] = re.findall(r"(\d+) tokens before, (\d+) after", told)
    assert 0 < int(after) < int(before)
    names = re.findall(r"^event: (\w+)$", told, re.MULTILINE)
    assert names[-1] == "done"
    assert "stage" in names
    assert "## 9. Optional Next Step" in told
    assert "18211 queries" in told, "what was summarised away is still in the history"
    sizes = [int(line) for line in out if line.isdigit()]
    assert sizes == [int(after), int(before)], "taken back, the context is as it was"


def test_with_python(served: Served) -> None:
    key = manage(served.data_dir, "create_api_key", "tour").splitlines()[-1]  # type: ignore[attr-defined]
    out = run(served, [sys.executable, "-"], at(served, blocks("python")), KEY=key)
    told = "\n".join(out)
    [(before, after)] = re.findall(r"^succeeded (\d+) -> (\d+)$", told, re.MULTILINE)
    assert int(after) < int(before)
    assert "event: done" in told
    assert out[-1] == f"{after} -> {before}"
