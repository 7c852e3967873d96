"""The demonstration's transcript, imported."""

from __future__ import annotations

from pathlib import Path

from django.utils import timezone

from sessions_app.policy import Policy
from sessions_app.services.transcripts import ImportReport, import_transcript
from tests.factories import make_team

SAMPLE = Path(__file__).resolve().parent.parent.parent / "samples" / "coding-session.jsonl"


def import_sample() -> ImportReport:
    with SAMPLE.open("rb") as stream:
        return import_transcript(team=make_team(), stream=stream, name=SAMPLE.name, policy=Policy(), now=timezone.now())
