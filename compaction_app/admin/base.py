"""What the pages share: read-only by default, a team's rows only, and lists that never count their table."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import ShowFacets
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from unfold.admin import ModelAdmin
from unfold.paginator import InfinitePaginator

from compaction_app.admin import access


class Crumb:
    """A row for the theme's breadcrumb (as the context's `object`): a link to its page, under a name made harmless."""

    def __init__(self, *, row: Model, name: str) -> None:
        self._meta, self.pk, self._name = row._meta, row.pk, name

    def __str__(self) -> str:
        return self._name


class TeamScopedAdmin(ModelAdmin):
    """Staff see the rows of their own teams, in lists and by direct address; another team's row is a 404.

    Membership is the permission: Django's model permissions are not asked, so that making somebody staff and a member
    is all that it takes.
    """

    team_path = "team"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return access.scoped(queryset=super().get_queryset(request), user=request.user, team_path=self.team_path)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        found = super().get_object(request, object_id, from_field)
        if found is None:
            # Django would redirect to the index with a message that repeats the id; nothing is to be told apart here.
            raise Http404
        return found

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return bool(request.user.is_active and request.user.is_staff)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)


class ReadOnlyModelAdmin(TeamScopedAdmin):
    """Shows rows and changes none.

    Writes follow rules that live above the model layer (append-only history, one active run a session, counters
    under the session's lock); a form that saves a row would pass them by. What can be done is a function in
    `compaction_app/actions.py`, called by POST.

    Lists never count their table and never load what they don't show; the page of one row is `detail_template`.
    """

    actions = None
    list_per_page = 50
    paginator = InfinitePaginator
    show_full_result_count = False
    show_facets = ShowFacets.NEVER  # each facet is a count
    list_fullwidth = True
    detail_template = ""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        obj = self.get_object(request, object_id)
        context = {**self.page_context(request, obj), **self.detail_context(request, obj), **(extra_context or {})}
        return TemplateResponse(request, self.detail_template, context)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        raise Http404  # nothing is edited here, so there is no log of edits

    def detail_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        """What `detail_template` needs, with `title`."""
        return {}

    def page_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        """What the theme's frame needs on a page of our own.

        The row is neither `object` nor `original`: the theme would print its name as it is stored, bidi controls and
        all. A page below the row's own gives a `Crumb`.
        """
        return {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "is_fullwidth": "1",
        }
