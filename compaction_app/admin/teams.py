"""Teams: name, members, and the figures of the policy table that they set for themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from unfold.admin import TabularInline
from unfold.decorators import display

from compaction_app.admin.base import TeamScopedAdmin
from compaction_app.admin.policy_form import Layers, PolicyForm, Problem, figure_rows
from sessions_app.models import Membership, Team

MOST_MEMBERS = 100  # on a page of the members


class TeamForm(forms.ModelForm):
    """Name and slug, and with them the team's figures (`figures`): saved together or not at all."""

    class Meta:
        model = Team
        fields = ("name", "slug")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        layers = Layers(own="team", team=self.instance.policy_overrides)
        self.figures = PolicyForm(layers=layers, data=self.data if self.is_bound else None)

    @property
    def changed_data(self) -> list[str]:
        """With the figures, so that the log of changes tells of them."""
        return super().changed_data + [f"figure {name}" for name in self.figures.changed_data]

    def is_valid(self) -> bool:
        figures_are_valid = self.figures.is_valid()
        return super().is_valid() and figures_are_valid

    def save(self, commit: bool = True) -> Any:
        self.instance.policy_overrides = self.figures.overrides()
        return super().save(commit)


class MembershipInline(TabularInline):
    model = Membership
    extra = 0
    per_page = MOST_MEMBERS
    autocomplete_fields = ("user",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("user", "team").order_by("pk")

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return True

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return request.user.is_superuser

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return request.user.is_superuser

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return request.user.is_superuser


@admin.register(Team)
class TeamAdmin(TeamScopedAdmin):
    """Superusers make and change teams; members see theirs. Nobody deletes one: its history would go with it."""

    team_path = "pk"
    form = TeamForm
    inlines = (MembershipInline,)
    list_display = ("name", "slug", "overrides_column", "created_at")
    search_fields = ("name", "slug")
    ordering = ("name", "pk")
    prepopulated_fields = {"slug": ("name",)}
    change_form_before_template = "compaction_app/admin/problems.html"
    change_form_after_template = "compaction_app/admin/team_figures.html"
    change_form_show_cancel_button = True

    class Media:
        js = (forms.Script("compaction_app/policy.js", defer=True),)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.is_superuser

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return request.user.is_superuser

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def get_prepopulated_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return {} if obj or not request.user.is_superuser else super().get_prepopulated_fields(request, obj)

    @display(description="policy overrides")
    def overrides_column(self, team: Team) -> str:
        return ", ".join(sorted(team.policy_overrides)) or "–"

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        team = self.get_object(request, object_id) if object_id else None
        layers = Layers(own="team", team=team.policy_overrides if team else {})
        context = {"figures": figure_rows(layers=layers), **(extra_context or {})}
        return super().changeform_view(request, object_id, form_url, context)

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """With one list of all that was refused; the theme's own box would only say that there is something."""
        refused = _problems(form=context["adminform"].form, inlines=context["inline_admin_formsets"])
        context.update(problems=list(refused), errors=None)
        return super().render_change_form(request, context, *args, **kwargs)


def _problems(*, form: TeamForm, inlines: Any) -> Iterator[Problem]:
    """What was refused of the team, its members and its figures, in the order of the page."""
    yield from _of_form(form)
    for formset in (inline.formset for inline in inlines):
        for member in formset.forms:
            yield from _of_form(member)
        for error in formset.non_form_errors():
            yield Problem(text=str(error), target=f"{formset.prefix}-group")
    yield from form.figures.problems()


def _of_form(form: forms.BaseForm) -> Iterator[Problem]:
    """An error of the form as a whole leads to its first field."""
    for error in form.non_field_errors():
        yield Problem(text=str(error), target=form.visible_fields()[0].id_for_label)
    for field in form:
        yield from (Problem(text=f"{field.label}: {error}", target=field.id_for_label) for error in field.errors)
