"""The queue of failed compactions: groups, their trend, their runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta

from django.db.models import QuerySet

from compaction_app.models import CompactionRun, FailureDay, FailureGroup

TREND_DAYS = 14  # two weeks: the one before beside this one


def failure_trends(*, groups: Iterable[FailureGroup], now: datetime) -> Mapping[int, Sequence[tuple[date, int]]]:
    """Group's key -> how many failed on each of the last `TREND_DAYS` UTC days, oldest first: one query for all."""
    last = now.astimezone(UTC).date()
    days = [last - timedelta(days=back) for back in reversed(range(TREND_DAYS))]
    keys = [group.pk for group in groups]
    counted: dict[int, dict[date, int]] = defaultdict(dict)
    for key, day, count in FailureDay.objects.filter(group__in=keys, day__gte=days[0]).values_list(
        "group", "day", "count"
    ):
        counted[key][day] = count
    return {key: [(day, counted[key].get(day, 0)) for day in days] for key in keys}


def runs_of_failures(*, group: FailureGroup) -> QuerySet[CompactionRun]:
    """The group's runs, newest first, with session and team."""
    rows = CompactionRun.objects.filter(failure_group=group).order_by("-id")
    return rows.select_related("session__team").defer("session__system", "session__tools", "session__metadata")
