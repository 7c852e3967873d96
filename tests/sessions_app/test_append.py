"""Append: atomic, idempotent, gapless, flat."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from sessions_app.models import Message, Session, ToolCall
from sessions_app.services.append import UuidConflict, append_messages, store_messages
from tests.build import res, use
from tests.factories import NOW, append, assistant, bulk_history, make_session, user

pytestmark = pytest.mark.django_db


def stored(session: Session) -> list[tuple[int, str]]:
    return list(session.messages.order_by("position").values_list("position", "uuid"))


class TestAppendMessages:
    def test_it_works(self) -> None:
        session = make_session()
        rows = append(session, user("go", uuid="1"), assistant("ok", uuid="2", model="claude-sonnet-4-5"))
        assert stored(session) == [(1, "1"), (2, "2")]
        assert session.last_position == session.leaf_position == 2
        assert session.context_tokens == sum(row.tokens for row in rows) > 0
        assert [row.is_prompt for row in rows] == [True, False]

    def test_an_entry_without_uuid_gets_one(self) -> None:
        rows = append(make_session(), user("go"), user("go"))
        assert len({row.uuid for row in rows}) == 2

    def test_the_same_again_changes_nothing(self) -> None:
        session = make_session()
        append(session, user("go", uuid="1"), assistant([use("A", b=1, a=2)], uuid="2"))
        before = Session.objects.filter(pk=session.pk).values().get()
        again = [user("go", uuid="1"), assistant([use("A", a=2, b=1)], uuid="2")]
        _, appended = append_messages(session_id=session.pk, incoming=again, now=NOW)
        assert appended.duplicates == ["1", "2"]
        assert appended.stored == []
        assert Session.objects.filter(pk=session.pk).values().get() == before
        assert ToolCall.objects.filter(session=session).count() == 1

    def test_other_content_for_a_uuid_stores_nothing_of_the_list(self) -> None:
        session = make_session()
        append(session, user("go", uuid="1"))
        with pytest.raises(UuidConflict) as conflict:
            append(session, user("new", uuid="2"), user("changed", uuid="1"))
        assert conflict.value.conflicts == ("1",)
        assert stored(session) == [(1, "1")]

    def test_a_uuid_twice_in_one_list(self) -> None:
        session = make_session()
        _, appended = append_messages(
            session_id=session.pk, incoming=[user("go", uuid="1"), user("go", uuid="1")], now=NOW
        )
        assert (len(appended.stored), appended.duplicates) == (1, ["1"])
        with pytest.raises(UuidConflict):
            append(session, user("x", uuid="2"), user("y", uuid="2"))
        assert stored(session) == [(1, "1")]

    def test_importers_may_store_the_rest_beside_a_conflict(self) -> None:
        session = make_session()
        append(session, user("go", uuid="1"))
        _, appended = store_messages(
            session_id=session.pk, incoming=[user("x", uuid="1"), user("y", uuid="2")], now=NOW
        )
        assert appended.conflicts == [0]
        assert stored(session) == [(1, "1"), (2, "2")]

    def test_positions_have_no_gaps_over_many_appends(self) -> None:
        session = make_session()
        for number in range(20):
            append(session, user(f"{number}", uuid=f"{number}"), user("same", uuid="0-again"))
        assert [position for position, _ in stored(session)] == list(range(1, session.last_position + 1))

    @pytest.mark.parametrize(
        "content",
        [
            "nul \x00 in text",
            "lone \ud800 surrogate",
            "二千九百 汉字 🎉 e\u0301",
            [{"type": "text", "text": "\x00"}, {"type": "future", "z": 1, "a": {"b": [1.0, 1e300, None, True]}}],
            [{"type": "thinking", "thinking": "", "signature": "abc=="}],
        ],
    )
    def test_content_comes_back_to_the_letter(self, content: object) -> None:
        session = make_session()
        append(session, user(content, uuid="1"))
        back = Message.objects.get(session=session).content
        assert back == content
        assert repr(back) == repr(content), "order of keys and kinds of numbers are kept"

    @pytest.mark.parametrize("size", [10, 10_000])
    def test_flat_cost(self, size: int) -> None:
        """Session lock, known uuids, messages, their search texts, open calls, new calls, session."""
        session = make_session()
        bulk_history(session, count=size)
        turn = [assistant([use("A")], uuid="x1", message_id="m"), user([res("A")], uuid="x2")]
        with CaptureQueriesContext(
            connection,
        ) as queries:
            append_messages(session_id=session.pk, incoming=turn, now=NOW)
        statements = [q["sql"] for q in queries if not q["sql"].startswith(("SAVEPOINT", "RELEASE"))]
        assert len(statements) == 7, "\n".join(statements)
        assert not any("COUNT(" in sql or "SUM(" in sql for sql in statements)


class TestToolIndex:
    def test_a_result_is_joined_to_its_use_also_across_appends(self) -> None:
        session = make_session()
        append(session, assistant([use("A", file_path="/x.py"), use("B", "Bash", command="ls")], uuid="1"))
        append(session, user([res("B", "out", is_error=True), res("A", "text " * 50)], uuid="2"))
        calls = {call.tool_use_id: call for call in ToolCall.objects.filter(session=session)}
        assert (calls["A"].name, calls["A"].target, calls["A"].result_position) == ("Read", "/x.py", 2)
        assert calls["A"].result_tokens > 20
        assert (calls["B"].is_error, calls["A"].is_error) == (True, False)

    def test_an_id_used_twice_is_two_calls(self) -> None:
        session = make_session()
        for number in range(2):
            append(session, assistant([use("A")], uuid=f"a{number}", message_id=f"m{number}"))
            append(session, user([res("A")], uuid=f"u{number}"))
        found = ToolCall.objects.filter(session=session).order_by("use_position")
        assert [(c.use_position, c.result_position) for c in found] == [(1, 2), (3, 4)]

    @pytest.mark.parametrize("batch", [1, 2, 5])
    def test_repetitions_count_once_however_they_arrive(self, batch: int) -> None:
        session = make_session()
        entries = [
            user("go", uuid="u"),
            assistant([use("X")], uuid="a", message_id="m"),
            user([res("X")], uuid="r"),
            assistant([use("X")], uuid="a-again", message_id="m"),
            user([res("X")], uuid="r-again"),
        ]
        for start in range(0, len(entries), batch):
            append(session, *entries[start : start + batch])
        found = ToolCall.objects.get(session=session)
        assert (found.use_position, found.result_position) == (2, 3)

    @pytest.mark.parametrize("together", [True, False])
    def test_a_result_may_be_written_before_its_use(self, together: bool) -> None:
        session = make_session()
        result = user([res("A", "early")], uuid="1")
        call = assistant([use("A", file_path="/x.py")], uuid="2")
        if together:
            append(session, result, call)
        else:
            append(session, result)
            append(session, call)
        found = ToolCall.objects.get(session=session)
        assert (found.use_position, found.result_position, found.target) == (2, 1, "/x.py")

    def test_an_orphan_result_is_indexed_as_such(self) -> None:
        session = make_session()
        append(session, user([res("nobody")], uuid="1"))
        found = ToolCall.objects.get(session=session)
        assert (found.use_position, found.result_position, found.name) == (None, 1, "")

    def test_hostile_calls_are_stored(self) -> None:
        session = make_session()
        name = "x" * 5_000 + "\x00"
        append(session, assistant([{"type": "tool_use", "id": name, "name": name, "input": [name]}], uuid="1"))
        append(session, user([res(name)], uuid="2"))
        assert ToolCall.objects.get(session=session).result_position == 2


class TestAccounting:
    def usage(self, prompt: int, output: int = 100) -> dict[str, int]:
        return {"input_tokens": 5, "cache_read_input_tokens": prompt - 5, "output_tokens": output}

    def test_t12_buckets_are_added_once(self) -> None:
        session = make_session()
        usage = {
            "input_tokens": 5_000,
            "cache_read_input_tokens": 110_000,
            "cache_creation_input_tokens": 3_000,
            "output_tokens": 2_000,
        }
        append(session, user("go"), assistant("ok", usage=usage, message_id="m"))
        assert (session.context_tokens, session.context_source) == (120_000, "usage")

    def test_usage_of_one_response_counts_once_whatever_stands_between(self) -> None:
        session = make_session()
        append(
            session,
            user("go"),
            assistant([use("A")], usage=self.usage(1_000, 1), message_id="m"),
            user([res("A", "")]),
            assistant([use("B")], usage=self.usage(1_000, 900), message_id="m"),
        )
        assert 1_900 <= session.context_tokens < 2_100
        assert session.peak_prompt_tokens == 1_000

    @pytest.mark.parametrize(
        "usage", [None, {}, {"input_tokens": None}, {"input_tokens": "many"}, {"input_tokens": 0}, []]
    )
    def test_a_usage_that_says_nothing_never_counts(self, usage: object) -> None:
        session = make_session()
        append(session, user("go"), assistant("ok", usage=usage, message_id="m"))
        assert session.context_source == "estimate"
        assert session.context_tokens == session.view_tokens > 0

    def test_the_first_usage_tells_the_overhead(self) -> None:
        session = make_session()
        append(session, user("hello there"), assistant("ok", usage=self.usage(18_000), message_id="m"))
        assert 17_900 < session.overhead_tokens < 18_000

    def test_without_usage_the_overhead_is_what_system_and_tools_cost(self) -> None:
        session = make_session(system="You are careful. " * 200, tools=[{"name": "Read", "input_schema": {}}])
        assert session.context_tokens == session.overhead_tokens > 500

    def test_t15_an_image_alone_is_not_free(self) -> None:
        session = make_session()
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 4_000_000}}
        append(session, user([image]))
        assert session.context_tokens > 100

    def test_errors_that_no_model_wrote_do_not_count(self) -> None:
        from sessions_app.transcript.messages import MessageKind

        session = make_session()
        append(session, assistant("API Error: overloaded", kind=MessageKind.API_ERROR, usage=self.usage(9_000)))
        assert session.context_tokens == 0
