"""Addresses."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

# Under /api/ also these speak JSON in the one shape.
handler400 = "compaction_app.api.errors.bad_request"
handler500 = "compaction_app.api.errors.server_error"

urlpatterns = [
    path("", RedirectView.as_view(url="/admin/")),
    path("admin/", admin.site.urls),
    path("api/", include("compaction_app.api.urls")),
]
