"""What every command of ours shares: what a person can mend is one line, never a traceback."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, OperationalError, ProgrammingError

INTERRUPTED = 130  # the shell's code for a program that was ended by Ctrl-C


class OneLineCommand(BaseCommand):
    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """The parser takes words and options in any order: by itself argparse refuses words behind an option where
        they may be left out, or where there may be several of them."""
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.parse_args = parser.parse_intermixed_args  # type: ignore[method-assign]
        return parser

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except (OperationalError, ProgrammingError) as error:
            told = str(error).strip().splitlines()[0]
            missing = "no such table" in told or "does not exist" in told
            hint = "; set it up with: python manage.py migrate (serve does it by itself)" if missing else ""
            raise CommandError(f"the database can't be used: {told}{hint}") from error
        except DatabaseError as error:
            raise CommandError(f"the database refused: {str(error).strip().splitlines()[0]}") from error
        except KeyboardInterrupt:
            raise CommandError("stopped", returncode=INTERRUPTED) from None
