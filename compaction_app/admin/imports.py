"""Transcripts that came in over the API, and sessions that were erased: what became of them."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display

from compaction_app.admin import cells
from compaction_app.admin.base import ReadOnlyModelAdmin
from compaction_app.admin.filters import TeamFilter
from compaction_app.admin.rendering.text import one_line, visible
from compaction_app.models import TranscriptImport
from sessions_app.models import Erasure, Session

NAME_CHARS, DETAIL_CHARS = 60, 160  # of what clients and files say, in a list
MOST_SHOWN = 100  # sessions and problems on a page; the API tells all of them


class Record(ReadOnlyModelAdmin):
    """A row whose page is a list of what there is to tell."""

    list_select_related = ("team",)
    ordering = ("-id",)
    detail_template = "compaction_app/admin/record.html"


@admin.register(TranscriptImport)
class TranscriptImportAdmin(Record):
    list_display = ("file_column", "team", "status", "messages", "duplicates", "problems_column", "detail_column", "at")
    list_filter = (TeamFilter, "status")

    @display(description="file")
    def file_column(self, row: TranscriptImport) -> str:
        return one_line(visible(row.name), limit=NAME_CHARS) or "–"

    @display(description="problems")
    def problems_column(self, row: TranscriptImport) -> int:
        return row.problem_count

    @display(description="why it failed")
    def detail_column(self, row: TranscriptImport) -> str:
        return one_line(visible(row.detail), limit=DETAIL_CHARS)

    @display(description="came at")
    def at(self, row: TranscriptImport) -> SafeString:
        return cells.time_cell(row.queued_at)

    def detail_context(self, request: HttpRequest, obj: TranscriptImport) -> dict[str, Any]:
        told = obj.sessions[:MOST_SHOWN]
        known = {
            str(row.uuid): row
            for row in Session.objects.for_team(obj.team).filter(uuid__in=[one["id"] for one in told])
        }
        return {
            "title": one_line(visible(obj.name), limit=NAME_CHARS) or "Import",
            "facts": [
                ("Status", obj.get_status_display()),
                ("Why it failed", visible(obj.detail)),
                ("Team", obj.team.name),
                ("Format", obj.format),
                ("Size", f"{obj.size_bytes:,} bytes"),
                ("Came", cells.time_cell(obj.queued_at)),
                ("Ended", cells.time_cell(obj.finished_at)),
                ("Id", obj.uuid),
            ],
            "tables": [
                (
                    f"{len(obj.sessions):,} sessions",
                    ("Session", "Messages stored", "There already", "Other lines", "Boundaries"),
                    [
                        (
                            cells.session_link(known[one["id"]]) if one["id"] in known else one["id"],
                            *(one[name] for name in ("messages", "duplicates", "entries", "boundaries")),
                        )
                        for one in told
                    ],
                ),
                (
                    f"{obj.problem_count:,} lines that were not understood",
                    ("Line", "Why", "Kept raw"),
                    [
                        (one["line"], visible(one["reason"]), "yes" if one["kept"] else "no")
                        for one in obj.problems[:MOST_SHOWN]
                    ],
                ),
            ],
        }


@admin.register(Erasure)
class ErasureAdmin(Record):
    list_display = ("session_uuid", "team", "by", "messages", "boundaries", "when")
    list_filter = (TeamFilter,)

    @display(description="erased by")
    def by(self, row: Erasure) -> str:
        return visible(row.erased_by)

    @display(description="erased at")
    def when(self, row: Erasure) -> SafeString:
        return cells.time_cell(row.at)

    def detail_context(self, request: HttpRequest, obj: Erasure) -> dict[str, Any]:
        return {
            "title": f"Session {obj.session_uuid}",
            "facts": [
                ("Erased by", visible(obj.erased_by)),
                ("Erased at", cells.time_cell(obj.at)),
                ("Team", obj.team.name),
                ("Messages", f"{obj.messages:,}"),
                ("Boundaries", f"{obj.boundaries:,}"),
            ],
        }
