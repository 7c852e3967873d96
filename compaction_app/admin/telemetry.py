"""Telemetry events, as they were emitted."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display

from compaction_app.admin import cells
from compaction_app.admin.base import ReadOnlyModelAdmin
from compaction_app.admin.filters import EventNameFilter, TeamFilter
from compaction_app.admin.rendering.text import fold, one_line, pretty_json
from compaction_app.models import TelemetryEvent

PAYLOAD_CHARS = 120  # of the payload in the list


@admin.register(TelemetryEvent)
class TelemetryEventAdmin(ReadOnlyModelAdmin):
    list_display = ("name", "time_column", "team", "session_column", "payload_column")
    list_select_related = ("team", "session")
    list_filter = (TeamFilter, EventNameFilter)
    ordering = ("-id",)
    detail_template = "compaction_app/admin/event.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("team", "session", "run")

    @display(description="session")
    def session_column(self, event: TelemetryEvent) -> SafeString | str:
        return cells.session_link(event.session) if event.session else "–"

    @display(description="payload")
    def payload_column(self, event: TelemetryEvent) -> str:
        pairs = (f"{key}: {value}" for key, value in event.payload.items())
        return one_line(", ".join(pairs), limit=PAYLOAD_CHARS)

    @display(description="at", ordering="at")
    def time_column(self, event: TelemetryEvent) -> SafeString:
        return cells.time_cell(event.at)

    def detail_context(self, request: HttpRequest, obj: TelemetryEvent) -> dict[str, Any]:
        return {
            "title": obj.name,
            "event": obj,
            "payload": fold(pretty_json(obj.payload)),
            "session_link": cells.session_link(obj.session) if obj.session else "–",
            "run_url": cells.run_url(obj.run_id) if obj.run_id else "",
        }
