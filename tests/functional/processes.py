"""Starting the product as a user does: as processes of their own, with a data folder of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
START_SECONDS = 90


def environment(data_dir: Path, **more: str) -> dict[str, str]:
    """The variables of a process of its own; `more` are those that the test is about."""
    ours = ("DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE")
    kept = {k: v for k, v in os.environ.items() if k not in ours and not k.startswith("ANTHROPIC_")}
    return {**kept, "DATA_DIR": str(data_dir), "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT), **more}


def manage(data_dir: Path, *args: str, variables: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "manage.py", *args],
        cwd=ROOT,
        env=environment(data_dir, **(variables or {})),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Served:
    """A running `manage.py serve`, its address, and what it has printed."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.address = f"http://127.0.0.1:{port}"
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def wait_for(self, words: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not any(words in line for line in self.lines):
            assert self.process.poll() is None, "\n".join(self.lines)
            assert time.monotonic() < deadline, "\n".join(self.lines)
            time.sleep(0.05)

    def stop(self, number: int) -> int:
        """Send a signal; the exit code once everything that was printed is read."""
        self.process.send_signal(number)
        code = self.process.wait(timeout=30)
        self._reader.join(timeout=10)
        return code

    def value(self, label: str) -> str:
        """The word after a label, as in "API key    cmp_…"."""
        [line] = [line for line in self.lines if line.strip().startswith(label)]
        return line.strip().removeprefix(label).split()[0]

    def get(self, path: str, *, key: str = "") -> tuple[int, bytes]:
        request = urllib.request.Request(self.address + path)
        if key:
            request.add_header("Authorization", f"Bearer {key}")
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()


@contextmanager
def serving(data_dir: Path, *args: str, variables: Mapping[str, str] | None = None) -> Iterator[Served]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "manage.py", "serve", "--port", str(port), *args],
        cwd=ROOT,
        env=environment(data_dir, **(variables or {})),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield Served(process, port)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(timeout=20)
