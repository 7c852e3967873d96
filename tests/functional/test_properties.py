"""Whatever a client sends: it is stored to the letter, can be compacted, and each context is one that the API takes."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compaction_app import actions
from compaction_app.models import RunStatus
from sessions_app import selectors
from sessions_app.models import Session
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
            session=session, instructions="", now=timezone.now(), listener=lambda stage, fraction: None
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
