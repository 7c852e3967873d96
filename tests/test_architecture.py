"""The house stands: import contracts hold, and each is caught when it is broken on purpose; no migration is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command, get_commands

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("compaction_site", "compaction_app", "sessions_app")

# Contract -> a file and a line that break it. A contract that catches nothing would be worse than none.
PLANTED = {
    "The apps: site over compaction over sessions": ("sessions_app/selectors.py", "import compaction_app.models"),
    "Inside compaction_app": ("compaction_app/services/runs.py", "import compaction_app.actions"),
    "Inside sessions_app": ("sessions_app/selectors.py", "import sessions_app.services.append"),
    "The pure cores know no framework, no database, no network": (
        "compaction_app/engine/chain.py",
        "import sessions_app.selectors",
    ),
    "Interfaces write through actions": ("compaction_app/admin/base.py", "import compaction_app.services.runs"),
    "Links of the chain do not know each other": (
        "compaction_app/engine/links/other.py",
        "import compaction_app.engine.links.full",
    ),
    "Transcript formats do not know each other": (
        "sessions_app/transcript/formats/other.py",
        "import sessions_app.transcript.formats.claude_code",
    ),
    "Settings are read through django.conf": ("compaction_app/actions/turns.py", "import compaction_site.settings"),
}
MORE = {
    "a core that imports Django": ("sessions_app/transcript/view.py", "import django.db"),
    "a core that imports the SDK": ("compaction_app/engine/plan.py", "import anthropic"),
    "an interface that enqueues": ("compaction_app/api/auth.py", "import compaction_app.tasks"),
    "a file without a place": ("compaction_app/utils.py", "x = 1"),
}


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--no-cache",
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("house")
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "static", "templates")
        )
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def test_the_import_contracts_hold() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("planted", [*PLANTED.items(), *MORE.items()], ids=lambda item: item[0])
def test_a_planted_violation_is_caught(copy: Path, planted: tuple[str, tuple[str, str]]) -> None:
    name, (file, line) = planted
    path = copy / file
    before = path.read_text() if path.exists() else None
    path.write_text(f"{before or ''}\n{line}\n")
    try:
        done = lint(copy)
    finally:
        if before is None:
            path.unlink()
        else:
            path.write_text(before)
    assert done.returncode != 0
    if name in PLANTED:
        assert f"{name} BROKEN" in done.stdout


@pytest.mark.django_db
def test_no_migration_is_missing() -> None:
    call_command("makemigrations", "--check", "--dry-run", stdout=StringIO())


def test_every_command_has_a_test() -> None:
    ours = {name for name, app in get_commands().items() if app in PACKAGES}
    tested = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert ours
    assert [name for name in sorted(ours) if f'"{name}"' not in tested] == []


def test_every_dependency_says_what_it_is_for() -> None:
    for file in ("requirements.txt", "requirements-dev.txt"):
        lines = [line for line in (ROOT / file).read_text().splitlines() if line and not line.startswith("#")]
        assert lines
        assert all("==" in line and " # " in line for line in lines)


def test_the_compose_file_is_one() -> None:
    """Against the Compose specification; no engine is needed, and the schema ships with the checker."""
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", "docker-compose.yml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
