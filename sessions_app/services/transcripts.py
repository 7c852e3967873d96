"""Import of transcript files: streamed, safe to repeat, and with a word on every line that was not understood.

One transaction a file: a file is in, or it is not. What a file holds: `services/transcript_files.py`; how a session of
it is stored: `services/session_imports.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO
from uuid import UUID

from django.db import transaction

from sessions_app.models import Message, Session, Team
from sessions_app.policy import Policy
from sessions_app.services.session_imports import Problems, SessionReport, store_session
from sessions_app.services.sessions import create_session
from sessions_app.services.transcript_files import FoundSession, ImportRefused, sessions_in
from sessions_app.services.transcript_lines import Progress
from sessions_app.transcript.entries import LineProblem
from sessions_app.transcript.formats import AUTO

__all__ = ["ImportRefused", "ImportReport", "SessionReport", "import_transcript"]


@dataclass(slots=True)
class ImportReport:
    """What an import did, session by session in the file's order; its figures are the sums.

    `problems`: lines (by number) that were not understood, with the reason; of a file that has very many the first ones
    (policy: import_kept_problems), `problem_count` counts them all.
    """

    sessions: list[SessionReport] = field(default_factory=list)
    problems: list[LineProblem] = field(default_factory=list)
    problem_count: int = 0

    @property
    def session(self) -> Session:
        """The first, and for most files the only one."""
        return self.sessions[0].session

    @property
    def created(self) -> bool:
        """Whether the first session is new."""
        return self.sessions[0].created

    @property
    def messages(self) -> int:
        return sum(one.messages for one in self.sessions)

    @property
    def duplicates(self) -> int:
        return sum(one.duplicates for one in self.sessions)

    @property
    def entries(self) -> int:
        return sum(one.entries for one in self.sessions)

    @property
    def boundaries(self) -> int:
        return sum(one.boundaries for one in self.sessions)


def import_transcript(
    *,
    team: Team,
    stream: IO[bytes],
    name: str,
    format_name: str = AUTO,
    policy: Policy,
    now: datetime,
    progress: Progress | None = None,
) -> ImportReport:
    """Import one file into the team. `stream` is seekable; `name` is the file's name; `progress` gets bytes read.

    The sessions are those that the file names; what they hold already is left as it is. Raises ImportRefused.
    """
    found_here = sessions_in(
        stream=stream, name=name, format_name=format_name, limit=policy.import_line_bytes, progress=progress
    )
    problems = Problems(most=policy.import_kept_problems)
    report = ImportReport(problems=problems.kept)
    with transaction.atomic():
        for found in found_here:
            if isinstance(found, LineProblem):
                problems.note(found)
                continue
            if len(report.sessions) >= policy.import_sessions:
                raise ImportRefused(f"more than {policy.import_sessions:,} conversations (policy: import_sessions)")
            session, created = _session(team=team, found=found)
            told = SessionReport(session=session, created=created)
            report.sessions.append(told)
            store_session(found=found, report=told, problems=problems, policy=policy, now=now)
            if not Message.objects.filter(session=session).exists():
                raise ImportRefused(_nothing_found(problems.kept))
        if not report.sessions:
            raise ImportRefused(_nothing_found(problems.kept))
    report.problem_count = problems.count
    return report


def _session(*, team: Team, found: FoundSession) -> tuple[Session, bool]:
    """The team's session that the file names: by its client's id, or by ours, which an export of ours may carry."""
    if not found.known_as:
        return create_session(team=team, values=dict(found.columns))
    if not Session.objects.filter(team=team, external_id=found.known_as).exists():
        try:
            exported = Session.objects.filter(team=team, uuid=UUID(found.known_as)).first()
        except ValueError:
            exported = None
        if exported is not None:
            return exported, False
    return create_session(team=team, values={**found.columns, "external_id": found.known_as})


def _nothing_found(problems: Sequence[LineProblem]) -> str:
    first = f"; line {problems[0].line_number}: {problems[0].reason}" if problems else ""
    return f"no message in it{first}"
