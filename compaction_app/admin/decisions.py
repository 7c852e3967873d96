"""The decision log: why something was done about a full session, and why not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display

from compaction_app.admin import cells
from compaction_app.admin.automatic import decision_row
from compaction_app.admin.base import ReadOnlyModelAdmin
from compaction_app.admin.filters import LevelFilter, TeamFilter
from compaction_app.admin.gauge import BASIS
from compaction_app.admin.rendering.text import one_line, visible
from compaction_app.models import Decision
from sessions_app.models import CompactBoundary, Session

WHY_CHARS = 160  # of the reason in the list
_LARGE = ("session__system", "session__tools", "session__metadata", "session__anchor")


@admin.register(Decision)
class DecisionAdmin(ReadOnlyModelAdmin):
    team_path = "session__team"
    list_display = (
        "time_column",
        "session_column",
        "moment",
        "tokens_column",
        "level_column",
        "outcome_column",
        "why_column",
    )
    list_filter = (TeamFilter, "outcome", "moment", LevelFilter)
    ordering = ("-id",)
    sortable_by = ()  # the order of the log; no index serves another
    detail_template = "compaction_app/admin/decision.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request).select_related("session__team", "run")
        return rows.defer(*_LARGE, "run__usage", "run__instructions", "run__detail")

    @display(description="at")
    def time_column(self, decision: Decision) -> SafeString:
        return cells.time_cell(decision.at)

    @display(description="session")
    def session_column(self, decision: Decision) -> SafeString:
        link, team = cells.session_link(decision.session), decision.session.team.name
        return format_html('<span class="ca-name">{}<span class="ca-cell-sub">{}</span></span>', link, team)

    @display(description="tokens")
    def tokens_column(self, decision: Decision) -> SafeString:
        limit = f"automatic compaction from {decision.auto_compact_threshold:,}"
        return format_html('<span class="ca-num" title="{}">{}</span>', limit, f"{decision.context_tokens:,}")

    @display(description="level")
    def level_column(self, decision: Decision) -> str:
        return decision_row(decision).level

    @display(description="outcome")
    def outcome_column(self, decision: Decision) -> SafeString:
        return cells.decision_badge(decision_row(decision))

    @display(description="why")
    def why_column(self, decision: Decision) -> SafeString:
        return format_html('<span class="ca-why">{}</span>', one_line(decision.why, limit=WHY_CHARS))

    def detail_context(self, request: HttpRequest, obj: Decision) -> dict[str, Any]:
        told = decision_row(obj)
        return {
            "title": f"Decision of {cells.session_name(obj.session)}",
            "decision": obj,
            "told": told,
            "basis": BASIS[Session.ContextSource(obj.source)],
            "badge": cells.decision_badge(told),
            "why": visible(obj.why),
            "session": obj.session,
            "name": cells.session_name(obj.session),
            "session_url": cells.session_url(obj.session_id),
            "place_url": cells.place_url(session_id=obj.session_id, position=max(obj.position, 1)),
            "run_badge": cells.status_badge(obj.run.status, run_id=obj.run.pk) if obj.run else "–",
            "applied": list(_applied(obj)),
        }


def _applied(decision: Decision) -> Iterator[dict[str, Any]]:
    """What each light link did (services/clearing.py: Applied), with the boundary that it wrote."""
    links = [entry for entry in decision.applied if isinstance(entry, dict)]
    written = [str(entry["boundary"]) for entry in links if entry.get("boundary")]
    rows = CompactBoundary.objects.filter(session=decision.session_id, uuid__in=written).values_list("uuid", "pk")
    ids = {str(uuid): pk for uuid, pk in rows}
    for entry in links:
        boundary_id = ids.get(str(entry.get("boundary")))
        yield {
            "ran": bool(entry.get("ran")),
            "link": str(entry.get("link", "")).replace("_", " "),
            "why": visible(str(entry.get("why", ""))),
            "tokens_freed": entry.get("tokens_freed") or 0,
            "boundary_url": cells.boundary_url(boundary_id) if boundary_id else "",
        }
