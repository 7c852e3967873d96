"""Where files and plans are looked for to restore them: the newest calls, at the same cost for any history."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from sessions_app.models import Message, Session, ToolCall
from sessions_app.selectors import touched_files
from tests.build import res, use
from tests.factories import append, assistant, bulk_history, make_session, turns, user

pytestmark = pytest.mark.django_db


def positions(session: Session, *, up_to: int = 10_000, most_calls: int = 400) -> list[int]:
    return [m.position for m in touched_files(session=session, up_to=up_to, most_calls=most_calls)]


def call(session: Session, number: str, name: str, **arguments: Any) -> None:
    append(session, assistant([use(number, name, **arguments)]), user([res(number)]))


class TestWhatIsFound:
    def test_calls_on_files_with_their_results_oldest_first(self) -> None:
        session = make_session()
        append(session, *turns(3))
        assert positions(session) == [2, 3, 6, 7, 10, 11]

    def test_only_the_newest(self) -> None:
        session = make_session()
        append(session, *turns(3))
        assert positions(session, most_calls=2) == [6, 7, 10, 11]

    def test_nothing_behind_where_it_looks(self) -> None:
        session = make_session()
        append(session, *turns(3))
        assert positions(session, up_to=6) == [2, 3, 6]

    def test_the_newest_of_all_tools_together(self) -> None:
        session = make_session()
        for number, name in enumerate(["Read", "Edit", "Bash", "Skill", "Write", "MultiEdit", "NotebookEdit"]):
            call(session, f"c{number}", name, file_path="/a")
        assert positions(session, most_calls=3) == [9, 10, 11, 12, 13, 14]
        assert positions(session) == [1, 2, 3, 4, *range(7, 15)]

    def test_a_skills_text_comes_behind_its_result(self) -> None:
        session = make_session()
        call(session, "s", "Skill", skill="deploy")
        append(session, user("Base directory for this skill: /s"), user("more"))
        assert positions(session) == [1, 2, 3]
        assert positions(session, up_to=2) == [1, 2]

    def test_the_last_plan_however_long_ago(self) -> None:
        session = make_session()
        call(session, "p1", "ExitPlanMode", plan="old")
        call(session, "p2", "ExitPlanMode", plan="new")
        append(session, *turns(3))
        assert positions(session, most_calls=1) == [3, 4, 14, 15]

    def test_what_was_left_behind_by_a_rewind_is_not(self) -> None:
        session = make_session()
        append(session, *turns(3))
        append(session, user("another way", uuid="n", parent_uuid="b0"))
        assert positions(session) == [2, 3]

    def test_nor_are_sidechains(self) -> None:
        session = make_session()
        append(session, *turns(2))
        Message.objects.filter(position__in=[2, 3]).update(is_sidechain=True)
        assert positions(session) == [6, 7]

    def test_a_call_that_is_open(self) -> None:
        session = make_session()
        append(session, user("go"), assistant([use("c", "Read", file_path="/a")]))
        assert positions(session) == [2]

    def test_an_empty_session(self) -> None:
        assert positions(make_session()) == []


class TestCost:
    def busy(self, *, count: int) -> Session:
        """`count` messages and as many calls of another tool, then some on files."""
        session = make_session()
        bulk_history(session, count=count)
        ToolCall.objects.bulk_create(
            (
                ToolCall(session=session, tool_use_id=f"b{n}", name="Bash", use_position=n, result_position=n)
                for n in range(1, count + 1)
            ),
            batch_size=1_000,
        )
        append(session, *turns(10, size=10))
        return session

    def test_it_is_the_same_at_100_and_10_000_messages(self) -> None:
        costs = []
        for count in (100, 10_000):
            session = self.busy(count=count)
            with CaptureQueriesContext(connection) as captured:
                found = touched_files(session=session, up_to=session.last_position, most_calls=5)
            costs.append((len(captured), len(found)))
        assert costs[0] == costs[1] == (8, 10)  # six kinds of tools, the plan, the messages

    def test_each_look_up_is_bounded_by_an_index(self) -> None:
        if connection.vendor != "sqlite":
            pytest.skip("reads SQLite's query plan")
        session = self.busy(count=100)
        with CaptureQueriesContext(connection) as captured:
            touched_files(session=session, up_to=session.last_position, most_calls=5)
        for query in captured:
            with connection.cursor() as cursor:
                cursor.execute("EXPLAIN QUERY PLAN " + query["sql"].replace("%", "%%"))
                plan = " ".join(row[-1] for row in cursor.fetchall())
            assert "SCAN" not in plan, plan
            if "sessions_app_toolcall" in query["sql"]:
                assert "tool_call_by_name" in plan
                assert "TEMP B-TREE" not in plan, plan
