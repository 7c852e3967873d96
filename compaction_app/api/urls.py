"""Addresses under /api/."""

from __future__ import annotations

from django.urls import include, path, re_path
from drf_spectacular import renderers
from drf_spectacular.views import SpectacularAPIView

from compaction_app.api.analysis import AnalysisView
from compaction_app.api.approvals import AcceptView, CandidateView, RejectView
from compaction_app.api.boundaries import BoundariesView, BoundaryView, DiffView, RestoreView, RevertView
from compaction_app.api.breaker import ResetBreakerView
from compaction_app.api.compact import CompactView
from compaction_app.api.context import ContextView
from compaction_app.api.decisions import DecisionsView
from compaction_app.api.docs_page import DocsView
from compaction_app.api.errors import UnknownUrl
from compaction_app.api.events import EventsView
from compaction_app.api.exports import ExportView
from compaction_app.api.hooks import DeliveriesView, HooksView, HookView, RotateSecretView
from compaction_app.api.imports import ImportsView, ImportView
from compaction_app.api.memory import MemoryView
from compaction_app.api.messages import MessagesView
from compaction_app.api.policy import PolicyView
from compaction_app.api.prepare import PrepareView
from compaction_app.api.run_changes import CancelView, RetryView
from compaction_app.api.runs import RunsView, RunView
from compaction_app.api.search import SearchView
from compaction_app.api.sessions import SessionsView, SessionView
from compaction_app.api.state import StateView
from compaction_app.api.telemetry import EventsOfTelemetryView, SummaryView
from compaction_app.api.token_state import TokenStateView

# JSON, or YAML where the Accept header asks for it.
SCHEMA_RENDERERS = [renderers.OpenApiJsonRenderer2, renderers.OpenApiJsonRenderer, renderers.OpenApiYamlRenderer]
v1 = [
    path("sessions/", SessionsView.as_view()),
    path("sessions/<uuid:session_id>/", SessionView.as_view()),
    path("sessions/<uuid:session_id>/messages/", MessagesView.as_view()),
    path("sessions/<uuid:session_id>/context/", ContextView.as_view()),
    path("sessions/<uuid:session_id>/policy/", PolicyView.as_view()),
    path("sessions/<uuid:session_id>/prepare/", PrepareView.as_view()),
    path("sessions/<uuid:session_id>/state/", StateView.as_view()),
    path("sessions/<uuid:session_id>/memory/", MemoryView.as_view()),
    path("sessions/<uuid:session_id>/token-state/", TokenStateView.as_view()),
    path("sessions/<uuid:session_id>/reset-breaker/", ResetBreakerView.as_view()),
    path("sessions/<uuid:session_id>/decisions/", DecisionsView.as_view()),
    path("sessions/<uuid:session_id>/analysis/", AnalysisView.as_view()),
    path("sessions/<uuid:session_id>/compact/", CompactView.as_view()),
    path("sessions/<uuid:session_id>/export/", ExportView.as_view()),
    path("sessions/<uuid:session_id>/boundaries/", BoundariesView.as_view()),
    path("boundaries/<uuid:boundary_id>/", BoundaryView.as_view()),
    path("boundaries/<uuid:boundary_id>/revert/", RevertView.as_view()),
    path("boundaries/<uuid:boundary_id>/restore/", RestoreView.as_view()),
    path("boundaries/<uuid:boundary_id>/diff/", DiffView.as_view()),
    path("runs/", RunsView.as_view()),
    path("runs/<uuid:run_id>/", RunView.as_view()),
    path("runs/<uuid:run_id>/events/", EventsView.as_view()),
    path("runs/<uuid:run_id>/retry/", RetryView.as_view()),
    path("runs/<uuid:run_id>/cancel/", CancelView.as_view()),
    path("runs/<uuid:run_id>/candidate/", CandidateView.as_view()),
    path("runs/<uuid:run_id>/accept/", AcceptView.as_view()),
    path("runs/<uuid:run_id>/reject/", RejectView.as_view()),
    path("imports/", ImportsView.as_view()),
    path("imports/<uuid:import_id>/", ImportView.as_view()),
    path("search/", SearchView.as_view()),
    path("telemetry/events/", EventsOfTelemetryView.as_view()),
    path("telemetry/summary/", SummaryView.as_view()),
    path("hooks/", HooksView.as_view()),
    path("hooks/<uuid:hook_id>/", HookView.as_view()),
    path("hooks/<uuid:hook_id>/rotate-secret/", RotateSecretView.as_view()),
    path("hooks/<uuid:hook_id>/deliveries/", DeliveriesView.as_view()),
]
urlpatterns = [
    path("v1/", include(v1)),
    path("schema/", SpectacularAPIView.as_view(renderer_classes=SCHEMA_RENDERERS), name="api-schema"),
    path("docs/", DocsView.as_view(url_name="api-schema"), name="api-docs"),
    re_path(r"", UnknownUrl.as_view()),
]
