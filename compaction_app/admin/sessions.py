"""Sessions: the list, the history page, and the button that compacts."""

from __future__ import annotations

import contextlib
import json
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import F, OuterRef, QuerySet, Subquery
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.decorators import display
from unfold.views import ChangeList

from compaction_app import actions, selectors
from compaction_app.admin import access, cells
from compaction_app.admin.automatic import automatic_of
from compaction_app.admin.base import Crumb, ReadOnlyModelAdmin
from compaction_app.admin.filters import BreakerFilter, LevelFilter, ModelFilter, SourceFilter, TeamFilter
from compaction_app.admin.gauge import gauge_of
from compaction_app.admin.history import find_position, read_page
from compaction_app.admin.memory import memory_context, memory_line
from compaction_app.admin.policy_form import Layers, PolicyForm, figure_rows
from compaction_app.admin.rendering.text import visible
from compaction_app.admin.timeline import timeline_of
from compaction_app.models import CompactionRun
from sessions_app.models import Message, Session

MOST_INSTRUCTIONS = 4_000  # characters


class SessionList(ChangeList):
    def url_for_result(self, result: Session) -> str:
        return cells.session_url(result.pk)


class CompactForm(forms.Form):
    instructions = forms.CharField(required=False, max_length=MOST_INSTRUCTIONS, strip=True)


@admin.register(Session)
class SessionAdmin(ReadOnlyModelAdmin):
    list_display = (
        "title_column",
        "context_column",
        "breaker_column",
        "team",
        "messages_column",
        "compactions_column",
        "last_run_column",
        "activity_column",
    )
    list_select_related = ("team", "compaction_state")
    list_filter = (TeamFilter, LevelFilter, BreakerFilter, ModelFilter, "thread", SourceFilter)
    search_fields = ("title", "external_id", "uuid")
    search_help_text = "Title, external id or uuid"
    change_list_template = "compaction_app/admin/session_list.html"
    ordering = (F("last_message_at").desc(nulls_last=True), "-id")
    detail_template = "compaction_app/admin/history.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        newest = CompactionRun.objects.filter(session=OuterRef("pk")).order_by("-id")
        rows = super().get_queryset(request).select_related("team", "compaction_state")
        rows = rows.defer("system", "tools", "metadata", "anchor")
        return rows.annotate(
            last_run_id=Subquery(newest.values("pk")[:1]), last_run_status=Subquery(newest.values("status")[:1])
        )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[SessionList]:
        return SessionList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """A whole uuid, with or without hyphens, is looked up as such: databases keep it in different forms."""
        found, duplicates = super().get_search_results(request, queryset, search_term)
        with contextlib.suppress(ValueError):
            found = found | queryset.filter(uuid=UUID(search_term.strip()))
        return found, duplicates

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        empty = not self.get_queryset(request).exists()
        return super().changelist_view(request, {"nothing_yet": empty, **(extra_context or {})})

    @display(description="session", ordering="title")
    def title_column(self, session: Session) -> SafeString:
        return cells.session_cell(session)

    @display(description="context", ordering="context_tokens")
    def context_column(self, session: Session) -> SafeString:
        return cells.context_cell(gauge_of(session=session))

    @display(description="breaker")
    def breaker_column(self, session: Session) -> SafeString:
        return cells.breaker_mark(selectors.breaker_state(session=session))

    @display(description="messages", ordering="last_position")
    def messages_column(self, session: Session) -> str:
        return f"{session.last_position:,}"

    @display(description="compactions", ordering="boundary_count")
    def compactions_column(self, session: Session) -> int:
        return session.boundary_count

    @display(description="last run")
    def last_run_column(self, session: Any) -> str:
        if session.last_run_id is None:
            return "–"
        return cells.status_badge(session.last_run_status, run_id=session.last_run_id)

    @display(description="last activity", ordering="last_message_at")
    def activity_column(self, session: Session) -> SafeString:
        return cells.time_cell(session.last_message_at)

    # The pages of one session.

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        name = "sessions_app_session"
        own = [
            path("<path:object_id>/compact/", view(self.compact_view), name=f"{name}_compact"),
            path("<path:object_id>/memory/", view(self.memory_view), name=f"{name}_memory"),
            path("<path:object_id>/policy/", view(self.policy_view), name=f"{name}_policy"),
            path("<path:object_id>/breaker/reset/", view(self.reset_view), name=f"{name}_reset_breaker"),
            path("<path:object_id>/jump/", view(self.jump_view), name=f"{name}_jump"),
            path("<path:object_id>/messages/<int:position>/", view(self.message_view), name=f"{name}_message"),
        ]
        return own + super().get_urls()

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        session = self.get_object(request, object_id)
        return HttpResponseRedirect(cells.session_url(session.pk))

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The transcript, a page at a time."""
        session = self.get_object(request, object_id)
        page = read_page(
            session=session, after=_position(request.GET.get("after")), prompts_only=request.GET.get("prompts") == "1"
        )
        gauge = gauge_of(session=session)
        context = {
            **self.page_context(request, session),
            "title": cells.session_name(session),
            "session": session,
            "external_id": visible(session.external_id or ""),
            "gauge": gauge,
            "timeline": timeline_of(session=session, gauge=gauge),
            "automatic": automatic_of(session=session, now=timezone.now()),
            "memory": memory_line(session=session),
            "overridden": len(session.policy_overrides),
            "page": page,
            "may_compact": access.may_compact(user=request.user, team=session.team),
            "most_instructions": MOST_INSTRUCTIONS,
        }
        return TemplateResponse(request, self.detail_template, context)

    def memory_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The memory document, and how its extraction goes. Read only: clients write it by the API."""
        session = self.get_object(request, object_id)
        context = {
            **self.page_context(request, session),
            **memory_context(session=session, now=timezone.now()),
            "title": f"Memory of {cells.session_name(session)}",
            "object": Crumb(row=session, name=cells.session_name(session)),
            "session": session,
            "name": cells.session_name(session),
            "session_url": cells.session_url(session.pk),
        }
        return TemplateResponse(request, "compaction_app/admin/memory.html", context)

    def jump_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """To the message with this position or uuid (`?to=`)."""
        session = self.get_object(request, object_id)
        wanted = request.GET.get("to", "")
        position = find_position(session=session, wanted=wanted)
        if position is None:
            messages.warning(request, f"No message “{wanted[:80]}” in this session.")
            return HttpResponseRedirect(cells.session_url(session.pk))
        return HttpResponseRedirect(cells.place_url(session_id=session.pk, position=position))

    def message_view(self, request: HttpRequest, object_id: str, position: int) -> HttpResponse:
        """One message as it is stored, whole, as JSON."""
        session = self.get_object(request, object_id)
        row = Message.objects.filter(session=session, position=position).first()
        if row is None:
            raise Http404
        stored = {
            "uuid": row.uuid,
            "role": row.role,
            "content": row.content,
            "usage": row.usage,
            "envelope": row.envelope,
        }
        # ASCII with escapes: a lone surrogate has no bytes in UTF-8.
        return HttpResponse(json.dumps(stored, indent=2), content_type="application/json")

    def compact_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Queue a compaction. POST only: a link must not change anything."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        session = self.get_object(request, object_id)
        if not access.may_compact(user=request.user, team=session.team):
            raise PermissionDenied
        form = CompactForm(request.POST)
        if not form.is_valid():
            messages.error(request, f"The instructions are longer than {MOST_INSTRUCTIONS:,} characters.")
            return HttpResponseRedirect(cells.session_url(session.pk))
        return HttpResponseRedirect(self._compact(request, session, form.cleaned_data["instructions"]))

    def policy_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The session's own figures: to edit for who may compact, to read for who only looks."""
        session = self.get_object(request, object_id)
        may_edit = access.may_compact(user=request.user, team=session.team)
        layers = Layers(own="session", team=session.team.policy_overrides, session=session.policy_overrides)
        form = PolicyForm(layers=layers, data=request.POST if request.method == "POST" else None)
        if request.method == "POST":
            if not may_edit:
                raise PermissionDenied
            if form.is_valid():
                return self._save_policy(request, session, form.changes())
        context = {
            **self.page_context(request, session),
            "title": f"Figures of {cells.session_name(session)}",
            "object": Crumb(row=session, name=cells.session_name(session)),
            "session": session,
            "name": cells.session_name(session),
            "session_url": cells.session_url(session.pk),
            "form": form if may_edit else None,
            "figures": figure_rows(layers=layers),
        }
        return TemplateResponse(request, "compaction_app/admin/session_policy.html", context)

    def _save_policy(self, request: HttpRequest, session: Session, changes: dict[str, Any]) -> HttpResponse:
        if changes:
            actions.update_session(session=session, values={"policy_overrides": changes})
            messages.success(request, f"Saved: {', '.join(sorted(changes))}.")
        else:
            messages.info(request, "Nothing was changed.")
        return HttpResponseRedirect(cells.policy_url(session.pk))

    def reset_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Close the breaker and forget the failures. POST only: a link must not change anything."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        session = self.get_object(request, object_id)
        if not access.may_compact(user=request.user, team=session.team):
            raise PermissionDenied
        if actions.reset_breaker(session=session, now=timezone.now(), by=request.user):
            messages.success(request, "The breaker is reset: compaction may start by itself again.")
        else:
            messages.success(request, "The breaker was not open; what had failed in a row is forgotten.")
        return HttpResponseRedirect(cells.session_url(session.pk))

    def _compact(self, request: HttpRequest, session: Session, instructions: str) -> str:
        """Ask for the compaction and say what came of it; the address of the run."""
        try:
            run = actions.request_compaction(
                session=session,
                wanted=actions.Wanted.from_typed(instructions),
                now=timezone.now(),
                requested_by=request.user,
                source=CompactionRun.Source.ADMIN,
            )
        except actions.ActiveRun as active:
            messages.warning(request, f"This session has a run already: it is {active.run.status}.")
            return cells.run_url(active.run.pk)
        except actions.NothingToCompact as nothing:
            messages.info(request, f"Nothing to compact: {nothing}")
            return cells.session_url(session.pk)
        except (actions.CommandError, actions.PartialRefused) as refused:
            messages.error(request, f"Nothing was asked for: {refused}")
            return cells.session_url(session.pk)
        messages.success(request, "Compaction queued. This page follows it.")
        return cells.run_url(run.pk)


def _position(value: str | None) -> int:
    return int(value) if value and value.isdecimal() and len(value) < 10 else 0
