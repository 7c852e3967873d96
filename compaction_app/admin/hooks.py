"""Hooks of a team, and the log of what was sent to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from django import forms
from django.contrib import admin, messages
from django.contrib.admin import SimpleListFilter
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display
from unfold.widgets import UnfoldAdminTextInputWidget

from compaction_app import actions
from compaction_app.admin import access, cells
from compaction_app.admin.base import ReadOnlyModelAdmin, TeamScopedAdmin
from compaction_app.admin.filters import MOST_CHOICES, TeamFilter
from compaction_app.admin.rendering.text import fold, one_line, pretty_json, visible
from compaction_app.models import Hook, HookDelivery
from sessions_app.models import Team

URL_CHARS = 80  # of an address in the lists
DETAIL_CHARS = 120  # of a detail in the list
DELIVERY_LABELS = {"waiting": "info", "delivered": "success", "given_up": "danger"}
_LARGE = ("payload", "session__system", "session__tools", "session__metadata", "session__anchor")


class HookForm(forms.ModelForm):
    """A hook without its secret, judged by the same rules as in the API."""

    url = forms.CharField(
        label="URL",
        max_length=2_000,
        widget=UnfoldAdminTextInputWidget,
        help_text="http or https, public, without user name and password. Redirects are not followed.",
    )

    class Meta:
        model = Hook
        fields = ("team", "event", "url", "description", "enabled", "can_block", "required", "timeout")

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or {}
        event = values.get("event") or self.instance.event
        judged = {name: value for name, value in values.items() if name != "url" or "url" in self.changed_data}
        for name, problem in actions.hook_problems(event=event, values=judged).items():
            self.add_error(name or None, problem)
        team = values.get("team")
        if self.instance.pk is None and isinstance(team, Team) and not actions.has_room_for_hook(team=team):
            self.add_error("team", "This team has as many hooks as a team can have.")
        return values


@admin.register(Hook)
class HookAdmin(TeamScopedAdmin):
    """Superusers and a team's owners set hooks up; its members see them. A secret is shown once, when it is made."""

    form = HookForm
    list_display = ("event", "url_column", "team", "state_column", "rights_column", "deliveries_column")
    list_select_related = ("team",)
    list_filter = (TeamFilter, "event")
    ordering = ("-id",)
    actions = ("rotate",)
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_superuser) or access.owned_teams(user=request.user).exists()

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        if isinstance(obj, Hook):
            return access.owned_teams(user=request.user).filter(pk=obj.team_id).exists()
        return self.has_add_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.has_change_permission(request, obj)

    def has_rotate_permission(self, request: HttpRequest) -> bool:
        return self.has_add_permission(request)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Sequence[str]:
        return ("team", "event") if obj else ()

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "team":
            kwargs["queryset"] = access.owned_teams(user=request.user).order_by("name", "pk")
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def save_model(self, request: HttpRequest, obj: Hook, form: Any, change: bool) -> None:
        values = {name: form.cleaned_data[name] for name in form.changed_data if name in form.cleaned_data}
        if change:
            actions.update_hook(hook=obj, values=values)
            return
        made = actions.create_hook(team=obj.team, event=obj.event, values=form.cleaned_data)
        obj.pk, obj.secret = made.pk, made.secret
        messages.warning(request, f"Copy the secret now, it is not shown again: {made.secret}")

    def response_add(self, request: HttpRequest, obj: Hook, post_url_continue: str | None = None) -> HttpResponse:
        return self.response_post_save_add(request, obj)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """The hooks alone: their log, which goes with them, may be long, and is nobody's to delete by itself."""
        mine = access.owned_teams(user=request.user)
        refused = {str(self.opts.verbose_name)} if any(not mine.filter(pk=h.team_id).exists() for h in objs) else set()
        return [_name(hook) for hook in objs], {str(self.opts.verbose_name_plural): len(objs)}, refused, []

    def delete_model(self, request: HttpRequest, obj: Hook) -> None:
        actions.delete_hook(hook=obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Hook]) -> None:
        for hook in queryset.filter(team__in=access.owned_teams(user=request.user)):
            actions.delete_hook(hook=hook)

    @admin.action(description="Give the selected hooks another secret", permissions=["rotate"])
    def rotate(self, request: HttpRequest, queryset: QuerySet[Hook]) -> None:
        """The old secrets end at once. A list action is a POST with a token."""
        for hook in queryset.filter(team__in=access.owned_teams(user=request.user)):
            secret = actions.rotate_hook_secret(hook=hook).secret
            messages.warning(request, f"New secret of {_name(hook)}; copy it now, it is not shown again: {secret}")

    @display(description="url")
    def url_column(self, hook: Hook) -> SafeString:
        below = format_html('<span class="ca-cell-sub">{}</span>', visible(hook.description))
        return format_html('<span class="ca-name">{}{}</span>', one_line(hook.url, limit=URL_CHARS), below)

    @display(description="state", label={"on": "success", "off": "danger"})
    def state_column(self, hook: Hook) -> str:
        return "on" if hook.enabled else "off"

    @display(description="rights")
    def rights_column(self, hook: Hook) -> str:
        rights = [name for name, has in (("may block", hook.can_block), ("required", hook.required)) if has]
        return ", ".join(rights) or "–"

    @display(description="log")
    def deliveries_column(self, hook: Hook) -> SafeString:
        url = reverse("admin:compaction_app_hookdelivery_changelist")
        return format_html('<a class="ca-link" href="{}?hook={}">deliveries</a>', url, hook.pk)


def _name(hook: Hook) -> str:
    return f"{hook.event} to {visible(urlsplit(hook.url).hostname or '?')}"


class HookFilter(SimpleListFilter):
    """The hooks of the user's own teams."""

    title = "hook"
    parameter_name = "hook"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        hooks = access.scoped(queryset=Hook.objects.order_by("-pk"), user=request.user, team_path="team")
        return [(str(hook.pk), _name(hook)) for hook in hooks[:MOST_CHOICES]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value is None:
            return queryset
        is_key = value.isascii() and value.isdecimal() and len(value) < 19
        return queryset.filter(hook=int(value)) if is_key else queryset.none()


@admin.register(HookDelivery)
class HookDeliveryAdmin(ReadOnlyModelAdmin):
    team_path = "hook__team"
    list_display = (
        "status_column",
        "hook_column",
        "session_column",
        "tries",
        "http_status",
        "detail_column",
        "time_column",
        "next_column",
    )
    list_filter = (TeamFilter, HookFilter, "status", "event")
    ordering = ("-id",)
    sortable_by = ()  # the order of the log; no index serves another
    detail_template = "compaction_app/admin/hook_delivery.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("hook__team", "session").defer(*_LARGE)

    @display(description="status", label=DELIVERY_LABELS)
    def status_column(self, delivery: HookDelivery) -> tuple[str, str]:
        return delivery.status, HookDelivery.Status(delivery.status).label

    @display(description="hook")
    def hook_column(self, delivery: HookDelivery) -> SafeString:
        host, team = visible(urlsplit(delivery.hook.url).hostname or "?"), delivery.hook.team.name
        told = f"{delivery.event} · {team}"
        return format_html('<span class="ca-name">{}<span class="ca-cell-sub">{}</span></span>', host, told)

    @display(description="session")
    def session_column(self, delivery: HookDelivery) -> SafeString:
        return cells.session_link(delivery.session)

    @display(description="detail")
    def detail_column(self, delivery: HookDelivery) -> str:
        return one_line(delivery.detail, limit=DETAIL_CHARS)

    @display(description="at")
    def time_column(self, delivery: HookDelivery) -> SafeString:
        return cells.time_cell(delivery.created_at)

    @display(description="next try")
    def next_column(self, delivery: HookDelivery) -> SafeString:
        return cells.time_cell(delivery.next_try_at)

    def detail_context(self, request: HttpRequest, obj: HookDelivery) -> dict[str, Any]:
        return {
            "title": _name(obj.hook),
            "delivery": obj,
            "kind": DELIVERY_LABELS.get(obj.status, "info"),
            "url": visible(obj.hook.url),
            "detail": visible(obj.detail),
            "payload": fold(pretty_json(obj.payload)),
            "session_link": cells.session_link(obj.session),
            "run_url": cells.run_url(obj.run_id) if obj.run_id else "",
        }
