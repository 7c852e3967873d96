"""Revoke an API key: at once and for good."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from sessions_app.management.base import OneLineCommand
from sessions_app.models import ApiKey
from sessions_app.services import teams


class Command(OneLineCommand):
    help = (
        "Revokes the one API key that is meant; list_api_keys shows them. Where several may be meant, none is revoked."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("key", metavar="HINT|UUID", help="first characters, uuid, or the whole key")
        parser.add_argument("--team", help="the slug of a team: only its keys are meant")

    def handle(self, *args: Any, **options: Any) -> None:
        found = teams.find_api_keys(named=options["key"])
        if options["team"] is not None:
            found = [key for key in found if key.team.slug == options["team"]]
        if not found:
            raise CommandError("no such API key; list_api_keys shows them")
        if len(found) > 1:
            raise CommandError(f"{len(found)} API keys may be meant: give more characters, the uuid, or --team")
        [key] = found
        done = teams.revoke_api_keys(keys=ApiKey.objects.filter(pk=key.pk), now=timezone.now())
        self.stdout.write(
            f"API key {key.hint}… of team {key.team.slug} " + ("revoked." if done else "was revoked before.")
        )
