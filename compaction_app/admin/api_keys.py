"""API keys: made here and shown once, listed by their first characters, revoked once somebody has confirmed it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from unfold.decorators import display

from compaction_app import actions
from compaction_app.admin import access
from compaction_app.admin.base import TeamScopedAdmin
from compaction_app.admin.filters import KeyStateFilter
from sessions_app.models import ApiKey
from sessions_app.models.teams import KeyState

CONFIRMED = "confirmed"  # the field of the form that asks back


class NewKeyForm(forms.ModelForm):
    def clean_expires_at(self) -> Any:
        ends = self.cleaned_data["expires_at"]
        if ends is not None and ends <= timezone.now():
            raise forms.ValidationError("This moment has passed: the key would never hold.")
        return ends


@admin.register(ApiKey)
class ApiKeyAdmin(TeamScopedAdmin):
    """Superusers and a team's owners hand out keys. A key is never changed and never deleted, only revoked."""

    form = NewKeyForm
    list_display = (
        "hint_column",
        "name",
        "team",
        "scope_column",
        "state_column",
        "expires_at",
        "last_used_at",
        "created_at",
    )
    list_select_related = ("team",)
    list_filter = ("scope", KeyStateFilter)
    search_fields = ("name", "hint")
    search_help_text = "Name or first characters"
    ordering = ("-id",)
    fields = ("team", "name", "scope", "expires_at")
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
        return ("hint", "team", "name", "scope", "created_at", "last_used_at", "expires_at", "revoked_at")

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "team":
            kwargs["queryset"] = access.owned_teams(user=request.user).order_by("name", "pk")
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        made, key = actions.create_api_key(team=obj.team, name=obj.name, scope=obj.scope, expires_at=obj.expires_at)
        obj.pk, obj.hint = made.pk, made.hint
        messages.warning(request, f"Copy the key now, it is not shown again: {key}")

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        return self.response_post_save_add(request, obj)

    @admin.action(description="Revoke the selected keys", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> HttpResponse | None:
        """For good, so it is asked back first. A list action is a POST with a token, the answer to it too."""
        mine = queryset.filter(team__in=access.owned_teams(user=request.user)).in_state(  # type: ignore[attr-defined]
            KeyState.ACTIVE, now=timezone.now()
        )
        if CONFIRMED not in request.POST:
            return self._ask_back(request, mine)
        done = actions.revoke_api_keys(keys=mine, now=timezone.now())
        messages.success(request, f"{done} key{'' if done == 1 else 's'} revoked.")
        return None

    def _ask_back(self, request: HttpRequest, keys: QuerySet[ApiKey]) -> HttpResponse | None:
        rows = list(keys.select_related("team").order_by("-pk"))
        if not rows:
            messages.warning(request, "None of these keys holds, so there is nothing to revoke.")
            return None
        context = {**self.admin_site.each_context(request), "opts": self.opts, "title": "Revoke API keys", "keys": rows}
        return TemplateResponse(request, "compaction_app/admin/revoke_keys.html", context | {"confirmed": CONFIRMED})

    @display(description="key", ordering="hint")
    def hint_column(self, key: ApiKey) -> str:
        return f"{key.hint}…"

    @display(description="scope", ordering="scope", label={"read": "info", "write": "warning"})
    def scope_column(self, key: ApiKey) -> tuple[str, str]:
        return key.scope, key.get_scope_display()

    @display(description="state", label={"active": "success", "expired": "warning", "revoked": "danger"})
    def state_column(self, key: ApiKey) -> str:
        return key.state(now=timezone.now()).value
