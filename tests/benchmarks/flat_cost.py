"""Hot paths on histories of several lengths, beside LangChain's trimming of the same histories.

Theirs holds the messages in memory and stores nothing; so its times compare with ours by how they grow, not by size.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from django.utils import timezone

from compaction_app import actions
from compaction_app.selectors import token_state
from sessions_app import selectors
from sessions_app.models import Session
from sessions_app.services.boundaries import commit_boundary
from sessions_app.transcript.boundary import BoundaryDraft, BoundaryKind
from sessions_app.transcript.request import build_request
from tests.benchmarks.measuring import by_size, skip
from tests.build import res, use
from tests.factories import assistant, bulk_history, make_session, user

SIZES = (100, 10_000, 100_000)
# Tokens; so large that every session is at the same level, and the same is decided after each append.
WINDOW = 10_000_000
# Their act grows with the history; more rounds would only make the run longer.
TRIM_ROUNDS = 10


def append_pair(session: Session, number: int) -> object:
    call = f"c{number}"
    turn = [
        assistant([use(call)], uuid=f"a{number}", message_id=f"bench{number}"),
        user([res(call)], uuid=f"u{number}"),
    ]
    return actions.append_turn(session=session, incoming=turn, now=timezone.now())


def read_context(session: Session, number: int) -> object:
    return build_request(view=selectors.context_view(session=session))


def prepare(session: Session, number: int) -> object:
    fresh = Session.objects.select_related("team").get(pk=session.pk)
    return actions.prepare(session=fresh, now=timezone.now())


def read_token_state(session: Session, number: int) -> object:
    return token_state(session=Session.objects.select_related("team").get(pk=session.pk))


def hide_all_but(session: Session, *, shown: int) -> None:
    """A boundary after which every session shows the same number of messages, whatever lies before."""
    session.refresh_from_db()
    draft = BoundaryDraft(kind=BoundaryKind.FULL, covers_to=session.last_position - shown, summary="what was")
    commit_boundary(
        session_id=session.pk,
        draft=draft,
        trigger="manual",
        expected_head_id=None,
        as_of=session.last_position,
        tokens_before=session.context_tokens,
        now=timezone.now(),
    )


def run() -> None:
    sessions = {size: make_session(policy_overrides={"context_window": WINDOW}) for size in SIZES}
    for size, session in sessions.items():
        bulk_history(session, count=size)
    by_size("append_two_messages", append_pair, sessions)
    for session in sessions.values():
        hide_all_but(session, shown=50)
    by_size("read_context_after_boundary", read_context, sessions)
    by_size("prepare_after_boundary", prepare, sessions)
    by_size("token_state_after_boundary", read_token_state, sessions)
    if importlib.util.find_spec("langchain_core") is None:
        skip("langchain_append_and_trim", why="langchain-core is not installed (requirements-bench.txt)")
    else:
        trim_with_langchain()


def trim_with_langchain() -> None:
    """Append two messages and trim to what our automatic threshold is, counted by their estimate."""
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, trim_messages
    from langchain_core.messages.utils import count_tokens_approximately

    budget = token_state(session=make_session()).auto_compact_threshold

    def history(size: int) -> list[Any]:
        kinds = (AIMessage, HumanMessage)
        return [kinds[number % 2](content=f"message {number}") for number in range(1, size + 1)]

    def append_and_trim(messages: list[Any], number: int) -> object:
        call = {"name": "Read", "args": {}, "id": f"c{number}"}
        messages += [AIMessage(content="", tool_calls=[call]), ToolMessage(content="ok", tool_call_id=f"c{number}")]
        return trim_messages(messages, max_tokens=budget, token_counter=count_tokens_approximately)

    histories = {size: history(size) for size in SIZES}
    by_size("langchain_append_and_trim", append_and_trim, histories, rounds=TRIM_ROUNDS)
