"""telemetry/: events as they were emitted, and what they come to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from compaction_app import actions
from compaction_app.engine.breaker import OpenedBy
from compaction_app.models import CompactionRun, RunStatus, TelemetryEvent
from compaction_app.selectors.telemetry import telemetry_summary
from sessions_app.models import CompactBoundary, Session, Team
from sessions_app.transcript.window import Level
from tests.api.queries import assert_same_count, queries_of
from tests.cast import Api, Cast, errors
from tests.factories import NOW, append, make_session, turns

EVENTS, SUMMARY = "telemetry/events/", "telemetry/summary/"
NOBODY = "6dcb4a8b-0000-4000-8000-000000000000"
DAY = timedelta(days=1)


def event(session: Session, name: str = "tengu_compact", *, at: datetime = NOW, **more: Any) -> TelemetryEvent:
    return TelemetryEvent.objects.create(team=session.team, session=session, name=name, at=at, **more)


def ran(session: Session, *, at: datetime = NOW, seconds: float = 10, freed: int = 700, **values: Any) -> CompactionRun:
    """A run that ended at `at`; where it succeeded, with the boundary that it wrote, of a context of 1,000 tokens."""
    status = values.setdefault("status", RunStatus.SUCCEEDED)
    trigger = values.setdefault("trigger", "auto")
    if status == RunStatus.SUCCEEDED:
        values["boundary"] = wrote(
            session, kind=values.pop("kind", "full"), trigger=trigger, summary="s", created_at=at, freed=freed
        )
    start = at - timedelta(seconds=seconds)
    return CompactionRun.objects.create(session=session, queued_at=start, started_at=start, finished_at=at, **values)


def wrote(session: Session, *, freed: int, **values: Any) -> CompactBoundary:
    common = {"covers_to": 0, "committed_at_position": 0, "tokens_before": 1_000, "tokens_after": 1_000 - freed}
    return CompactBoundary.objects.create(session=session, **common, **values)


def read(api: Api, **params: Any) -> dict[str, Any]:
    answer = api.read(SUMMARY, **params)
    assert answer.status_code == 200, answer.content
    return answer.json()


class TestEvents:
    def test_it_works(self, api: Api, session: Session) -> None:
        append(session, *turns(40))
        run = actions.compact_now(session=session, wanted=actions.Wanted(), now=NOW, listener=lambda *_: None)
        [row] = api.read(EVENTS, name="tengu_compact").json()["results"]
        assert set(row) == {"id", "name", "at", "session", "run", "payload"}
        stored = TelemetryEvent.objects.get(name="tengu_compact")
        assert (row["id"], row["name"], row["payload"]) == (str(stored.uuid), "tengu_compact", stored.payload)
        assert (row["session"], row["run"]) == (str(session.uuid), str(run.uuid))

    def test_newest_first_page_by_page(self, api: Api, session: Session) -> None:
        for number in range(3):
            event(session, f"e{number}")
        first = api.read(EVENTS, page_size=2)
        names = [row["name"] for answer in (first, api.read(first.json()["next"])) for row in answer.json()["results"]]
        assert names == ["e2", "e1", "e0"]

    def test_filters(self, api: Api, cast: Cast, session: Session) -> None:
        run = ran(session)
        event(session, "one", run=run)
        event(make_session(cast.alices_team), "two", at=NOW + DAY)
        for params, names in (
            ({}, ["two", "one"]),
            ({"name": "one"}, ["one"]),
            ({"name": "on"}, []),
            ({"session": str(session.uuid)}, ["one"]),
            ({"session": NOBODY}, []),
            ({"run": str(run.uuid)}, ["one"]),
            ({"after": NOW.isoformat()}, ["two", "one"]),
            ({"after": (NOW + DAY).isoformat()}, ["two"]),
            ({"before": (NOW + DAY).isoformat()}, ["one"]),
        ):
            assert [row["name"] for row in api.read(EVENTS, **params).json()["results"]] == names, params

    def test_an_erased_session_leaves_its_events(self, api: Api, session: Session) -> None:
        event(session)
        TelemetryEvent.objects.update(session=None)
        [row] = api.read(EVENTS).json()["results"]
        assert (row["session"], row["run"]) == (None, None)

    @pytest.mark.parametrize("params", [{"session": "1"}, {"run": "x"}, {"after": "soon"}, {"name": "\x00"}])
    def test_a_bad_parameter_is_named(self, api: Api, params: dict[str, str]) -> None:
        answer = api.read(EVENTS, **params)
        assert (answer.status_code, [attr for _, attr in errors(answer)]) == (400, list(params))

    def test_queries(self, api: Api, session: Session) -> None:
        """Key, page."""
        counts = []
        for number in (1, 30):
            for _ in range(number):
                event(session, run=ran(session, status=RunStatus.CANCELLED))
            counts.append(queries_of(lambda: api.read(EVENTS)))
        assert_same_count(*counts, most=2)
        assert not any("COUNT(" in sql for sql in counts[1])


@pytest.mark.usefixtures("now")
class TestSummary:
    def test_an_empty_team(self, cast: Cast) -> None:
        body = read(cast.charlie)
        assert (body["since"], body["until"]) == ("2026-10-05", "2026-11-03")
        assert [row["day"] for row in body["days"]] == [str((NOW - n * DAY).date()) for n in reversed(range(30))]
        nothing = {
            "compactions": [],
            "compaction_count": 0,
            "tokens_before": 0,
            "tokens_after": 0,
            "tokens_freed": 0,
            "failures": [],
            "failure_count": 0,
            "clearings": 0,
            "tokens_cleared": 0,
            "cost_usd": None,
            "cost_uncached_usd": None,
            "cache_share": None,
            "breaker_openings": 0,
            "memory_extractions": 0,
            "reverts": 0,
        }
        assert body["totals"] == nothing
        assert body["days"][-1] == {"day": "2026-11-03", **nothing}
        assert (body["median_seconds"], body["p90_seconds"], body["models"], body["top_sessions"]) == (
            None,
            None,
            [],
            [],
        )
        assert (body["sessions"], body["active_sessions"]) == (0, 0)
        assert body["levels"] == [{"level": level.value, "sessions": 0} for level in Level]

    def test_compactions_by_kind_and_trigger_and_day(self, api: Api, session: Session) -> None:
        ran(session, at=NOW - DAY, freed=700)
        ran(session, freed=600)
        ran(session, freed=100, kind="partial_from", trigger="manual")
        body = read(api)
        full = {"kind": "full", "trigger": "auto", "count": 2}
        assert body["totals"]["compactions"] == [
            {**full, "tokens_before": 2_000, "tokens_after": 700, "tokens_freed": 1_300},
            {
                "kind": "partial_from",
                "trigger": "manual",
                "count": 1,
                "tokens_before": 1_000,
                "tokens_after": 900,
                "tokens_freed": 100,
            },
        ]
        assert (body["totals"]["compaction_count"], body["totals"]["tokens_freed"]) == (3, 1_400)
        assert [(day["compaction_count"], day["tokens_freed"]) for day in body["days"][-3:]] == [
            (0, 0),
            (1, 700),
            (2, 700),
        ]

    def test_clearings_are_told_apart(self, api: Api, session: Session) -> None:
        wrote(session, kind="microcompact", trigger="prepare", created_at=NOW, freed=300)
        totals = read(api)["totals"]
        assert (totals["clearings"], totals["tokens_cleared"], totals["compactions"]) == (1, 300, [])

    def test_what_came_with_a_transcript_or_was_brought_back_is_not_counted(self, api: Api, session: Session) -> None:
        first = wrote(session, kind="full", trigger="auto", summary="s", created_at=NOW, freed=1, source_key="line-7")
        wrote(session, kind="full", trigger="auto", summary="s", created_at=NOW, freed=1, restores=first)
        light = {"kind": "microcompact", "trigger": "auto", "created_at": NOW, "freed": 1}
        wrote(session, **light, source_key="line-9")
        wrote(session, **light, restores=first)
        body = read(api)
        assert (body["totals"]["compaction_count"], body["totals"]["clearings"], body["top_sessions"]) == (0, 0, [])

    def test_failures_by_reason(self, api: Api, session: Session) -> None:
        for reason, number in (("no_summary", 2), ("api_error", 1)):
            for _ in range(number):
                ran(session, status=RunStatus.FAILED, failure_reason=reason)
        totals = read(api)["totals"]
        expected = [{"reason": "no_summary", "count": 2}, {"reason": "api_error", "count": 1}]
        assert (totals["failures"], totals["failure_count"]) == (expected, 3)

    def test_costs_and_the_share_of_the_cache(self, api: Api, session: Session) -> None:
        usage = {"input_tokens": 100, "cache_read_input_tokens": 800, "cache_creation_input_tokens": 100}
        spent = {"model": "m", "usage": usage, "cost_usd": Decimal("0.25"), "cost_uncached_usd": Decimal("1.5")}
        ran(session, **spent)
        ran(session, status=RunStatus.FAILED, failure_reason="no_summary", **spent)
        ran(session)  # without a call
        ran(session, model="unpriced", usage={"input_tokens": 1_000})
        body = read(api)
        totals = body["totals"]
        assert (totals["cost_usd"], totals["cost_uncached_usd"]) == ("0.500000", "3.000000")
        assert totals["cache_share"] == pytest.approx(1_600 / 3_000)
        assert body["models"] == [
            {"model": "m", "runs": 2, "cost_usd": "0.500000", "cost_uncached_usd": "3.000000", "cache_share": 0.8},
            {"model": "unpriced", "runs": 1, "cost_usd": None, "cost_uncached_usd": None, "cache_share": 0},
        ]

    def test_durations_are_of_successes_alone(self, api: Api, session: Session) -> None:
        for seconds in range(1, 11):
            ran(session, seconds=seconds)
        ran(session, seconds=1_000, status=RunStatus.FAILED, failure_reason="no_summary")
        body = read(api)
        assert (body["median_seconds"], body["p90_seconds"]) == (5.5, 9)

    def test_events_that_are_counted(self, api: Api, session: Session) -> None:
        event(session, "breaker_opened", payload={"by": OpenedBy.FAILURES.value})
        event(session, "session_memory_extracted")
        event(session, "session_memory_extracted", at=NOW - DAY)
        event(session, "boundary_reverted")
        event(session, "breaker_closed")
        body = read(api)
        names = ("breaker_openings", "memory_extractions", "reverts")
        assert [body["totals"][name] for name in names] == [1, 2, 1]
        assert [body["days"][-1][name] for name in names] == [1, 1, 1]

    def test_sessions_now(self, api: Api, cast: Cast) -> None:
        for level, last in (("ok", NOW), ("ok", NOW - 40 * DAY), ("warning", None)):
            session = make_session(cast.alices_team)
            Session.objects.filter(pk=session.pk).update(level=level, last_message_at=last)
        body = read(api)
        assert (body["sessions"], body["active_sessions"]) == (3, 1)
        told = {row["level"]: row["sessions"] for row in body["levels"]}
        assert told == {**dict.fromkeys((level.value for level in Level), 0), "ok": 2, "warning": 1}

    def test_top_sessions(self, api: Api, cast: Cast) -> None:
        for number in range(1, 13):
            ran(make_session(cast.alices_team, title=f"t{number}"), freed=number * 10)
        best = Session.objects.get(title="t3")
        ran(best, freed=500)
        top = read(api)["top_sessions"]
        assert top[0] == {"session": str(best.uuid), "title": "t3", "boundaries": 2, "tokens_freed": 530}
        assert [row["tokens_freed"] for row in top[1:]] == [120, 110, 100, 90, 80, 70, 60, 50, 40]

    @pytest.mark.parametrize("days", [1, 2, 365])
    def test_days_are_whole_days_in_utc(self, api: Api, session: Session, days: int) -> None:
        first = NOW.replace(hour=0) - (days - 1) * DAY
        late = NOW.replace(hour=23, minute=59, second=59, microsecond=999_999)
        for at in (first - timedelta(microseconds=1), first, late, late + timedelta(microseconds=1)):
            ran(session, at=at)
        body = read(api, days=days)
        assert len(body["days"]) == days
        assert body["totals"]["compaction_count"] == 2
        assert sum(day["compaction_count"] for day in body["days"]) == 2

    @pytest.mark.parametrize("days", ["0", "366", "-1", "x", "1.5", "", "9" * 30])
    def test_other_days_are_refused(self, api: Api, days: str) -> None:
        answer = api.read(SUMMARY, days=days)
        assert (answer.status_code, [attr for _, attr in errors(answer)]) == (400, ["days"])

    def test_another_teams_are_not_in_it(self, cast: Cast, session: Session) -> None:
        append(session, *turns(1))
        before = read(cast.charlie)
        ran(session, cost_usd=1, model="hers")
        ran(session, status=RunStatus.FAILED, failure_reason="no_summary")
        event(session, "breaker_opened")
        assert read(cast.alice) != before
        assert read(cast.charlie) == before

    def test_queries(self, api: Api, cast: Cast) -> None:
        """Key; boundaries, events, runs, sessions, top sessions."""
        counts = []
        for number in (1, 40):
            for n in range(number):
                ran(make_session(cast.alices_team), at=NOW - n * DAY)
            counts.append(queries_of(lambda: api.read(SUMMARY)))
        assert_same_count(*counts, most=6)

    def test_a_clock_elsewhere_is_the_same_day(self, db: None) -> None:
        team = Team.objects.create(slug="x", name="x")
        elsewhere = datetime.fromisoformat("2026-11-04T01:00:00+09:00")
        found = telemetry_summary(team=team, days=1, now=elsewhere)
        assert found.until == elsewhere.astimezone(UTC).date()
        assert str(found.until) == "2026-11-03"
