"""Transcripts that came in over the API, and sessions that were erased: lists alone, of what became of them."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from unfold.decorators import display

from compaction_app.admin import cells
from compaction_app.admin.base import ReadOnlyModelAdmin
from compaction_app.admin.filters import TeamFilter
from compaction_app.admin.rendering.text import one_line, visible
from compaction_app.models import TranscriptImport
from sessions_app.models import Erasure

NAME_CHARS, DETAIL_CHARS = 60, 160  # of what clients and files say, in a list


class ListAlone(ReadOnlyModelAdmin):
    """What there is to tell stands in the row."""

    list_display_links = None
    list_select_related = ("team",)
    ordering = ("-id",)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        raise Http404


@admin.register(TranscriptImport)
class TranscriptImportAdmin(ListAlone):
    list_display = ("file_column", "team", "status", "messages", "duplicates", "problem_count", "detail_column", "at")
    list_filter = (TeamFilter, "status")

    @display(description="file")
    def file_column(self, row: TranscriptImport) -> str:
        return one_line(visible(row.name), limit=NAME_CHARS) or "–"

    @display(description="why it failed")
    def detail_column(self, row: TranscriptImport) -> str:
        return one_line(visible(row.detail), limit=DETAIL_CHARS)

    @display(description="came at")
    def at(self, row: TranscriptImport) -> SafeString:
        return cells.time_cell(row.queued_at)


@admin.register(Erasure)
class ErasureAdmin(ListAlone):
    list_display = ("session_uuid", "team", "erased_by", "messages", "boundaries", "when")
    list_filter = (TeamFilter,)

    @display(description="erased at")
    def when(self, row: Erasure) -> SafeString:
        return cells.time_cell(row.at)
