"""Export a session as a transcript that its client resumes, or as a chat document."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from sessions_app.management.base import OneLineCommand
from sessions_app.management.terminal import find_session, printable
from sessions_app.selectors import effective_policy
from sessions_app.services.exports import Export, ExportRefused, export_session
from sessions_app.transcript.formats import WRITERS

DEFAULT_FORMAT = "claude-code"


class Command(OneLineCommand):
    help = "Writes a session as a transcript file: its whole history, and what its client resumes is the context now."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("session", help="the session's id, or its external id")
        parser.add_argument(
            "--format", default=DEFAULT_FORMAT, help=f"one of {', '.join(WRITERS)} (default: {DEFAULT_FORMAT})"
        )
        parser.add_argument("-o", "--output", metavar="FILE", help="where to write it (default: standard output)")

    def handle(self, *args: Any, **options: Any) -> None:
        session = find_session(options["session"])
        policy = effective_policy(team=session.team, session=session).policy
        try:
            export = export_session(session=session, format_name=options["format"], policy=policy)
        except ExportRefused as refused:
            raise CommandError(str(refused)) from refused
        if options["output"]:
            self._to_file(export, Path(options["output"]))
        else:
            self._to_stdout(export)

    def _to_file(self, export: Export, path: Path) -> None:
        """Under another name until it is whole, so that nobody finds half a transcript; a pipe or device as it is."""
        part = path if path.exists() and not path.is_file() else path.with_name(path.name + ".part")
        count = 0
        try:
            with part.open("wb") as stream:
                for chunk in export.chunks:
                    stream.write(chunk)
                    count += 1
            if part != path:
                part.replace(path)
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror or error}") from error
        finally:
            if part != path:
                part.unlink(missing_ok=True)
        self.stderr.write(self.style.SUCCESS(f"{printable(str(path))}: {count:,} lines"))
        if export.is_found_by_name and path.name != export.name:
            self.stderr.write(f"its client looks for it by the name {export.name}")

    def _to_stdout(self, export: Export) -> None:
        binary = getattr(sys.stdout, "buffer", None) if self.stdout._out is sys.stdout else None
        try:
            for chunk in export.chunks:
                if binary is not None:
                    binary.write(chunk)
                else:
                    self.stdout.write(chunk.decode(), ending="")
        except BrokenPipeError:
            # Whoever read it, say `head`, has enough; what is left in the buffer goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
