"""Appends to the only session there is, as one of several processes.

Usage: python -m tests.scripts.append_many NAME COUNT.
"""

from __future__ import annotations

import os
import sys

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "compaction_site.settings")
django.setup()

from django.utils import timezone  # noqa: E402

from sessions_app.models import Session  # noqa: E402
from sessions_app.services.append import append_messages  # noqa: E402
from tests.factories import assistant, user  # noqa: E402

if __name__ == "__main__":
    name, count = sys.argv[1], int(sys.argv[2])
    session = Session.objects.get()
    for number in range(count):
        turn = [
            user("go", uuid=f"{name}-u{number}"),
            assistant("ok", uuid=f"{name}-a{number}", message_id=f"{name}{number}"),
        ]
        append_messages(session_id=session.pk, incoming=turn, now=timezone.now())
