"""API keys: made here and shown once, listed by their first characters, revoked by POST."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from unfold.decorators import display

from compaction_app import actions
from compaction_app.admin import access
from compaction_app.admin.base import TeamScopedAdmin
from sessions_app.models import ApiKey


@admin.register(ApiKey)
class ApiKeyAdmin(TeamScopedAdmin):
    """Superusers and a team's owners hand out keys. A key is never changed and never deleted, only revoked."""

    list_display = ("hint_column", "name", "team", "scope_column", "state_column", "last_used_at", "created_at")
    list_select_related = ("team",)
    list_filter = ("scope",)
    search_fields = ("name", "hint")
    search_help_text = "Name or first characters"
    ordering = ("-id",)
    fields = ("team", "name", "scope")
    actions = ("revoke",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_superuser) or access.owned_teams(user=request.user).exists()

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return self.has_add_permission(request)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is None:
            return self.fields
        return ("hint", "team", "name", "scope", "created_at", "last_used_at", "revoked_at")

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "team":
            kwargs["queryset"] = access.owned_teams(user=request.user).order_by("name", "pk")
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        made, key = actions.create_api_key(team=obj.team, name=obj.name, scope=obj.scope)
        obj.pk, obj.hint = made.pk, made.hint
        messages.warning(request, f"Copy the key now, it is not shown again: {key}")

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        return self.response_post_save_add(request, obj)

    @admin.action(description="Revoke the selected keys", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        """Revoked at once and for good. A list action is a POST with a token."""
        mine = queryset.filter(team__in=access.owned_teams(user=request.user))
        done = actions.revoke_api_keys(keys=mine, now=timezone.now())
        messages.success(request, f"{done} key{'' if done == 1 else 's'} revoked.")

    @display(description="key", ordering="hint")
    def hint_column(self, key: ApiKey) -> str:
        return f"{key.hint}…"

    @display(description="scope", ordering="scope", label={"read": "info", "write": "warning"})
    def scope_column(self, key: ApiKey) -> tuple[str, str]:
        return key.scope, key.get_scope_display()

    @display(description="state", label={"active": "success", "revoked": "danger"})
    def state_column(self, key: ApiKey) -> str:
        return "revoked" if key.revoked_at else "active"
