"""Import transcript files."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from sessions_app.management.base import OneLineCommand
from sessions_app.management.terminal import Bar, printable
from sessions_app.models import Team
from sessions_app.selectors import effective_policy
from sessions_app.services.teams import get_or_create_team
from sessions_app.services.transcripts import ImportRefused, ImportReport, SessionReport, import_transcript
from sessions_app.transcript.formats import AUTO, FORMATS

DEFAULT_TEAM = "default"


class Command(OneLineCommand):
    help = "Imports transcript files. Importing a file again adds only what is new in it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("files", nargs="+", metavar="FILE")
        parser.add_argument("--team", metavar="SLUG", help="the team that owns the sessions (default: the only one)")
        parser.add_argument("--format", default=AUTO, help=f"one of {', '.join(FORMATS)}")

    def handle(self, *args: Any, **options: Any) -> None:
        team = _team(options["team"])
        failed = sum(not self._import(team, Path(name), options["format"]) for name in options["files"])
        if failed:
            raise CommandError(f"{failed} of {len(options['files'])} files were not imported")

    def _import(self, team: Team, path: Path, format_name: str) -> bool:
        try:
            with path.open("rb") as stream, Bar(total=path.stat().st_size, label=path.name, out=sys.stderr) as bar:
                report = import_transcript(
                    team=team,
                    stream=stream,
                    name=path.name,
                    format_name=format_name,
                    policy=effective_policy(team=team).policy,
                    now=timezone.now(),
                    progress=bar.advance,
                )
        except ImportRefused as refused:
            self.stderr.write(f"{path}: {refused}")
            return False
        except OSError as error:
            self.stderr.write(f"{path}: {error.strerror or error}")
            return False
        self._print(path, report)
        return True

    def _print(self, path: Path, report: ImportReport) -> None:
        problems = f"{report.problem_count} lines with problems"
        if len(report.sessions) == 1:
            self.stdout.write(f"{_told(path, report.sessions[0])}, {problems}")
        else:
            for one in report.sessions:
                self.stdout.write(_told(path, one))
            self.stdout.write(f"{printable(path.name)}: {len(report.sessions):,} sessions, {problems}")
        for problem in report.problems:
            self.stdout.write(f"  line {problem.line_number}: {printable(problem.reason)}")
        if report.problem_count > len(report.problems):
            self.stdout.write(f"  … and {report.problem_count - len(report.problems):,} more")


def _told(path: Path, one: SessionReport) -> str:
    known = "" if one.created else " (known before)"
    return (
        f"{printable(path.name)}: session {one.session.uuid}{known}: {one.messages} messages, "
        f"{one.duplicates} duplicates, {one.entries} other entries, {one.boundaries} boundaries"
    )


def _team(slug: str | None) -> Team:
    if slug:
        team = Team.objects.filter(slug=slug).first()
        if team is None:
            raise CommandError(f"no team {slug!r}; create_api_key {slug} makes one")
        return team
    teams = list(Team.objects.order_by("slug")[:10])
    if len(teams) > 1:
        raise CommandError(f"there are several teams; choose one with --team: {', '.join(t.slug for t in teams)}")
    return teams[0] if teams else get_or_create_team(slug=DEFAULT_TEAM)[0]
