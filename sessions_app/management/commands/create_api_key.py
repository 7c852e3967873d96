"""Make an API key, and the team if it is not there."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from sessions_app.management.base import OneLineCommand
from sessions_app.models import ApiKey
from sessions_app.services import teams


class Command(OneLineCommand):
    help = "Makes an API key for a team (the team too, if it is not there) and prints it once, alone on the last line."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("team", help="the team's slug")
        parser.add_argument("--name", default="", help="what the key is for")
        parser.add_argument("--scope", default=ApiKey.Scope.WRITE, help="read or write (default)")
        parser.add_argument(
            "--expires", metavar="DAYS|DATE", help="refused after so many days, or from a day on (UTC); default: never"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["scope"] not in ApiKey.Scope.values:
            raise CommandError(f"--scope {options['scope']!r}: allowed is {' or '.join(ApiKey.Scope.values)}")
        text = options["expires"]
        try:
            expires_at = teams.read_expiry(text=text, now=timezone.now()) if text is not None else None
        except teams.BadExpiry as error:
            raise CommandError(f"--expires {error}") from error
        try:
            team, created = teams.get_or_create_team(slug=options["team"])
        except teams.BadSlug as error:
            raise CommandError(str(error)) from error
        _, key = teams.create_api_key(
            team=team, name=options["name"][:100], scope=options["scope"], expires_at=expires_at
        )
        made = "new team" if created else "team"
        until = f" until {expires_at:%Y-%m-%d %H:%M} UTC" if expires_at else ""
        self.stdout.write(
            f"API key with {options['scope']} scope for {made} {team.slug}{until}; it is not shown again:"
        )
        self.stdout.write(key)
