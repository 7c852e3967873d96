"""Append: the one way into the history. Atomic, idempotent by uuid, gapless, and as costly at the end as at the start.

Steps, all under the session's row lock: look up the uuids that came, split off what is stored already, give positions,
follow the live path, insert, with the texts that are searched, keep the tool-call index and the session's counters.
Nothing here looks at the history's length.
"""

from __future__ import annotations

import hashlib
import json
import uuid as uuids
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction

from sessions_app.catalog import tokenizer_family
from sessions_app.models import Message, Session
from sessions_app.models.fields import storable_text
from sessions_app.services import accounting, live_path, search_texts, tool_index
from sessions_app.services.incoming import IncomingMessage
from sessions_app.transcript.messages import Content, human_text
from sessions_app.transcript.tokens import estimate_content

MODEL_LENGTH, MESSAGE_ID_LENGTH = 200, 255  # the columns' sizes


class UuidConflict(Exception):
    """A uuid that is stored with other content. Nothing of the call was stored."""

    def __init__(self, *, conflicts: Sequence[str]) -> None:
        self.conflicts = tuple(conflicts)
        super().__init__(f"stored already with other content: {', '.join(self.conflicts)}")


@dataclass(slots=True)
class Appended:
    """What became of the entries: stored rows (oldest first), uuids that were known with the same content, and the
    indexes of entries whose uuid is known with other content."""

    stored: list[Message] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    conflicts: list[int] = field(default_factory=list)


def content_digest(*, role: str, content: Content) -> str:
    """What makes two entries with one uuid the same: role and content, whatever the order of keys."""
    return hashlib.sha256(_canonical(role=role, content=content)).hexdigest()


def _canonical(*, role: str, content: Content) -> bytes:
    """Role and content as JSON. Its length stands for the content's size in a request; what is not ASCII counts more
    there than the API gets, which matters for nothing: what fills a body is media, in base64."""
    return json.dumps([role, content], sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def append_messages(*, session_id: int, incoming: Sequence[IncomingMessage], now: datetime) -> tuple[Session, Appended]:
    """Store the entries at the end of the session, all or none.

    An entry without uuid gets one. Raises UuidConflict, and Session.DoesNotExist.
    """
    with transaction.atomic():
        session, appended = store_messages(session_id=session_id, incoming=incoming, now=now)
        if appended.conflicts:
            raise UuidConflict(conflicts=[incoming[index].uuid for index in appended.conflicts])
    return session, appended


def store_messages(*, session_id: int, incoming: Sequence[IncomingMessage], now: datetime) -> tuple[Session, Appended]:
    """As `append_messages`, but a conflict is reported, not raised, and the other entries are stored (importers)."""
    with transaction.atomic():
        session = lock_session(session_id=session_id)
        known = _known(session=session, incoming=incoming)
        appended = _split(session=session, incoming=incoming, known=known, now=now)
        if not appended.stored:
            return session, appended
        entries = {row.uuid: entry for row, entry in zip(appended.stored, _fresh(incoming, appended), strict=True)}
        response = tool_index.Response(session.round_position, session.round_message_id)
        path = live_path.follow(session=session, rows=appended.stored, entries=entries, known=known)
        Message.objects.bulk_create(appended.stored)
        search_texts.record_messages(session=session, rows=appended.stored)
        tool_index.record(session=session, rows=appended.stored, response=response)
        accounting.count_appended(session=session, rows=appended.stored, rewound=path.rewound, now=now)
        session.save()
    return session, appended


def lock_session(*, session_id: int) -> Session:
    """The session's row, locked until the transaction ends. Always the first lock taken.

    `no_key` leaves inserts that refer to the session unblocked on PostgreSQL; SQLite's transactions are
    exclusive from their start (transaction_mode IMMEDIATE). The team comes with it, unlocked: the level rests on its
    figures.
    """
    return Session.objects.select_related("team").select_for_update(of=("self",), no_key=True).get(pk=session_id)


def _known(*, session: Session, incoming: Sequence[IncomingMessage]) -> dict[str, tuple[str, int]]:
    """uuid -> (digest, position) of the stored messages among the uuids and parents that came."""
    wanted = {e.uuid for e in incoming} | {e.path_parent_uuid or e.parent_uuid for e in incoming}
    wanted.discard("")
    if not wanted:
        return {}
    rows = Message.objects.filter(session=session, uuid__in=wanted).values_list("uuid", "digest", "position")
    return {uuid: (digest, position) for uuid, digest, position in rows}


def _split(
    *, session: Session, incoming: Sequence[IncomingMessage], known: Mapping[str, tuple[str, int]], now: datetime
) -> Appended:
    appended = Appended()
    seen = {uuid: digest for uuid, (digest, _) in known.items()}
    for index, entry in enumerate(incoming):
        canonical = _canonical(role=entry.role, content=entry.content)
        digest = hashlib.sha256(canonical).hexdigest()
        stored_digest = seen.get(entry.uuid) if entry.uuid else None
        if stored_digest is None:
            row = _row(session=session, entry=entry, digest=digest, number=len(appended.stored) + 1, now=now)
            row.content_bytes = len(canonical)
            seen[row.uuid] = digest
            appended.stored.append(row)
        elif stored_digest == digest:
            appended.duplicates.append(entry.uuid)
        else:
            appended.conflicts.append(index)
    return appended


def _fresh(incoming: Sequence[IncomingMessage], appended: Appended) -> list[IncomingMessage]:
    """The entries that became rows, in the rows' order."""
    rows = iter(appended.stored)
    row = next(rows, None)
    fresh = []
    for entry in incoming:
        if row is not None and (entry.uuid == row.uuid or (not entry.uuid and row.content is entry.content)):
            fresh.append(entry)
            row = next(rows, None)
    return fresh


def _row(*, session: Session, entry: IncomingMessage, digest: str, number: int, now: datetime) -> Message:
    row = Message(
        session=session,
        position=session.last_position + number,
        uuid=entry.uuid or str(uuids.uuid4()),
        parent_uuid=entry.parent_uuid,
        role=entry.role.value,
        kind=entry.kind.value,
        message_id=storable_text(entry.message_id)[:MESSAGE_ID_LENGTH] if entry.message_id else None,
        model=storable_text(entry.model)[:MODEL_LENGTH],
        content=entry.content,
        envelope=entry.envelope,
        digest=digest,
        usage=entry.usage,
        tokens=estimate_content(content=entry.content, family=tokenizer_family(entry.model or session.model)),
        is_meta=entry.is_meta,
        is_sidechain=entry.is_sidechain,
        sent_at=entry.sent_at or now,
    )
    row.is_prompt = bool(human_text(row.as_value()))
    return row
