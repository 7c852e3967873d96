"""POST sessions/{id}/reset-breaker/, and the filters that find open breakers."""

from __future__ import annotations

from typing import Any

import pytest

from compaction_app.models import CompactionRun, CompactionState, TelemetryEvent
from sessions_app.models import Session
from tests.api.queries import assert_same_count, queries_of
from tests.cast import Api, Cast, errors
from tests.factories import NOW, bulk_history, make_session
from tests.pressure import almost_full, answer


def open_breaker(session: Session) -> Session:
    CompactionState.objects.create(
        session=session, consecutive_failures=3, last_failure="no_summary", opened_at=NOW, opened_by="failures"
    )
    return session


class TestReset:
    def test_it_works(self, api: Api, session: Session) -> None:
        open_breaker(session)
        told = api.send(f"sessions/{session.uuid}/reset-breaker/")
        assert told.status_code == 200
        assert told.json() == api.read(f"sessions/{session.uuid}/token-state/").json()
        assert (told.json()["breaker_open"], told.json()["consecutive_failures"], told.json()["detail"]) == (
            False,
            0,
            None,
        )
        assert TelemetryEvent.objects.get().payload["cause"] == "reset"

    def test_again_changes_nothing(self, api: Api, session: Session) -> None:
        open_breaker(session)
        first = api.send(f"sessions/{session.uuid}/reset-breaker/", {})
        again = api.send(f"sessions/{session.uuid}/reset-breaker/", {})
        assert (again.status_code, again.json()) == (200, first.json())
        assert TelemetryEvent.objects.count() == 1

    def test_it_compacts_nothing_by_itself(self, api: Api, cast: Cast) -> None:
        session = open_breaker(almost_full(cast.alices_team))
        assert answer(session).run is None
        api.send(f"sessions/{session.uuid}/reset-breaker/")
        assert not CompactionRun.objects.exists()
        assert answer(session).run is not None

    @pytest.mark.parametrize(
        ("body", "expected"),
        [({"why": "x"}, [("unknown_field", "why")]), ([], [("invalid", None)]), ("x", [("invalid", None)])],
    )
    def test_what_is_said_besides_is_refused(
        self, api: Api, session: Session, body: Any, expected: list[tuple[str, str | None]]
    ) -> None:
        open_breaker(session)
        told = api.send(f"sessions/{session.uuid}/reset-breaker/", body)
        assert (told.status_code, errors(told)) == (400, expected)
        assert CompactionState.objects.get().opened_at == NOW

    def test_queries(self, api: Api, cast: Cast) -> None:
        """key, session; lock, state, state's update (2), event."""
        counts = []
        for size in (10, 10_000):
            session = open_breaker(make_session(cast.alices_team))
            bulk_history(session, count=size)
            path = f"sessions/{session.uuid}/reset-breaker/"
            counts.append(queries_of(lambda path=path: api.send(path)))
        assert_same_count(*counts, most=7)


class TestSessions:
    def test_list_and_detail_tell_level_and_breaker(self, api: Api, cast: Cast) -> None:
        session = open_breaker(almost_full(cast.alices_team))
        [row] = api.read("sessions/").json()["results"]
        detail = api.read(f"sessions/{session.uuid}/").json()
        assert (row["level"], row["breaker_open"]) == (detail["level"], detail["breaker_open"]) == ("error", True)
        [other] = api.read("sessions/", breaker_open="false").json()["results"] or [None]
        assert other is None

    @pytest.mark.parametrize(
        ("params", "expected"),
        [
            ({"breaker_open": "true"}, ["open"]),
            ({"breaker_open": "false"}, ["closed", "never"]),
            ({"level": "error"}, ["open"]),
            ({"level": "ok"}, ["closed", "never"]),
            ({"level": "ok", "breaker_open": "true"}, []),
        ],
    )
    def test_filters(self, api: Api, cast: Cast, params: dict[str, str], expected: list[str]) -> None:
        make_session(cast.alices_team, external_id="never")
        CompactionState.objects.create(session=make_session(cast.alices_team, external_id="closed"))
        Session.objects.filter(pk=open_breaker(almost_full(cast.alices_team)).pk).update(external_id="open")
        open_breaker(make_session(cast.charlies_team, external_id="foreign"))
        assert [row["external_id"] for row in api.read("sessions/", **params).json()["results"]] == expected

    def test_a_threshold_out_of_reach_counts_as_the_list_tells_it(self, api: Api, cast: Cast) -> None:
        """Also before a decision has stored it, and not any more once the threshold can be reached."""
        figures = {"context_window": 32_768}
        tools = [{"name": "big", "description": "word " * 40_000, "input_schema": {"type": "object"}}]
        make_session(cast.alices_team, external_id="out of reach", tools=tools, policy_overrides=figures)
        CompactionState.objects.create(
            session=make_session(cast.alices_team, external_id="reachable again"),
            opened_at=NOW,
            opened_by="unreachable",
        )
        for value, name in (("true", "out of reach"), ("false", "reachable again")):
            [row] = api.read("sessions/", breaker_open=value).json()["results"]
            assert (row["external_id"], row["breaker_open"]) == (name, value == "true")
            detail = api.read(f"sessions/{row['id']}/token-state/").json()
            assert detail["breaker_open"] is row["breaker_open"]

    @pytest.mark.parametrize("params", [{"breaker_open": "perhaps"}, {"level": "full"}])
    def test_what_is_no_value_is_refused(self, api: Api, params: dict[str, str]) -> None:
        answer = api.read("sessions/", **params)
        assert (answer.status_code, errors(answer)) == (400, [("invalid_choice", next(iter(params)))])

    def test_the_list_costs_no_query_a_row(self, api: Api, cast: Cast) -> None:
        counts = []
        for _ in range(2):
            for _ in range(3):
                open_breaker(make_session(cast.alices_team))
                make_session(cast.alices_team)
            counts.append(queries_of(lambda: api.read("sessions/")))
        assert_same_count(*counts, most=2)
