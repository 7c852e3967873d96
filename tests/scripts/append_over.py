"""Appends one response to the only session there is, as a client does, once it is told to go on.

Usage: python -m tests.scripts.append_over NAME. Prints "ready", waits for a line, prints the run it started or "-".
"""

from __future__ import annotations

import os
import sys

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "compaction_site.settings")
django.setup()

from django.utils import timezone  # noqa: E402

from compaction_app import actions  # noqa: E402
from sessions_app.models import Session  # noqa: E402
from tests.factories import assistant  # noqa: E402

if __name__ == "__main__":
    name = sys.argv[1]
    print("ready", flush=True)
    sys.stdin.readline()
    turn = actions.append_turn(
        session=Session.objects.get(), incoming=[assistant("on " * 9_000, uuid=name)], now=timezone.now()
    )
    print(turn.run.uuid if turn.run else "-", flush=True)
