"""GET sessions/{id}/messages/."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.models import Session
from tests.api.queries import assert_same_count, queries_of
from tests.build import res, use
from tests.cast import Api, Cast, errors
from tests.factories import append, assistant, bulk_history, make_session, turns, user

FIELDS = {
    "uuid",
    "position",
    "role",
    "kind",
    "content",
    "message_id",
    "parent_uuid",
    "model",
    "usage",
    "estimated_tokens",
    "is_meta",
    "is_sidechain",
    "on_live_path",
    "timestamp",
}


def path(session: Session) -> str:
    return f"sessions/{session.uuid}/messages/"


def positions(answer: Any) -> list[int]:
    assert answer.status_code == 200, answer.content
    return [row["position"] for row in answer.json()["results"]]


class TestHistory:
    def test_it_works(self, api: Api, session: Session) -> None:
        append(session, *turns(2))
        answer = api.read(path(session))
        assert positions(answer) == list(range(1, 9)), "oldest first"
        row = answer.json()["results"][1]
        assert set(row) == FIELDS
        assert row["content"] == [use("c0", file_path="/srv/app/file_0.py")]
        assert (row["role"], row["kind"], row["message_id"], row["uuid"]) == ("assistant", "normal", "r0", "a0")
        assert (row["parent_uuid"], row["model"], row["usage"], row["on_live_path"]) == (None, None, None, True)
        assert row["timestamp"] == "2026-11-03T09:00:00Z"

    def test_what_was_left_behind_is_shown_as_such(self, api: Api, session: Session) -> None:
        append(session, *turns(2))
        append(session, user("another way", uuid="x", parent_uuid="b0"))
        rows = api.read(path(session)).json()["results"]
        assert [row["on_live_path"] for row in rows] == [True] * 4 + [False] * 4 + [True]

    def test_pages(self, api: Api, session: Session) -> None:
        append(session, *turns(3))
        first = api.read(path(session), page_size=5)
        assert positions(first) == [1, 2, 3, 4, 5]
        second = api.read(first.json()["next"])
        assert positions(second) == [6, 7, 8, 9, 10]
        assert positions(api.read(second.json()["next"])) == [11, 12]
        assert positions(api.read(second.json()["previous"])) == [1, 2, 3, 4, 5]

    @pytest.mark.parametrize(
        ("params", "expected"),
        [
            ({"after": 10}, [11, 12]),
            ({"before": 3}, [1, 2]),
            ({"after": 2, "before": 5}, [3, 4]),
            ({"role": "assistant", "before": 9}, [2, 4, 6, 8]),
            ({"tool": "Read", "after": 8}, [10, 11]),
            ({"tool": "read"}, []),
            ({"tool": "Bash"}, []),
            ({"q": "PLEASE do step 1"}, [5]),
            ({"q": "file_2.py"}, [10, 12]),
            ({"q": "%"}, []),
            ({"q": "Read", "role": "user"}, []),
        ],
    )
    def test_filters(self, api: Api, session: Session, params: dict[str, Any], expected: list[int]) -> None:
        append(session, *turns(3))
        assert positions(api.read(path(session), **params)) == expected

    @pytest.mark.parametrize("q", ["二千", "🎉", 'say "hi"', "C:\\temp", "a\nb", "é", "tab\there", "100%", "a_b"])
    @pytest.mark.parametrize("beside", ["", " and a lone \ud800"])
    def test_search_finds_text_as_it_was_written(self, api: Api, session: Session, q: str, beside: str) -> None:
        append(session, user(f"before {q} after{beside}"), user([res("A", f"{q}{beside}")]), user("nothing, axb"))
        assert positions(api.read(path(session), q=q)) == [1, 2]

    def test_the_tool_filter_stays_in_the_session(self, api: Api, cast: Cast, session: Session) -> None:
        append(session, user("a"), user("b"))
        append(make_session(cast.alices_team), user("a"), assistant([use("A")]))
        assert positions(api.read(path(session), tool="Read")) == []

    @pytest.mark.parametrize(
        ("params", "attr"),
        [
            ({"after": "x"}, "after"),
            ({"after": "-1"}, "after"),
            ({"before": "1.5"}, "before"),
            ({"before": "9" * 30}, "before"),
            ({"role": "tool"}, "role"),
            ({"tool": "\x00"}, "tool"),
            ({"page_size": "x"}, "page_size"),
        ],
    )
    def test_a_bad_parameter_is_named(self, api: Api, session: Session, params: dict[str, str], attr: str) -> None:
        answer = api.read(path(session), **params)
        assert (answer.status_code, [a for _, a in errors(answer)]) == (400, [attr])

    def test_queries(self, api: Api, cast: Cast) -> None:
        """key, last use, session, page."""
        counts = []
        for size in (10, 10_000):
            session = make_session(cast.alices_team)
            bulk_history(session, count=size)
            counts.append(queries_of(lambda session=session: api.read(path(session), page_size=500)))
        assert_same_count(*counts, most=4)
