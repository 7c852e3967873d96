"""Teams: name, members, and the figures of the policy table that they set for themselves."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from unfold.admin import TabularInline
from unfold.decorators import display

from compaction_app.admin.base import TeamScopedAdmin
from sessions_app import policy
from sessions_app.figures import PolicyError
from sessions_app.models import Membership, Team

MOST_MEMBERS = 100  # on a page of the members


class TeamForm(forms.ModelForm):
    class Meta:
        model = Team
        fields = ("name", "slug", "policy_overrides")

    def clean_policy_overrides(self) -> dict[str, Any]:
        """Each figure by its own rule, every problem named at once."""
        overrides = self.cleaned_data["policy_overrides"] or {}
        if not isinstance(overrides, dict):
            raise ValidationError('An object is needed, such as {"auto_compact_pct": 80}.')
        checked, problems = {}, []
        for name, value in overrides.items():
            try:
                checked[name] = policy.check(name=name, value=value)
            except PolicyError as error:
                problems.append(ValidationError(str(error)))
        if problems:
            raise ValidationError(problems)
        return checked


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
    change_form_after_template = "compaction_app/admin/policy_table.html"
    change_form_show_cancel_button = True

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
        context = {"figures": _figures(team.policy_overrides if team else {}), **(extra_context or {})}
        return super().changeform_view(request, object_id, form_url, context)


def _figures(overrides: Any) -> list[dict[str, Any]]:
    """The policy table: each figure's default, what holds for the team, and where that comes from."""
    resolved = policy.resolve(environment=settings.COMPACTION_POLICY, team=overrides)
    return [
        {
            "name": name,
            "value": getattr(resolved.policy, name),
            "default": figure.default,
            "unit": figure.metadata["unit"],
            "origin": resolved.origins.get(name, "default"),
            "meaning": figure.metadata["meaning"],
        }
        for name, figure in policy.FIGURES.items()
    ]
