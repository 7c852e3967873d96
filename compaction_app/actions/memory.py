"""The memory of a session: given by a client, or extracted as the session grows (S6)."""

from __future__ import annotations

import logging
from datetime import datetime

from compaction_app import tasks
from compaction_app.models import SessionMemory
from compaction_app.services import memory, runs
from sessions_app.models import Session

logger = logging.getLogger(__name__)


def put_memory(*, session: Session, content: str, covers: str, now: datetime) -> SessionMemory:
    """Keep a client's document. `covers`: uuid of the last message that it covers, "" for the newest. Raises
    MemoryRefused."""
    return memory.put_memory(session=session, content=content, covers=covers, now=now)


def extract_when_due(*, session: Session, now: datetime) -> None:
    """Have the worker extract the memory where enough was appended since it was last written.

    What goes wrong with it takes nothing from the append that asks: the next one asks again.
    """
    try:
        if memory.is_due(session=session, now=now) and memory.ask(session=session, now=now):
            tasks.hand_out_extraction(session_id=session.pk)
    except Exception as error:
        logger.error("the memory of session %s: unexpected %s", session.uuid, runs.describe(error=error))
