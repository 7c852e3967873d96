"""What a client tells of its state, so that a compaction can restore it (S15)."""

from __future__ import annotations

from django.db import models

from sessions_app.models import Session
from sessions_app.models.fields import ExactJSONField


class ClientState(models.Model):
    """One row a session: the newest state that its client gave.

    `state`: the body of `state/` as it was accepted (api/state.py): plan, plan_mode, skills, files, tools, agents,
    mcp_instructions. A boundary keeps what was restored from it, so a later state changes no earlier context.
    """

    session = models.OneToOneField(Session, on_delete=models.CASCADE, related_name="client_state")
    state = ExactJSONField(default=dict)
    updated_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"state of {self.session_id}"
