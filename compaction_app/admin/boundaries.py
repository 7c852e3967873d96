"""Compact boundaries: the list, and the page of one compaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.safestring import SafeString
from unfold.decorators import display

from compaction_app.admin import access, cells
from compaction_app.admin.base import Crumb, ReadOnlyModelAdmin
from compaction_app.admin.clearing import cleared_by
from compaction_app.admin.filters import TeamFilter
from compaction_app.admin.history import is_imported
from compaction_app.admin.model_calls import cost_told, used_of
from compaction_app.admin.rendering.summary import summary_sections
from compaction_app.admin.rendering.text import Fold, fold, one_line, pretty_json, visible
from compaction_app.admin.undo import change_of, newer_url, undo
from compaction_app.engine.cleanup import Scope
from compaction_app.models import CompactionRun
from sessions_app.models import Attachment, CompactBoundary
from sessions_app.transcript.boundary import BoundaryKind

NAME_CHARS, WHY_CHARS = 200, 500  # of what a page shows of names and reasons
CLEANED = {"failed": "danger", "cleared": "success", "kept": "plain"}  # with the look of its badge


@admin.register(CompactBoundary)
class CompactBoundaryAdmin(ReadOnlyModelAdmin):
    team_path = "session__team"
    list_display = (
        "kind_column",
        "session_column",
        "team_column",
        "trigger",
        "tokens_column",
        "made_by_column",
        "state_column",
        "time_column",
    )
    list_select_related = ("session__team", "run")
    list_filter = (TeamFilter, "kind", "trigger")
    ordering = ("-id",)
    detail_template = "compaction_app/admin/boundary.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("session__team", "run")

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        own = [
            path("<path:object_id>/undo/", view(self.undo_view), name="sessions_app_compactboundary_undo"),
        ]
        return own + super().get_urls()

    def undo_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """What reverting the boundary, or restoring a reverted one, would change; a POST does it."""
        boundary = self.get_object(request, object_id)
        if not access.may_compact(user=request.user, team=boundary.session.team):
            raise PermissionDenied
        if request.method == "POST":
            return HttpResponseRedirect(cells.boundary_url(undo(request, boundary)))
        context = {
            **self.page_context(request, boundary),
            "title": "Restore" if boundary.reverted_at else "Revert",
            "object": Crumb(row=boundary, name=str(boundary)),
            "boundary": boundary,
            "session": boundary.session,
            "name": cells.session_name(boundary.session),
            "boundary_url": cells.boundary_url(boundary.pk),
            "change": change_of(boundary),
            "newer_url": newer_url(boundary),
        }
        return TemplateResponse(request, "compaction_app/admin/undo.html", context)

    @display(description="kind", ordering="kind")
    def kind_column(self, boundary: CompactBoundary) -> str:
        return f"{boundary.get_kind_display()} #{boundary.pk}"

    @display(description="session")
    def session_column(self, boundary: CompactBoundary) -> SafeString:
        return cells.session_link(boundary.session)

    @display(description="team")
    def team_column(self, boundary: CompactBoundary) -> str:
        return boundary.session.team.name

    @display(description="tokens", ordering="tokens_before")
    def tokens_column(self, boundary: CompactBoundary) -> SafeString:
        return cells.token_change(boundary.tokens_before, boundary.tokens_after)

    @display(description="made by")
    def made_by_column(self, boundary: CompactBoundary) -> str:
        if is_imported(boundary):
            return f"imported from {boundary.summarizer or boundary.session.source}"
        return boundary.summarizer or "–"

    @display(description="state")
    def state_column(self, boundary: CompactBoundary) -> str:
        return "reverted" if boundary.reverted_at else "in force"

    @display(description="created at", ordering="created_at")
    def time_column(self, boundary: CompactBoundary) -> SafeString:
        return cells.time_cell(boundary.created_at)

    def detail_context(self, request: HttpRequest, obj: CompactBoundary) -> dict[str, Any]:
        place, run = cells.boundary_place(obj), _run(obj)
        return {
            "title": f"{obj.get_kind_display()} boundary #{obj.pk}",
            "boundary": obj,
            "session": obj.session,
            "name": cells.session_name(obj.session),
            "run_badge": cells.status_badge(run.status, run_id=run.pk) if run else "–",
            "model": one_line(obj.model, limit=NAME_CHARS),
            "response_id": one_line(obj.response_id, limit=NAME_CHARS),
            "used": used_of(obj.usage),
            "usage": fold(pretty_json(obj.usage)) if obj.usage else None,
            "cost": cost_told(usd=run.cost_usd, uncached=run.cost_uncached_usd) if run else None,
            "cleanup": _cleanup(obj.cleanup),
            "kept": {
                "head": visible(obj.head_uuid),
                "anchor": visible(obj.anchor_uuid),
                "tail": visible(obj.tail_uuid),
            },
            "summarizes": BoundaryKind(obj.kind).summarizes,
            "may_compact": access.may_compact(user=request.user, team=obj.session.team),
            "restores_url": cells.boundary_url(obj.restores_id) if obj.restores_id else "",
            "cleared": cleared_by(obj) if obj.cleared_tool_use_ids or obj.cleared_results else None,
            "why": visible(obj.why),
            "imported": is_imported(obj),
            "tokens": cells.token_change(obj.tokens_before, obj.tokens_after),
            "sections": summary_sections(obj.summary) if obj.summary else [],
            "instructions": visible(obj.instructions),
            "attachments": [_attachment(row) for row in obj.attachments.order_by("ordinal")],
            "place": place,
            "place_url": cells.place_url(session_id=obj.session_id, position=max(place, 1)),
            "preserved_url": cells.place_url(session_id=obj.session_id, position=obj.preserved_first)
            if obj.preserved_first
            else "",
        }


def _run(boundary: CompactBoundary) -> CompactionRun | None:
    return getattr(boundary, "run", None)  # the reverse of a one-to-one raises where there is none


def _cleanup(stored: Any) -> list[dict[str, Any]]:
    """What became of each cache, as services/cleanup.py wrote it: what went wrong first, then cleared, then kept."""
    told = stored if isinstance(stored, Mapping) else {}
    rows = ((how, row) for how in CLEANED for row in told.get(how) or [] if isinstance(row, Mapping))
    return [
        {
            "cache": one_line(str(row.get("cache")).replace("_", " "), limit=NAME_CHARS),
            "how": how,
            "kind": CLEANED[how],
            "main_only": row.get("scope") == Scope.MAIN_THREAD.value,
            "by_client": row.get("held_by") == "client",
            "why": one_line(str(row.get("why") or ""), limit=WHY_CHARS),
        }
        for how, row in rows
    ]


def _attachment(row: Attachment) -> dict[str, Any]:
    payload: Fold | None = fold(pretty_json(row.payload)) if row.payload else None
    told = row.payload if isinstance(row.payload, Mapping) else {}
    name = one_line(str(told.get("path") or told.get("name") or ""), limit=NAME_CHARS)
    kind = row.kind.replace("_", " ")
    return {"kind": kind, "name": name, "tokens": row.tokens, "text": fold(row.text), "payload": payload}
