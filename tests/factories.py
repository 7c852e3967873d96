"""Rows for tests, made through the services wherever a service makes them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from compaction_app.models import CompactionRun, ModelCall
from sessions_app.models import Message, Session, Team
from sessions_app.services.append import append_messages, content_digest
from sessions_app.services.incoming import IncomingMessage
from sessions_app.services.sessions import create_session
from sessions_app.transcript.messages import Role
from tests.build import res, use

NOW = datetime(2026, 11, 3, 9, 0, tzinfo=UTC)
_numbers = itertools.count(1)


def make_team(slug: str = "") -> Team:
    slug = slug or f"team-{next(_numbers)}"
    return Team.objects.create(slug=slug, name=slug.title())


def make_session(team: Team | None = None, **values: Any) -> Session:
    session, _ = create_session(team=team or make_team(), values={"model": "claude-sonnet-4-5", **values})
    return session


def user(content: Any, **more: Any) -> IncomingMessage:
    return IncomingMessage(role=Role.USER, content=content, **more)


def assistant(content: Any, **more: Any) -> IncomingMessage:
    return IncomingMessage(role=Role.ASSISTANT, content=content, **more)


def append(session: Session, *incoming: IncomingMessage, now: datetime = NOW) -> list[Message]:
    _, appended = append_messages(session_id=session.pk, incoming=incoming, now=now)
    session.refresh_from_db()
    return appended.stored


def turns(count: int, *, start: int = 0, size: int = 400) -> Iterable[IncomingMessage]:
    """`count` turns of four messages: a prompt, a Read, its result, an answer."""
    for number in range(start, start + count):
        yield user(f"please do step {number}", uuid=f"u{number}")
        yield assistant(
            [use(f"c{number}", file_path=f"/srv/app/file_{number % 9}.py")], uuid=f"a{number}", message_id=f"r{number}"
        )
        yield user([res(f"c{number}", f"def step_{number}(): ...\n" * (size // 10))], uuid=f"t{number}")
        yield assistant(f"Step {number} is done in file_{number % 9}.py", uuid=f"b{number}", message_id=f"s{number}")


def make_call(run: CompactionRun, **values: Any) -> ModelCall:
    """A call that shared its prefix and was answered by a summary; `values` make another of it."""
    given: dict[str, Any] = {
        "ordinal": 1,
        "way": "cached_prefix",
        "model": "claude-sonnet-4-5-20250929",
        "prompt_version": "1",
        "started_at": NOW,
        "seconds": 12.345,
        "request_tokens": 101_234,
        "request_bytes": 412_345,
        "outcome": "ok",
        "request_id": "req_1",
        "response_id": "msg_1",
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1_200, "cache_read_input_tokens": 95_000, "output_tokens": 1_300},
        "cost_usd": Decimal("0.051250"),
        "cost_uncached_usd": Decimal("0.320000"),
    }
    return ModelCall.objects.create(run=run, **(given | values))


def bulk_history(session: Session, *, count: int) -> None:
    """Fill a session with `count` plain messages fast, past the services, keeping its counters right."""
    rows = [
        Message(
            session=session,
            position=number,
            uuid=f"bulk-{number}",
            role="user" if number % 2 else "assistant",
            message_id=None if number % 2 else f"bulk-msg-{number}",
            content=f"message {number}",
            digest=content_digest(role="user", content=f"message {number}"),
            tokens=3,
            is_prompt=bool(number % 2),
            sent_at=NOW,
        )
        for number in range(1, count + 1)
    ]
    Message.objects.bulk_create(rows, batch_size=1_000)
    session.last_position = session.leaf_position = count
    session.view_tokens = session.context_tokens = 3 * count
    session.save()
