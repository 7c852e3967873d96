"""What the generated calls meet: sessions in several states, of a team whose key is printed with the ids, as JSON.

Run as a script, with DATA_DIR naming the folder of the database.
"""

from __future__ import annotations

import json
import os
from typing import Any

SESSIONS = 6  # that are written to; each is compacted
VICTIMS = 40  # that DELETE may take


def seed() -> dict[str, Any]:
    """`key`: that writes; `ids`: parameter of a path -> ids there are; `victims`: the same for DELETE."""
    from django.utils import timezone

    from compaction_app import actions
    from compaction_app.models import CompactionRun, TranscriptImport
    from sessions_app.services.teams import create_api_key
    from tests.factories import append, make_session, make_team, turns

    team = make_team("fuzz")
    team.policy_overrides = {"api_requests_per_minute": 0}
    team.save()
    _, key = create_api_key(team=team)
    now = timezone.now()

    def compacted(**values: Any) -> CompactionRun:
        session = make_session(team, **values)
        append(session, *turns(40))
        return actions.compact_now(session=session, wanted=actions.Wanted(), now=now, listener=lambda *_: None)

    runs = [compacted(title=f"compacted {number}", external_id=f"s-{number}") for number in range(SESSIONS)]
    runs.append(compacted(policy_overrides={"approve_compactions": True, "reactive_compact": True}))
    empty = make_session(team, title="empty")
    failed = CompactionRun.objects.create(
        session=runs[0].session, trigger="manual", status="failed", failure_reason="no_summary", queued_at=now
    )
    hooks = [
        actions.create_hook(team=team, event="post_compact", values={"url": f"https://example.com/{number}"})
        for number in range(3)
    ]
    imported = TranscriptImport.objects.create(team=team, name="a.jsonl", format="auto", size_bytes=3, queued_at=now)
    victims = [make_session(team, title=f"victim {number}") for number in range(VICTIMS)]
    for session in victims:
        append(session, *turns(3))
    ids = {
        "session_id": [run.session.uuid for run in runs] + [empty.uuid],
        "run_id": [run.uuid for run in runs] + [failed.uuid],
        # One that waits for approval has no end that a watcher could wait for.
        "ended_run_id": [run.uuid for run in runs if run.boundary] + [failed.uuid],
        "boundary_id": [run.boundary.uuid for run in runs if run.boundary],
        "hook_id": [hook.uuid for hook in hooks[:2]],
        "import_id": [imported.uuid],
    }
    doomed = {"session_id": [session.uuid for session in victims], "hook_id": [hooks[2].uuid]}
    return {"key": key, "ids": _texts(ids), "victims": _texts(doomed)}


def _texts(ids: dict[str, list[Any]]) -> dict[str, list[str]]:
    return {name: [str(one) for one in values] for name, values in ids.items()}


if __name__ == "__main__":
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "compaction_site.settings")
    django.setup()
    print(json.dumps(seed()))
