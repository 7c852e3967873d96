"""Failed compactions: a queue of groups, as in an error tracker, and the page of one with its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import action, display

from compaction_app import actions
from compaction_app.admin import access, cells
from compaction_app.admin.base import ReadOnlyModelAdmin
from compaction_app.admin.filters import FailureStateFilter, TeamFilter
from compaction_app.admin.rendering.text import one_line, visible
from compaction_app.admin.run_changes import SUMMARIZERS, RetryForm
from compaction_app.admin.run_story import HAPPENED, NEXT, reason_of
from compaction_app.admin.trend import trend_chart
from compaction_app.models import CompactionRun, FailureGroup, GroupState
from compaction_app.models.failures import FailureGroupQuerySet
from compaction_app.selectors.failures import TREND_DAYS, failure_trends, runs_of_failures

RUNS_SHOWN = 25  # on a page; so many at most are tried again at once
NOTES_SHOWN = 20
MODEL_CHARS, DETAIL_CHARS = 60, 160
STATES = {GroupState.OPEN: "danger", GroupState.CAME_BACK: "warning", GroupState.ACKNOWLEDGED: "success"}
ACKNOWLEDGE, REOPEN, NOTE = "acknowledge", "reopen", "note"


def group_url(group_id: int) -> str:
    return reverse("admin:compaction_app_failuregroup_change", args=[group_id])


class ReviewForm(forms.Form):
    do = forms.ChoiceField(choices=[(one, one) for one in (ACKNOWLEDGE, REOPEN, NOTE)])
    note = forms.CharField(required=False, max_length=actions.LONGEST_NOTE)
    seen = forms.IntegerField(min_value=0, max_value=2**31 - 1)  # how many there were on the page


@admin.register(FailureGroup)
class FailureGroupAdmin(ReadOnlyModelAdmin):
    list_display = (
        "reason_column",
        "state_column",
        "team",
        "model_column",
        "count",
        "trend_column",
        "first_column",
        "last_column",
    )
    list_select_related = ("team",)
    list_filter = (FailureStateFilter, TeamFilter, "reason")
    ordering = ("-last_seen", "-id")
    sortable_by = ("count", "first_column", "last_column")
    actions = ("acknowledge_selected",)  # type: ignore[assignment]
    change_list_template = "compaction_app/admin/failure_list.html"
    detail_template = "compaction_app/admin/failure_group.html"

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        rows: FailureGroupQuerySet = self.get_queryset(request)
        waiting = rows.in_state(GroupState.OPEN, GroupState.CAME_BACK)
        is_plain = not set(request.GET) - {FailureStateFilter.parameter_name, "o", "p"}
        looks_at_queue = is_plain and request.GET.get(FailureStateFilter.parameter_name) is None
        empty = looks_at_queue and not waiting.exists()
        context = {
            "title": "Failed compactions",
            "queue_is_empty": empty,
            "any_acknowledged": empty and rows.exists(),
            **(extra_context or {}),
        }
        return super().changelist_view(request, context)

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """The trends of a page's groups are read at once."""
        shown = super().get_changelist_instance(request)
        trends = failure_trends(groups=shown.result_list, now=timezone.now())
        for group in shown.result_list:
            group.trend = trends[group.pk]
        return shown

    @display(description="reason", ordering="reason")
    def reason_column(self, group: FailureGroup) -> str:
        return group.get_reason_display()

    @display(description="state")
    def state_column(self, group: FailureGroup) -> SafeString:
        return state_badge(group)

    @display(description="model")
    def model_column(self, group: FailureGroup) -> str:
        return one_line(visible(group.model), limit=MODEL_CHARS) or "not known"

    @display(description=f"last {TREND_DAYS} days")
    def trend_column(self, group: Any) -> SafeString:
        return trend_chart(days=group.trend)

    @display(description="first seen", ordering="first_seen")
    def first_column(self, group: FailureGroup) -> SafeString:
        return cells.time_cell(group.first_seen)

    @display(description="last seen", ordering="last_seen")
    def last_column(self, group: FailureGroup) -> SafeString:
        return cells.time_cell(group.last_seen)

    @action(description="Acknowledge: out of the queue until it happens again")
    def acknowledge_selected(self, request: HttpRequest, queryset: QuerySet[FailureGroup]) -> None:
        groups = list(queryset.select_related("team"))
        allowed = [group for group in groups if access.may_compact(user=request.user, team=group.team)]
        by, now = actions.Decider(user=request.user), timezone.now()
        done = actions.acknowledge_failures(groups=allowed, by=by, now=now)
        if done:
            messages.success(request, f"{done} of {len(groups)} acknowledged.")
        if len(allowed) < len(groups):
            messages.warning(request, "Viewers of a team only look: groups of such teams are as they were.")

    # The page of one group.

    def get_urls(self) -> list[URLPattern]:
        view, name = self.admin_site.admin_view, "compaction_app_failuregroup"
        own = [
            path("<path:object_id>/review/", view(self.review_view), name=f"{name}_review"),
            path("<path:object_id>/retry/", view(self.retry_view), name=f"{name}_retry"),
        ]
        return own + super().get_urls()

    def review_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Acknowledge, open again, or leave a note. POST only: a link must not change anything."""
        group = self._to_act_on(request, object_id)
        if isinstance(group, HttpResponse):
            return group
        form = ReviewForm(request.POST)
        if not form.is_valid():
            messages.error(request, f"Nothing was done: {_problem(form)}")
        else:
            self._review(request, group, **form.cleaned_data)
        return HttpResponseRedirect(group_url(group.pk))

    def _review(self, request: HttpRequest, group: FailureGroup, *, do: str, note: str, seen: int) -> None:
        by, now = actions.Decider(user=request.user), timezone.now()
        if do == ACKNOWLEDGE:
            group.count = min(seen, group.count)
            if actions.acknowledge_failures(groups=[group], by=by, note=note, now=now):
                messages.success(request, "Acknowledged: it leaves the queue until it happens again.")
            else:
                messages.info(request, "Somebody had acknowledged it already.")
        elif do == REOPEN:
            if actions.reopen_failures(group=group, by=by, note=note, now=now):
                messages.success(request, "It is back in the queue.")
        elif note.strip():
            actions.note_on_failures(group=group, by=by, note=note, now=now)
            messages.success(request, "The note is kept.")
        else:
            messages.error(request, "Nothing was done: the note is empty.")

    def retry_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Try the chosen runs again. POST only."""
        group = self._to_act_on(request, object_id)
        if isinstance(group, HttpResponse):
            return group
        form = RetryForm(request.POST)
        keys = [int(key) for key in request.POST.getlist("run") if key.isdecimal() and len(key) < 19]
        runs = list(runs_of_failures(group=group).filter(pk__in=keys[:RUNS_SHOWN]))
        if not form.is_valid() or not runs:
            messages.error(request, "Nothing was done: no run was chosen." if form.is_valid() else _problem(form))
            return HttpResponseRedirect(group_url(group.pk))
        done = actions.retry_failures(
            group=group,
            runs=runs,
            by=actions.Decider(user=request.user),
            summarizer=form.cleaned_data["summarizer"] or None,
            now=timezone.now(),
        )
        if done.queued:
            messages.success(request, f"{len(done.queued)} of {len(runs)} queued again.")
        for run, why in done.passed:
            messages.warning(request, f"{cells.session_name(run.session)}: {visible(why)}")
        return HttpResponseRedirect(group_url(group.pk))

    def _to_act_on(self, request: HttpRequest, object_id: str) -> FailureGroup | HttpResponse:
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        group: FailureGroup = self.get_object(request, object_id)
        if not access.may_compact(user=request.user, team=group.team):
            raise PermissionDenied
        return group

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).select_related("team")

    def detail_context(self, request: HttpRequest, obj: FailureGroup) -> dict[str, Any]:
        trend = failure_trends(groups=[obj], now=timezone.now())[obj.pk]
        reason = reason_of(obj.reason)
        before = request.GET.get("before", "")
        runs = runs_of_failures(group=obj)
        if before.isdecimal() and len(before) < 19:
            runs = runs.filter(pk__lt=int(before))
        rows = list(runs[: RUNS_SHOWN + 1])
        return {
            "title": f"{obj.get_reason_display()}: failed compactions of {obj.team.name}",
            "group": obj,
            "badge": state_badge(obj),
            "model": one_line(visible(obj.model), limit=MODEL_CHARS) or "not known",
            "happened": HAPPENED[reason],
            "next": NEXT.get(reason, ""),
            "first": cells.time_cell(obj.first_seen),
            "last": cells.time_cell(obj.last_seen),
            "trend": trend_chart(days=trend),
            "trend_rows": [(day, count) for day, count in trend if count],
            "runs": _run_rows(rows[:RUNS_SHOWN]),
            "older": f"?before={rows[RUNS_SHOWN - 1].pk}" if len(rows) > RUNS_SHOWN else "",
            "newest": group_url(obj.pk) if before else "",
            "notes": [_note(note) for note in obj.notes.order_by("-id")[:NOTES_SHOWN]],
            "may_act": access.may_compact(user=request.user, team=obj.team),
            "longest_note": actions.LONGEST_NOTE,
            "summarizers": SUMMARIZERS,
            "list_url": reverse("admin:compaction_app_failuregroup_changelist"),
        }


def state_badge(group: FailureGroup) -> SafeString:
    state = group.state
    more = f" (+{group.count_since:,})" if state is GroupState.CAME_BACK else ""
    return format_html('<span class="ca-badge ca-badge-{}">{}{}</span>', STATES[state], state.label.lower(), more)


def _run_rows(runs: Sequence[CompactionRun]) -> list[dict[str, Any]]:
    """Each with what has been tried since: the newest run that is to do the same."""
    retries: Mapping[int, CompactionRun] = {
        retry.retry_of_id: retry
        for retry in CompactionRun.objects.filter(retry_of__in=[run.pk for run in runs])
        .only("id", "status", "retry_of_id")
        .order_by("id")
        if retry.retry_of_id is not None
    }
    return [
        {
            "pk": run.pk,
            "url": cells.run_url(run.pk),
            "session": cells.session_link(run.session),
            "at": cells.time_cell(run.finished_at),
            "trigger": run.get_trigger_display(),
            "detail": one_line(visible(run.detail), limit=DETAIL_CHARS),
            "retry": cells.status_badge(retries[run.pk].status, retries[run.pk].pk) if run.pk in retries else "–",
            "name": cells.session_name(run.session),
        }
        for run in runs
    ]


def _note(note: Any) -> dict[str, Any]:
    return {
        "kind": note.get_kind_display(),
        "by": one_line(visible(note.by_name), limit=MODEL_CHARS),
        "at": cells.time_cell(note.at),
        "text": visible(note.text),
    }


def _problem(form: forms.Form) -> str:
    return " ".join(str(error) for errors in form.errors.values() for error in errors)
