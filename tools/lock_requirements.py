"""Compile requirements*.in into pinned requirements*.txt, each line saying what the package is for.

A package named in the .in file gets the reason that stands there; one that came along gets the names of
those that need it. Run by `make lock`; needs uv (a development tool, see requirements-dev.in).
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOWEST_PYTHON = "3.11"


def canonical(*, name: str) -> str:
    """The package name in the form that package indexes compare (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def reasons(*, source: Path) -> dict[str, str]:
    """Package name -> the comment on its line of the .in file."""
    found = {}
    for line in source.read_text().splitlines():
        match = re.match(r"^([A-Za-z0-9][A-Za-z0-9._-]*)[^#]*#\s*(.+)$", line)
        if match:
            found[canonical(name=match[1])] = match[2].strip()
    return found


def compile_lock(*, source: Path) -> list[str]:
    """The pinned lines that uv resolves, annotated with "via …"."""
    command = ["uv", "pip", "compile", "-q", "--universal", "--python-version", LOWEST_PYTHON]
    command += ["--no-header", "--no-emit-index-url", "--no-emit-find-links", "--annotation-style", "line"]
    done = subprocess.run([*command, source.name], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def render(*, lines: list[str], why: dict[str, str]) -> str:
    out = ["# Pinned by `make lock` from the .in file of the same name; holds on Python 3.11 to 3.13."]
    for line in lines:
        match = re.match(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(\[[^\]]*\])?(==[^#]*?)\s*#\s*via\s+(.+)$", line)
        if not match:
            continue
        name, extras, pin, via = match[1], match[2] or "", match[3].rstrip(), match[4]
        parents = [p.strip() for p in via.split(",") if not p.strip().startswith(("-r", "-c"))]
        reason = why.get(canonical(name=name)) or f"needed by {', '.join(parents)}"
        out.append(f"{(name + extras + pin):<48} # {reason}")
    return "\n".join(out) + "\n"


def main() -> int:
    for stem in ("requirements", "requirements-dev", "requirements-bench"):
        source = ROOT / f"{stem}.in"
        text = render(lines=compile_lock(source=source), why=reasons(source=source))
        (ROOT / f"{stem}.txt").write_text(text)
        print(f"{stem}.txt: {text.count('==')} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
