"""Compaction runs: the list, and the page that shows what each link did and why, and each call of a model."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.dateparse import parse_datetime
from django.utils.safestring import SafeString
from unfold.decorators import display

from compaction_app.admin import access, cells, run_changes
from compaction_app.admin.approvals import candidate_of, decide
from compaction_app.admin.base import ReadOnlyModelAdmin
from compaction_app.admin.filters import TeamFilter
from compaction_app.admin.model_calls import call_row, cost_told, used_of
from compaction_app.admin.rendering.text import fold, one_line, pretty_json, visible
from compaction_app.admin.run_story import story_of
from compaction_app.engine.command import Scope
from compaction_app.models import CompactionRun, RunStep

PARTS = {Scope.UP_TO: "what is before a message", Scope.FROM: "a message and what follows"}
NAME_CHARS = 200  # of a model's or a response's name on a page


@admin.register(CompactionRun)
class CompactionRunAdmin(ReadOnlyModelAdmin):
    team_path = "session__team"
    list_display = (
        "status_column",
        "session_column",
        "team_column",
        "trigger",
        "reason_column",
        "tokens_column",
        "duration_column",
        "attempt",
        "time_column",
    )
    list_select_related = ("session__team",)
    list_filter = (TeamFilter, "status", "failure_reason", "trigger", "source")
    ordering = ("-id",)
    detail_template = "compaction_app/admin/run.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return (
            super()
            .get_queryset(request)
            .select_related("session__team", "session__compaction_state", "boundary", "requested_by")
        )

    def get_urls(self) -> list[URLPattern]:
        view, name = self.admin_site.admin_view, "compaction_app_compactionrun"
        own = [
            path("<path:object_id>/decide/", view(self.decide_view), name=f"{name}_decide"),
            path("<path:object_id>/retry/", view(self.retry_view), name=f"{name}_retry"),
            path("<path:object_id>/cancel/", view(self.cancel_view), name=f"{name}_cancel"),
        ]
        return own + super().get_urls()

    def decide_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Accept, edit or reject what the run waits with."""
        run = self._to_act_on(request, object_id)
        if isinstance(run, HttpResponse):
            return run
        decide(request, run)
        return HttpResponseRedirect(cells.run_url(run.pk))

    def retry_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Try it again, as it was or otherwise."""
        run = self._to_act_on(request, object_id)
        return run if isinstance(run, HttpResponse) else HttpResponseRedirect(run_changes.retry(request, run))

    def cancel_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """End it."""
        run = self._to_act_on(request, object_id)
        if isinstance(run, HttpResponse):
            return run
        run_changes.cancel(request, run)
        return HttpResponseRedirect(cells.run_url(run.pk))

    def _to_act_on(self, request: HttpRequest, object_id: str) -> CompactionRun | HttpResponse:
        """POST only: a link must not change anything."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        run: CompactionRun = self.get_object(request, object_id)
        if not access.may_compact(user=request.user, team=run.session.team):
            raise PermissionDenied
        return run

    @display(description="status", ordering="status")
    def status_column(self, run: CompactionRun) -> SafeString:
        return cells.status_badge(run.status)

    @display(description="session")
    def session_column(self, run: CompactionRun) -> SafeString:
        return cells.session_link(run.session)

    @display(description="team")
    def team_column(self, run: CompactionRun) -> str:
        return run.session.team.name

    @display(description="reason", ordering="failure_reason")
    def reason_column(self, run: CompactionRun) -> str:
        return run.get_failure_reason_display() if run.failure_reason else "–"

    @display(description="tokens", ordering="tokens_before")
    def tokens_column(self, run: CompactionRun) -> SafeString:
        return cells.token_change(run.tokens_before, run.tokens_after)

    @display(description="duration")
    def duration_column(self, run: CompactionRun) -> str:
        return cells.duration_text(run.duration)

    @display(description="queued at", ordering="queued_at")
    def time_column(self, run: CompactionRun) -> SafeString:
        return cells.time_cell(run.queued_at)

    def detail_context(self, request: HttpRequest, obj: CompactionRun) -> dict[str, Any]:
        steps, calls = list(obj.steps.order_by("ordinal")), list(obj.calls.order_by("ordinal"))
        return {
            "title": f"Run of {cells.session_name(obj.session)}",
            "run": obj,
            "session": obj.session,
            "name": cells.session_name(obj.session),
            "badge": cells.status_badge(obj.status),
            "percent": round(obj.progress * 100),
            "tokens": cells.token_change(obj.tokens_before, obj.tokens_after),
            "duration": cells.duration_text(obj.duration),
            "detail": fold(obj.detail) if obj.detail else None,
            "instructions": visible(obj.instructions),
            "part": _part(obj),
            "story": story_of(run=obj, steps=steps, calls=calls),
            "steps": [_step(step) for step in steps],
            "calls": [call_row(call) for call in calls],
            "model": one_line(obj.model, limit=NAME_CHARS),
            "response_id": one_line(obj.response_id, limit=NAME_CHARS),
            "used": used_of(obj.usage),
            "cost": cost_told(usd=obj.cost_usd, uncached=obj.cost_uncached_usd),
            "attempts": [_attempt(entry) for entry in obj.attempts if isinstance(entry, dict)],
            "usage": fold(pretty_json(obj.usage)) if obj.usage else None,
            "candidate": candidate_of(obj),
            "may_compact": access.may_compact(user=request.user, team=obj.session.team),
            "boundary_url": cells.boundary_url(obj.boundary_id) if obj.boundary_id else "",
            "session_url": cells.session_url(obj.session_id),
            "changes": run_changes.changes_of(obj),
        }


def _part(run: CompactionRun) -> dict[str, Any] | None:
    """Which part was asked for, and where it was cut; None for a run of the whole."""
    if run.scope == Scope.WHOLE:
        return None
    asked, cut = visible(run.scope_uuid), visible(run.cut_uuid)
    return {
        "words": PARTS[Scope(run.scope)],
        "asked": asked,
        "asked_url": cells.jump_url(session_id=run.session_id, uuid=run.scope_uuid),
        "cut": cut,
        "cut_url": cells.jump_url(session_id=run.session_id, uuid=run.cut_uuid),
        "moved": bool(cut) and cut != asked,
    }


def _step(step: RunStep) -> dict[str, Any]:
    return {
        "ran": step.ran,
        "link": step.link.replace("_", " "),
        "attempt": step.attempt,
        "why": visible(step.why),
        "tokens_before": step.tokens_before,
        "tokens_after": step.tokens_after,
    }


def _attempt(entry: dict[str, Any]) -> dict[str, Any]:
    """One entry of `attempts` as services/runs.py writes it."""
    started = parse_datetime(str(entry.get("started_at") or ""))
    ended = parse_datetime(str(entry.get("ended_at") or ""))
    return {
        "number": entry.get("attempt"),
        "started_at": started,
        "took": cells.duration_text(ended - started) if started and ended else "–",
        "outcome": str(entry.get("outcome") or "not ended").replace("_", " "),
    }
