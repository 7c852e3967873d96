"""List filters whose choices come from the rows that the user may see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib.admin import ModelAdmin, SimpleListFilter
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from compaction_app.admin import access
from compaction_app.admin.gauge import SHORT_LEVELS
from compaction_app.models import GroupState
from compaction_app.selectors import has_open_breaker
from sessions_app.models.teams import KeyState

MOST_CHOICES = 50


class TeamFilter(SimpleListFilter):
    """The user's own teams: Django's filter for a relation would name every team there is."""

    title = "team"
    parameter_name = "team"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        self.team_path = getattr(model_admin, "team_path", "team")
        teams = access.visible_teams(user=request.user).order_by("name", "pk")[:MOST_CHOICES]
        return [(str(team.pk), team.name) for team in teams]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value is None:
            return queryset
        is_key = value.isdecimal() and len(value) < 19
        return queryset.filter(**{self.team_path: int(value)}) if is_key else queryset.none()


class ValueFilter(SimpleListFilter):
    """The distinct values of a column among the user's rows; `parameter_name` is the column."""

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        column = self.parameter_name or ""
        rows = model_admin.get_queryset(request).exclude(**{column: ""}).order_by(column)
        return [(value, value) for value in rows.values_list(column, flat=True).distinct()[:MOST_CHOICES]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value is None:
            return queryset
        # PostgreSQL has no NUL in text, and refuses the question.
        return queryset.none() if "\x00" in value else queryset.filter(**{self.parameter_name or "": value})


class ModelFilter(ValueFilter):
    title = "model"
    parameter_name = "model"


class SourceFilter(ValueFilter):
    title = "source"
    parameter_name = "source"


class EventNameFilter(ValueFilter):
    title = "event"
    parameter_name = "name"


class LevelFilter(SimpleListFilter):
    """How full the session was when it last changed."""

    title = "level"
    parameter_name = "level"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [(level.value, words) for level, words in SHORT_LEVELS.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return queryset if value is None else queryset.filter(level__in=set(SHORT_LEVELS) & {value})


class BreakerFilter(SimpleListFilter):
    """Whether automatic compaction has stopped by itself. A session without a row of its own never failed."""

    title = "breaker"
    parameter_name = "breaker"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [("open", "open"), ("closed", "closed")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value is None:
            return queryset
        if value not in ("open", "closed"):
            return queryset.none()
        is_open = has_open_breaker()
        return queryset.filter(is_open if value == "open" else ~is_open)


class FailureStateFilter(SimpleListFilter):
    """The queue as it stands, unless somebody asks for what has left it."""

    title = "queue"
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [("acknowledged", "acknowledged"), ("all", "all")]

    def choices(self, changelist: Any) -> Iterator[Any]:
        for number, choice in enumerate(super().choices(changelist)):
            yield {**choice, "display": "waiting"} if number == 0 else choice

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value is None:
            return queryset.in_state(GroupState.OPEN, GroupState.CAME_BACK)  # type: ignore[attr-defined]
        if value == "acknowledged":
            return queryset.in_state(GroupState.ACKNOWLEDGED)  # type: ignore[attr-defined]
        return queryset if value == "all" else queryset.none()


class KeyStateFilter(SimpleListFilter):
    """Whether an API key holds."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [(state.value, state.value) for state in KeyState]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value is None:
            return queryset
        return queryset.in_state(value, now=timezone.now()) if value in KeyState.values else queryset.none()  # type: ignore[attr-defined]
