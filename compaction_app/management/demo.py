"""The demonstration that `make run` opens with: a team, its administrator and key, the sample session, compacted.

Safe to repeat: everything is looked up first, and nothing is made twice.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from django.conf import settings
from django.contrib.auth import get_user_model
from django.utils import timezone

from compaction_app import actions
from compaction_app.llm.extractive import NAME as EMBEDDED
from compaction_app.models import CompactionRun, RunStatus
from sessions_app.models import Membership, Session
from sessions_app.services.teams import KEY_PREFIX, add_api_key, get_or_create_team

TEAM = "demo"
SAMPLE = Path(settings.BASE_DIR) / "samples" / "coding-session.jsonl"
WAIT_SECONDS = 120

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Credentials:
    username: str
    password: str
    api_key: str


def show(*, address: str, say: Say) -> None:
    """Prepare the demonstration and print login, key, figures and addresses."""
    credentials = _credentials(path=Path(settings.DATA_DIR) / "demo-credentials.json")
    team, _ = get_or_create_team(slug=TEAM)
    user, created = get_user_model().objects.get_or_create(
        username=credentials.username, defaults={"is_staff": True, "is_superuser": True}
    )
    if created:
        user.set_password(credentials.password)
        user.save()
    Membership.objects.get_or_create(team=team, user=user, defaults={"role": Membership.Role.OWNER})
    add_api_key(team=team, key=credentials.api_key, name="demo")
    say("importing the sample session …")
    session = _import_sample(team=team, say=say)
    run = _compact_once(session=session, say=say)
    _print(credentials=credentials, session=session, run=run, address=address, say=say)


def _credentials(*, path: Path) -> Credentials:
    """Made once and kept in a file that only its owner can read, so that a second start can print them again."""
    try:
        return Credentials(**json.loads(path.read_text()))
    except FileNotFoundError:
        made = Credentials(
            username="admin", password=secrets.token_urlsafe(9), api_key=KEY_PREFIX + secrets.token_urlsafe(32)
        )
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as out:
            json.dump(asdict(made), out)
        return made


def _import_sample(*, team: object, say: Say) -> Session:
    with SAMPLE.open("rb") as stream:
        report = actions.import_file(
            team=team,  # type: ignore[arg-type]
            stream=stream,
            name=SAMPLE.name,
            format_name="auto",
            now=timezone.now(),
        )
    say(f"  {report.messages} messages stored, {report.duplicates} known already")
    return report.session


def _compact_once(*, session: Session, say: Say) -> CompactionRun | None:
    done = CompactionRun.objects.filter(session=session, status=RunStatus.SUCCEEDED).order_by("-id").first()
    if done is not None:
        return done
    say("compacting it in the background worker …")
    try:
        run = actions.request_compaction(
            session=session,
            wanted=actions.Wanted(summarizer=EMBEDDED),  # whatever key there is: a demonstration costs nothing
            now=timezone.now(),
            source=CompactionRun.Source.COMMAND,
        )
    except actions.ActiveRun as active:
        run = active.run
    deadline, stage = time.monotonic() + WAIT_SECONDS, ""
    while time.monotonic() < deadline:
        run.refresh_from_db()
        if run.stage != stage:
            stage = run.stage
            say(f"  {stage} ({run.progress:.0%})")
        if not run.is_active:
            return run
        time.sleep(0.1)
    return run


def _print(*, credentials: Credentials, session: Session, run: CompactionRun | None, address: str, say: Say) -> None:
    if run is not None and run.status == RunStatus.SUCCEEDED and run.tokens_before and run.tokens_after is not None:
        share = 100 * run.tokens_after / run.tokens_before
        say(f"  before {run.tokens_before:,} tokens, after {run.tokens_after:,} tokens ({share:.0f}%, both estimated)")
    elif run is not None and run.is_active:
        say("  not finished yet: is a worker running? It goes on as soon as there is one.")
    elif run is not None:
        say(f"  the compaction ended as {run.status}: {run.detail}")
    session_page = f"{address}/admin/sessions_app/session/{session.pk}/history/"
    say("")
    say(f"  Admin      {address}/admin/     login {credentials.username}   password {credentials.password}")
    say(f"  Session    {session_page}")
    say(f"  API docs   {address}/api/docs/")
    say(f"  API key    {credentials.api_key}")
    say(f'  Try        curl -H "Authorization: Bearer {credentials.api_key}" \\')
    say(f"               {address}/api/v1/sessions/{session.uuid}/context/")
    say("")
    say("Serving. Ctrl-C stops.")
