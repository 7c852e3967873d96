"""List API keys: what they are for, and whether they hold. The keys themselves are stored nowhere."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from sessions_app.management.base import OneLineCommand
from sessions_app.models import ApiKey, Team

HEADS = ("KEY", "TEAM", "SCOPE", "STATE", "EXPIRES", "LAST USED", "UUID", "NAME")


class Command(OneLineCommand):
    help = "Lists the API keys, newest first: first characters, team, scope, state, and when each was last used."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("team", nargs="?", help="the slug of a team; default: all of them")

    def handle(self, *args: Any, **options: Any) -> None:
        keys = ApiKey.objects.select_related("team").order_by("-pk")
        if options["team"] is not None:
            team = Team.objects.filter(slug=options["team"]).first()
            if team is None:
                raise CommandError(f"no team {options['team']!r}")
            keys = keys.filter(team=team)
        rows = [HEADS, *_cells(keys.iterator(), now=timezone.now())]
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
        for row in rows:
            self.stdout.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _cells(keys: Iterator[ApiKey], *, now: datetime) -> Iterator[tuple[str, ...]]:
    for key in keys:
        yield (
            f"{key.hint}…",
            key.team.slug,
            key.scope,
            key.state(now=now).value,
            _minute(key.expires_at),
            _minute(key.last_used_at),
            str(key.uuid),
            _printable(key.name),
        )


def _minute(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M}" if moment else "never"


def _printable(name: str) -> str:
    """A name is anybody's text, and must not speak to the terminal."""
    return "".join(char if char.isprintable() else " " for char in name)
