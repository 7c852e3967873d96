"""Query parameters of the lists."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import django_filters
from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django_filters.fields import IsoDateTimeField
from django_filters.rest_framework import FilterSet
from drf_spectacular.drainage import set_override

from compaction_app import selectors
from compaction_app.engine.outcome import FailureReason
from compaction_app.models import CompactionRun, Decision, ImportStatus, RunStatus
from compaction_app.models.decisions import OUTCOME_CHOICES
from compaction_app.selectors.search import messages_holding, sessions_holding
from sessions_app.models import CompactBoundary, Message, Session, ToolCall
from sessions_app.models.boundaries import KIND_CHOICES
from sessions_app.models.messages import ROLE_CHOICES
from sessions_app.models.sessions import LEVEL_CHOICES

LONGEST_SEARCH = 1_000  # characters; SQLite refuses patterns beyond 50,000 bytes
LARGEST_POSITION = 2**31 - 1
ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def _describe(one: django_filters.Filter, schema: dict[str, Any]) -> None:
    """Tell the OpenAPI document what it can't read off the filter."""
    set_override(one, "field", {**schema, "description": one.extra.get("help_text", "")})


class _MomentField(IsoDateTimeField):
    def clean(self, value: Any) -> datetime | None:
        moment = super().clean(value)
        try:
            return moment.astimezone(UTC) if moment else None
        except OverflowError:
            raise ValidationError("This moment is out of range.", code="invalid") from None


class Moment(django_filters.IsoDateTimeFilter):
    field_class = _MomentField

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        formats = [{"type": "string", "format": name} for name in ("date-time", "date")]
        _describe(self, {"anyOf": formats})


class _IdField(forms.UUIDField):
    """As ids are written everywhere; Python takes them in braces and without hyphens, too."""

    def to_python(self, value: Any) -> UUID | None:  # type: ignore[override]
        if value not in self.empty_values and not ID.fullmatch(str(value)):
            raise ValidationError(self.error_messages["invalid"], code="invalid")
        return super().to_python(value)


class Id(django_filters.UUIDFilter):
    field_class = _IdField


class Position(django_filters.NumberFilter):
    field_class = forms.IntegerField

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"min_value": 0, "max_value": LARGEST_POSITION, **options})
        _describe(self, {"type": "integer", "minimum": 0, "maximum": LARGEST_POSITION})

    def get_max_validator(self) -> None:  # of decimals; the field's own bounds hold instead
        return None


class Text(django_filters.CharFilter):
    """Text that is not trimmed; searching for a space is searching for a space."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"strip": False, "max_length": LONGEST_SEARCH, **options})
        shortest = {"minLength": 1} if options.get("required") else {}
        _describe(self, {"type": "string", "maxLength": LONGEST_SEARCH, **shortest})


class _NoEmptyValues(forms.Form):
    """What is given is a value: an empty one is a mistake, but for texts."""

    def clean(self) -> dict[str, Any]:
        for name, field in self.fields.items():
            is_text = isinstance(field, forms.CharField) and not isinstance(field, forms.UUIDField)
            if self.data.get(name) == "" and not is_text:
                self.add_error(name, ValidationError("A value is needed, or no such parameter.", code="invalid"))
        return super().clean() or self.cleaned_data


class Filters(FilterSet):
    """Query parameters of a list."""

    def get_form_class(self) -> type[forms.Form]:
        return type("StrictForm", (_NoEmptyValues, super().get_form_class()), {})


class SessionFilter(Filters):
    model = Text(field_name="model", help_text="The model's exact name.")
    thread = django_filters.ChoiceFilter(choices=Session.Thread.choices)
    q = Text(method="search", help_text="Text in title, external_id, a message or a summary, in any case.")
    level = django_filters.ChoiceFilter(choices=LEVEL_CHOICES, help_text="How full it was when it last changed.")
    breaker_open = django_filters.ChoiceFilter(
        choices=[("true", "true"), ("false", "false")],
        method="by_breaker",
        help_text="Whether compaction has stopped starting by itself: `true` or `false`.",
    )
    created_after = Moment(field_name="created_at", lookup_expr="gte", help_text="Made at this moment or later.")
    created_before = Moment(field_name="created_at", lookup_expr="lt", help_text="Made before this moment.")

    class Meta:
        model = Session
        fields: tuple[str, ...] = ()

    def search(self, queryset: QuerySet[Session], name: str, value: str) -> QuerySet[Session]:
        return queryset.filter(sessions_holding(team=self.request.auth.team, text=value))

    def by_breaker(self, queryset: QuerySet[Session], name: str, value: str) -> QuerySet[Session]:
        is_open = selectors.has_open_breaker()
        return queryset.filter(is_open if value == "true" else ~is_open)


class MessageFilter(Filters):
    after = Position(
        field_name="position",
        lookup_expr="gt",
        help_text="Only messages behind this position.",
    )
    before = Position(
        field_name="position",
        lookup_expr="lt",
        help_text="Only messages in front of this position.",
    )
    role = django_filters.ChoiceFilter(choices=ROLE_CHOICES)
    tool = Text(method="of_tool", help_text="A tool's name: its calls and their results.")
    q = Text(method="search", help_text="Text anywhere in the content, in any language and any case.")

    class Meta:
        model = Message
        fields: tuple[str, ...] = ()

    def of_tool(self, queryset: QuerySet[Message], name: str, value: str) -> QuerySet[Message]:
        """Through the index of tool calls: no content is searched."""
        calls = ToolCall.objects.filter(session=self.request.parser_context["view"].shown_session, name=value)
        uses, results = calls.values("use_position"), calls.values("result_position")
        return queryset.filter(Q(position__in=uses) | Q(position__in=results))

    def search(self, queryset: QuerySet[Message], name: str, value: str) -> QuerySet[Message]:
        session = self.request.parser_context["view"].shown_session
        return messages_holding(rows=queryset, session=session, text=value)


class RunFilter(Filters):
    status = django_filters.ChoiceFilter(choices=RunStatus.choices)
    reason = django_filters.ChoiceFilter(
        field_name="failure_reason", choices=[(reason.value, reason.value) for reason in FailureReason]
    )
    trigger = django_filters.ChoiceFilter(choices=CompactBoundary.Trigger.choices)
    source = django_filters.ChoiceFilter(choices=CompactionRun.Source.choices, help_text="Who asked.")
    session = Id(field_name="session__uuid", help_text="A session's id.")
    created_after = Moment(field_name="queued_at", lookup_expr="gte", help_text="Asked for at this moment or later.")
    created_before = Moment(field_name="queued_at", lookup_expr="lt", help_text="Asked for before this moment.")
    finished_after = Moment(field_name="finished_at", lookup_expr="gte", help_text="Ended at this moment or later.")
    finished_before = Moment(field_name="finished_at", lookup_expr="lt", help_text="Ended before this moment.")


class BoundaryFilter(Filters):
    kind = django_filters.ChoiceFilter(choices=KIND_CHOICES)
    trigger = django_filters.ChoiceFilter(choices=CompactBoundary.Trigger.choices)
    created_after = Moment(field_name="created_at", lookup_expr="gte", help_text="Written at this moment or later.")
    created_before = Moment(field_name="created_at", lookup_expr="lt", help_text="Written before this moment.")

    class Meta:
        model = CompactBoundary
        fields: tuple[str, ...] = ()


class DecisionFilter(Filters):
    outcome = django_filters.ChoiceFilter(
        choices=OUTCOME_CHOICES, help_text="What was chosen: `requested`, `applied`, or why nothing was done."
    )
    moment = django_filters.ChoiceFilter(
        choices=Decision.Moment.choices, help_text="What gave the occasion: an `append`, a `prepare/`, or the `sweep`."
    )

    class Meta:
        model = Decision
        fields: tuple[str, ...] = ()


class ImportFilter(Filters):
    status = django_filters.ChoiceFilter(choices=ImportStatus.choices)
