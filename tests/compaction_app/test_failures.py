"""Groups of failed runs: counted in the transaction of the failure, acknowledged as far as somebody has seen them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext

from compaction_app import actions
from compaction_app.engine.outcome import FailureReason
from compaction_app.models import CompactionRun, FailureDay, FailureGroup, FailureNote, GroupState, RunStatus
from compaction_app.selectors.failures import TREND_DAYS, failure_trends
from compaction_app.services import failures, situations
from sessions_app.models import Session, Team
from tests.factories import NOW, append, make_session, make_team, turns
from tests.pressure import FailingSummarizer

pytestmark = pytest.mark.django_db


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(situations, "make_summarizer", lambda **_: FailingSummarizer())


def failed_run(team: Team, **values: Any) -> CompactionRun:
    session = make_session(team, **values)
    append(session, *turns(12, size=2_000))
    return again(session)


def again(session: Session) -> CompactionRun:
    session = Session.objects.select_related("team").get(pk=session.pk)
    run = actions.compact_now(session=session, wanted=actions.Wanted(), now=NOW, listener=lambda stage, part: None)
    assert run.status == RunStatus.FAILED
    return run


def somebody(name: str = "olga") -> actions.Decider:
    return actions.Decider(user=get_user_model().objects.create(username=name))


@pytest.mark.usefixtures("failing")
class TestCounting:
    def test_one_group_for_team_reason_and_model(self) -> None:
        red, blue = make_team("red"), make_team("blue")
        runs = [failed_run(red, model="m-1"), failed_run(red, model="m-1"), failed_run(red, model="m-2")]
        runs.append(failed_run(blue, model="m-1"))
        found = set(FailureGroup.objects.values_list("team__name", "reason", "model", "count"))
        assert found == {
            ("Red", "no_summary", "m-1", 2),
            ("Red", "no_summary", "m-2", 1),
            ("Blue", "no_summary", "m-1", 1),
        }
        for run in runs:
            run.refresh_from_db()
            assert run.failure_group is not None
            assert (run.failure_group.team, run.failure_group.model) == (run.session.team, run.session.model)

    def test_a_run_that_succeeds_is_in_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.undo()
        session = make_session()
        append(session, *turns(12, size=2_000))
        run = actions.compact_now(session=session, wanted=actions.Wanted(), now=NOW, listener=lambda stage, part: None)
        assert (run.status, run.failure_group) == (RunStatus.SUCCEEDED, None)
        assert not FailureGroup.objects.exists()

    def test_days_and_trend(self) -> None:
        team = make_team()
        session = make_session(team, model="m")
        for days_ago in (0, 0, 3, TREND_DAYS - 1, TREND_DAYS, 90):
            failures.note_failure(session=session, reason=FailureReason.API_ERROR, now=NOW - timedelta(days=days_ago))
        group = FailureGroup.objects.get()
        assert group.count == 6
        [trend] = failure_trends(groups=[group], now=NOW).values()
        counts = [count for _, count in trend]
        assert len(counts) == TREND_DAYS
        assert (counts[-1], counts[-4], counts[0], sum(counts)) == (2, 1, 1, 4)
        assert trend[-1][0] == NOW.date()

    def test_last_seen_never_goes_back(self) -> None:
        session = make_session()
        for hours in (0, -2):  # the clock of the second worker is behind
            failures.note_failure(session=session, reason=FailureReason.ERROR, now=NOW + timedelta(hours=hours))
        assert FailureGroup.objects.get().last_seen == NOW

    def test_costs_the_same_however_many_there_were(self) -> None:
        session = make_session()
        failures.note_failure(session=session, reason=FailureReason.ERROR, now=NOW)
        with CaptureQueriesContext(
            connection,
        ) as few:
            failures.note_failure(session=session, reason=FailureReason.ERROR, now=NOW)
        FailureGroup.objects.update(count=1_000_000)
        with CaptureQueriesContext(connection) as many:
            failures.note_failure(session=session, reason=FailureReason.ERROR, now=NOW)
        assert len(few) == len(many) == 4

    def test_an_erased_session_leaves_its_figures(self) -> None:
        run = failed_run(make_team())
        actions.erase_session(session=run.session, by=somebody(), now=NOW)
        group = FailureGroup.objects.get()
        assert (group.count, group.runs.count()) == (1, 0)


@pytest.mark.usefixtures("failing")
class TestReview:
    def group(self, count: int = 3) -> FailureGroup:
        run = failed_run(make_team())
        for _ in range(count - 1):
            again(run.session)
        return FailureGroup.objects.get()

    def test_acknowledged_until_it_happens_again(self) -> None:
        group, by = self.group(), somebody()
        assert group.state is GroupState.OPEN
        assert actions.acknowledge_failures(groups=[group], by=by, note="known", now=NOW) == 1
        group.refresh_from_db()
        assert (group.state, group.acknowledged_by, group.count_since) == (GroupState.ACKNOWLEDGED, "olga", 0)
        again(CompactionRun.objects.latest("pk").session)
        group.refresh_from_db()
        assert (group.state, group.count_since) == (GroupState.CAME_BACK, 1)
        [note] = FailureNote.objects.all()
        assert (note.kind, note.text, note.by_name) == ("acknowledged", "known", "olga")

    def test_what_nobody_has_seen_is_not_acknowledged(self) -> None:
        group = self.group(count=1)
        again(CompactionRun.objects.latest("pk").session)  # after the page was read
        assert actions.acknowledge_failures(groups=[group], by=somebody(), now=NOW) == 1
        group.refresh_from_db()
        assert (group.state, group.count_since) == (GroupState.CAME_BACK, 1)

    def test_of_two_that_acknowledge_one_is_noted(self) -> None:
        group = self.group()
        assert actions.acknowledge_failures(groups=[group], by=somebody("a"), now=NOW) == 1
        assert actions.acknowledge_failures(groups=[group], by=somebody("b"), now=NOW) == 0
        assert FailureNote.objects.get().by_name == "a"

    def test_opened_again(self) -> None:
        group, by = self.group(), somebody()
        assert not actions.reopen_failures(group=group, by=by, now=NOW)
        actions.acknowledge_failures(groups=[group], by=by, now=NOW)
        assert actions.reopen_failures(group=group, by=by, note="not yet", now=NOW)
        group.refresh_from_db()
        assert group.state is GroupState.OPEN
        assert list(FailureNote.objects.order_by("id").values_list("kind", flat=True)) == ["acknowledged", "reopened"]

    @pytest.mark.parametrize("state", GroupState.values)
    def test_the_query_and_the_row_agree(self, state: str) -> None:
        rows = [
            FailureGroup(reason="error", first_seen=NOW, last_seen=NOW, **values)
            for values in (
                {"count": 2},
                {"count": 2, "acknowledged_at": NOW, "acknowledged_count": 2},
                {"count": 3, "acknowledged_at": NOW, "acknowledged_count": 2},
            )
        ]
        for row in rows:
            row.team = make_team()
            row.save()
        found = {row.pk for row in FailureGroup.objects.in_state(state)}
        assert found == {row.pk for row in rows if row.state == state}
        assert len(found) == 1


@pytest.mark.usefixtures("failing")
class TestTryingAgain:
    def test_each_session_once_and_none_keeps_back_another(self) -> None:
        team = make_team()
        first = failed_run(team)
        second = again(first.session)
        other, busy = failed_run(team), failed_run(team)
        active = actions.retry_run(run=busy, now=NOW)
        group = FailureGroup.objects.get()
        runs = list(CompactionRun.objects.filter(failure_group=group).select_related("session__team"))
        done = actions.retry_failures(group=group, runs=runs, by=somebody(), summarizer="extractive", now=NOW)
        assert {run.retry_of for run in done.queued} == {second, other}
        assert {run.summarizer for run in done.queued} == {"extractive"}
        assert {run for run, _ in done.passed} == {first, busy}
        assert str(active.uuid) in next(why for run, why in done.passed if run == busy)
        assert FailureNote.objects.get().text == "2 of 4 runs, by extractive"


@pytest.mark.usefixtures("failing")
def test_runs_from_before_there_were_groups_are_filled_in() -> None:
    import importlib

    team = make_team()
    runs = [failed_run(team, model="m"), failed_run(team, model="m"), failed_run(make_team(), model="m")]
    was = set(FailureGroup.objects.values_list("team", "reason", "model", "count"))
    days = sorted(FailureDay.objects.values_list("group__team", "count"))
    CompactionRun.objects.update(failure_group=None)
    FailureGroup.objects.all().delete()
    migration = importlib.import_module("compaction_app.migrations.0010_earlier_failures")
    for _ in range(2):  # begun again, it counts nothing twice
        migration.group_what_has_failed(apps, None)
    assert set(FailureGroup.objects.values_list("team", "reason", "model", "count")) == was
    assert sorted(FailureDay.objects.values_list("group__team", "count")) == days
    for run in runs:
        run.refresh_from_db()
        assert run.failure_group is not None
        assert run.failure_group.first_seen <= run.finished_at <= run.failure_group.last_seen  # type: ignore[operator]
