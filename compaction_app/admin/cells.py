"""Small pieces of lists and pages: links, figures, durations. All values are escaped."""

from __future__ import annotations

from datetime import datetime, timedelta
from urllib.parse import urlencode

from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from compaction_app.admin.automatic import DecisionRow
from compaction_app.admin.gauge import Gauge
from compaction_app.admin.rendering.text import visible
from compaction_app.engine.breaker import BreakerState, told
from compaction_app.models import RunStatus
from sessions_app.models import CompactBoundary, Session
from sessions_app.transcript.boundary import BoundaryKind

STATUS_LABELS = {
    RunStatus.QUEUED: "info",
    RunStatus.RUNNING: "info",
    RunStatus.AWAITING_APPROVAL: "warning",
    RunStatus.SUCCEEDED: "success",
    RunStatus.FAILED: "danger",
    RunStatus.CANCELLED: "warning",
}
NAME_CHARS = 70  # of a session's name in the lists of other things
HISTORY_PAGE = 50  # messages on a page of the history


def session_url(session_id: int) -> str:
    return reverse("admin:sessions_app_session_history", args=[session_id])


def policy_url(session_id: int) -> str:
    return reverse("admin:sessions_app_session_policy", args=[session_id])


def run_url(run_id: int) -> str:
    return reverse("admin:compaction_app_compactionrun_change", args=[run_id])


def boundary_url(boundary_id: int) -> str:
    return reverse("admin:sessions_app_compactboundary_change", args=[boundary_id])


def page_start(position: int) -> int:
    """The `after` of the history page that shows this position."""
    return max(position - 1, 0) // HISTORY_PAGE * HISTORY_PAGE


def place_url(*, session_id: int, position: int) -> str:
    """The place of a message in its session's history."""
    return f"{session_url(session_id)}?after={page_start(position)}#m{position}"


def jump_url(*, session_id: int, uuid: str) -> str:
    """The place of the message with this uuid; it is looked up when somebody goes there."""
    return f"{reverse('admin:sessions_app_session_jump', args=[session_id])}?{urlencode({'to': uuid})}"


def boundary_place(boundary: CompactBoundary) -> int:
    """The position after which a boundary stands in the history."""
    return boundary.covers_to if BoundaryKind(boundary.kind).summarizes else boundary.committed_at_position


def session_link(session: Session) -> SafeString:
    name = session_name(session)
    shown = name if len(name) <= NAME_CHARS else name[: NAME_CHARS - 1] + "…"
    return format_html('<a class="ca-link" href="{}" title="{}">{}</a>', session_url(session.pk), name, shown)


def session_cell(session: Session) -> SafeString:
    """Name and model; the list makes it a link."""
    model = visible(session.model) or "model not known"
    return format_html('{}<span class="ca-cell-sub">{}</span>', session_name(session), model)


def session_name(session: Session) -> str:
    return visible(str(session))


def token_change(before: int | None, after: int | None) -> SafeString:
    if before is None:
        return SafeString("–")
    if after is None:
        return format_html('<span class="ca-num">{}</span>', f"{before:,}")
    saved = f" (−{100 * (before - after) / before:.0f}%)" if before and after < before else ""
    return format_html('<span class="ca-num">{} → {}{}</span>', f"{before:,}", f"{after:,}", saved)


def time_cell(moment: datetime | None) -> SafeString:
    if moment is None:
        return SafeString("–")
    local = timezone.localtime(moment)
    text = local.strftime("%Y-%m-%d %H:%M")
    return format_html('<time class="ca-num" datetime="{}">{}</time>', local.isoformat(), text)


def duration_text(duration: timedelta | None) -> str:
    if duration is None:
        return "–"
    seconds = duration.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def decision_badge(decision: DecisionRow) -> SafeString:
    """The outcome, as a link to the decision's page."""
    return format_html(
        '<a class="ca-badge ca-badge-{}" href="{}">{}</a>', decision.badge, decision.url, decision.outcome
    )


def breaker_mark(state: BreakerState) -> SafeString:
    """A small mark where automatic compaction has stopped by itself."""
    if not state.is_open:
        return SafeString("–")
    return format_html('<span class="ca-badge ca-badge-danger" title="{}">open</span>', told(state=state))


def context_cell(gauge: Gauge) -> SafeString:
    limit = f"{gauge.window.auto_compact_threshold:,}"
    return format_html(
        '<div class="ca-fill ca-level-{}" title="{}"><span class="ca-fill-bar" aria-hidden="true">'
        '<span style="width:{}%"></span></span><span class="ca-fill-text"><b>{}%</b> {} tokens</span>'
        '<span class="ca-fill-basis">{} · <span class="ca-fill-level">{}</span></span></div>',
        gauge.level.value,
        gauge.problem or f"{gauge.level_text}; automatic compaction from {limit} tokens",
        gauge.bar,
        gauge.percent,
        f"{gauge.tokens:,}",
        gauge.basis,
        gauge.level_short,
    )


def status_badge(status: str, run_id: int | None = None) -> SafeString:
    kind, words = STATUS_LABELS.get(RunStatus(status), "info"), status.replace("_", " ")
    if run_id is None:
        return format_html('<span class="ca-badge ca-badge-{}">{}</span>', kind, words)
    return format_html('<a class="ca-badge ca-badge-{}" href="{}">{}</a>', kind, run_url(run_id), words)
