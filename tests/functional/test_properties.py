"""Whatever a client sends: it is stored to the letter, can be compacted, and each context is one that the API takes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compaction_app import actions
from compaction_app.models import RunStatus
from sessions_app import selectors
from sessions_app.models import CompactBoundary, Session
from sessions_app.services.append import append_messages
from sessions_app.services.incoming import IncomingMessage
from sessions_app.transcript.messages import MessageKind, Role, content_blocks
from sessions_app.transcript.request import build_request
from sessions_app.transcript.rounds import call_spans, cut_points
from sessions_app.transcript.validation import validate_messages
from tests.build import res, text, thinking, use
from tests.factories import make_session

pytestmark = pytest.mark.django_db

# Few ids, so that they are used twice, answered late, twice or never; words of several scripts and hostile characters.
IDS = st.sampled_from(["A", "B", "C", "D"])
WORDS = st.one_of(
    st.sampled_from(
        ["", " ", "go on", "修复登录测试", "로그인", "🎉\u200d", "## 7. Pending Tasks", "x\x00y", "\ud800", "```"]
    ),
    st.text(max_size=40),
    st.integers(1, 400).map(lambda n: "please look at src/app.py and fix the failing test. " * n),
)
USER_BLOCK = st.one_of(
    WORDS.map(text),
    st.builds(res, IDS, st.one_of(WORDS, st.none(), st.lists(WORDS.map(text), max_size=2))),
    st.just({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}),
    st.just({"type": "hologram"}),
)
ASSISTANT_BLOCK = st.one_of(
    WORDS.map(text),
    st.builds(
        lambda i, name, path: use(i, name, file_path=path),
        IDS,
        st.sampled_from(["Read", "Bash", "AskUserQuestion"]),
        WORDS,
    ),
    st.builds(thinking, WORDS, st.sampled_from(["sig", ""])),
    st.just({"type": "redacted_thinking", "data": "x"}),
    st.just({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}),
)
MESSAGE = st.one_of(
    st.builds(
        IncomingMessage,
        role=st.just(Role.USER),
        content=st.one_of(WORDS, st.lists(USER_BLOCK, max_size=4)),
        is_meta=st.booleans(),
    ),
    st.builds(
        IncomingMessage,
        role=st.just(Role.ASSISTANT),
        content=st.lists(ASSISTANT_BLOCK, max_size=4),
        message_id=st.one_of(st.none(), st.sampled_from(["m1", "m2", "m3"])),
        usage=st.one_of(st.none(), st.integers(0, 300_000).map(lambda n: {"input_tokens": n, "output_tokens": 5})),
        is_sidechain=st.sampled_from([False, False, False, True]),
        kind=st.sampled_from([MessageKind.NORMAL] * 5 + [MessageKind.API_ERROR]),
    ),
)
HISTORY = st.lists(MESSAGE, min_size=1, max_size=25)


def _tool_turn(calls: list[tuple[str, str]], noise: list[IncomingMessage], size: int) -> list[IncomingMessage]:
    """A response with parallel calls, something in between perhaps, and the results in another order."""
    blocks = [thinking("hm", "sig"), *(use(call, name) for call, name in calls)]
    results = [res(call, f"{call} line\n" * size) for call, _ in reversed(calls)]
    return [
        IncomingMessage(role=Role.ASSISTANT, content=blocks, message_id=None),
        *noise,
        IncomingMessage(role=Role.USER, content=results),
    ]


CALL = st.tuples(st.sampled_from("ABCDEFGHIJ"), st.sampled_from(["Read", "Bash", "Agent", "mcp__x"]))
TOOL_TURNS = st.lists(
    st.one_of(
        st.builds(
            _tool_turn,
            st.lists(CALL, min_size=1, max_size=3, unique_by=lambda call: call[0]),
            st.one_of(st.just([]), st.just([]), st.lists(MESSAGE, max_size=1)),
            st.integers(1, 60),
        ),
        st.lists(MESSAGE, max_size=2),
    ),
    min_size=1,
    max_size=10,
).map(lambda parts: [message for part in parts for message in part])


def stored(session: Session) -> list[dict[str, Any]]:
    return list(session.messages.order_by("position").values())


def valid(session: Session) -> None:
    messages = build_request(view=selectors.context_view(session=session)).messages
    if messages:
        assert validate_messages(messages=messages) == []


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(first=HISTORY, second=HISTORY)
def test_history_append_compact_request(first: list[IncomingMessage], second: list[IncomingMessage]) -> None:
    session = make_session()
    for part in (first, second):
        append_messages(session_id=session.pk, incoming=part, now=timezone.now())
        history = stored(session)
        assert [repr(row["content"]) for row in history[-len(part) :]] == [repr(entry.content) for entry in part]
        valid(session)
        before = selectors.context_view(session=session)
        run = actions.compact_now(
            session=session, wanted=actions.Wanted(), now=timezone.now(), listener=lambda stage, fraction: None
        )
        assert stored(session) == history, "history unchanged byte for byte"
        valid(session)
        after = selectors.context_view(session=session)
        if run.status == RunStatus.SUCCEEDED:
            assert after.tokens < before.tokens
        else:
            # no_summary: nothing in it that a summary could tell, say injected text alone
            assert run.failure_reason in ("nothing_to_compact", "not_smaller", "no_summary")
            assert after == before, "a failure changes nothing"
        session.refresh_from_db()
        assert session.view_tokens == after.tokens


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=HISTORY)
def test_no_cut_splits_a_call_from_its_result_or_a_response(history: list[IncomingMessage]) -> None:
    session = make_session()
    append_messages(session_id=session.pk, incoming=history, now=timezone.now())
    messages = selectors.context_view(session=session).messages
    for cut in cut_points(messages):
        for call in call_spans(messages):
            if call.result_position is not None:
                assert (call.use_position < cut) == (call.result_position < cut)
    assert all(isinstance(content_blocks(m.content), (list, tuple)) for m in messages)


# Figures that let clearing happen on histories of a few messages.
EAGER = {
    "time_based_keep_results": 0,
    "cache_edit_keep_results": 0,
    "cache_edit_trigger_results": 1,
    "clear_least_tokens": 0,
    "clear_least_result_bytes": 0,
    "compactable_tools": {"*": True},
}


def both_requests(session: Session) -> list[Any]:
    return [
        build_request(view=selectors.context_view(session=session, edits_at_api=at_api)).messages
        for at_api in (False, True)
    ]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(first=TOOL_TURNS, second=TOOL_TURNS, cold=st.booleans(), then_cold=st.booleans())
@pytest.mark.thorough
def test_clearing_never_costs_tokens_nor_validity_and_can_be_undone(
    first: list[IncomingMessage], second: list[IncomingMessage], cold: bool, then_cold: bool
) -> None:
    session = make_session(policy_overrides=EAGER)
    said = timezone.now()
    for part, is_cold in ((first, cold), (second, then_cold)):
        if not part:
            continue
        append_messages(session_id=session.pk, incoming=part, now=said)
        session = Session.objects.select_related("team").get(pk=session.pk)
        history, before, requests = stored(session), session.context_tokens, both_requests(session)
        shown = selectors.context_view(session=session).tokens
        applied = actions.prepare(session=session, now=said + timedelta(seconds=3_600 if is_cold else 0)).applied
        assert stored(session) == history
        after = selectors.context_view(session=session).tokens
        assert session.view_tokens == after <= shown
        assert session.context_tokens <= before
        assert (after < shown) == any(step.ran for step in applied)
        cleared = [step.cleared for step in applied if step.ran]
        for messages in both_requests(session):
            assert not messages or validate_messages(messages=messages) == []
        if cleared:
            newest = CompactBoundary.objects.filter(session=session).order_by("-id")[: len(cleared)]
            CompactBoundary.objects.filter(pk__in=[row.pk for row in newest]).update(reverted_at=timezone.now())
            assert both_requests(session) == requests, "undone, it is byte for byte as before"
            CompactBoundary.objects.filter(pk__in=[row.pk for row in newest]).update(reverted_at=None)
