"""A session's memory for people: a line on the session's page, and a page with the document and its extraction."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.urls import reverse

from compaction_app import selectors, telemetry
from compaction_app.admin import cells
from compaction_app.admin.rendering.blocks import MarkdownBlock, PlainBlock, render_text
from compaction_app.admin.rendering.text import Fold, fold, one_line, visible
from compaction_app.engine.decision import switched_off
from compaction_app.engine.links.session_memory import why_unusable
from compaction_app.engine.memory import sections
from compaction_app.models import CompactionState, SessionMemory, TelemetryEvent
from sessions_app import selectors as transcripts
from sessions_app.models import Session
from sessions_app.policy import Policy, ResolvedPolicy

MOST_CHARS, MOST_SECTIONS = 120_000, 200  # of a document on its page; the API gives it whole
NAME_CHARS = 200


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """What the session's page tells of the memory; `tokens` 0 where there is none."""

    url: str
    tokens: int = 0
    covers_position: int = 0
    by: str = ""
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    body: MarkdownBlock | PlainBlock


@dataclass(frozen=True, slots=True)
class Document:
    """`left_out`: sections, and characters, that the page has no room for."""

    sections: tuple[Section, ...]
    stored: Fold
    sections_left_out: int
    chars_left_out: int


@dataclass(frozen=True, slots=True)
class Extraction:
    """Whether it is written in the background, and how that went. `hindrance`: why not, "" where nothing stops it.

    `last_failed`: why the newest try came to nothing, "" where it did not fail or there was none.
    """

    hindrance: str
    under_way_since: datetime | None
    is_first: bool
    tokens: int
    tokens_wanted: int
    calls: int
    calls_wanted: int
    last_at: datetime | None
    last_failed: str


def memory_url(session_id: int) -> str:
    return reverse("admin:sessions_app_session_memory", args=[session_id])


def memory_line(*, session: Session) -> MemoryLine:
    """One query; the document itself is not read."""
    row = SessionMemory.objects.filter(session=session).defer("content").first()
    if row is None or not row.tokens:
        return MemoryLine(url=memory_url(session.pk))
    return MemoryLine(
        url=memory_url(session.pk),
        tokens=row.tokens,
        covers_position=row.covers_position,
        by=_by(row),
        updated_at=row.updated_at,
    )


def memory_context(*, session: Session, now: datetime) -> dict[str, Any]:
    """What the memory's page shows. `session` with team and compaction state loaded. Four queries at most: the memory,
    whether what it covers is live, the boundary that is shown, and the newest try of an extraction."""
    row = selectors.memory(session=session)
    resolved = transcripts.effective_policy(team=session.team, session=session)
    policy = resolved.policy
    written = row if row is not None and row.content else None
    return {
        "memory": written,
        "by": _by(written) if written else "",
        "model": one_line(written.model, limit=NAME_CHARS) if written else "",
        "covers_uuid": visible(written.covers_uuid) if written else "",
        "covers_url": cells.place_url(session_id=session.pk, position=written.covers_position) if written else "",
        "passed_over": _passed_over(session=session, row=written, policy=policy) if written else "",
        "most_tokens": policy.memory_tokens,
        "document": _document(written.content) if written else None,
        "extraction": _extraction(session=session, row=row, resolved=resolved, now=now),
    }


def _by(row: SessionMemory) -> str:
    if row.source == SessionMemory.Source.CLIENT:
        return "given by the client"
    return f"extracted by {one_line(row.summarizer, limit=NAME_CHARS) or 'an unknown summariser'}"


def _passed_over(*, session: Session, row: SessionMemory, policy: Policy) -> str:
    """Why no compaction rests on the document as it is; "" where one may."""
    head = transcripts.head_boundary(session=session)
    memory = selectors.as_memory_value(row=row)
    return why_unusable(memory=memory, head=head.as_value() if head else None, policy=policy)


def _document(content: str) -> Document:
    found = sections(content[:MOST_CHARS])
    return Document(
        sections=tuple(
            Section(
                title=one_line(one.heading.strip().strip("#"), limit=NAME_CHARS) or "Opening",
                body=render_text("\n".join(one.body).strip()),
            )
            for one in found[:MOST_SECTIONS]
        ),
        stored=fold(content),
        sections_left_out=max(len(found) - MOST_SECTIONS, 0),
        chars_left_out=max(len(content) - MOST_CHARS, 0),
    )


def _extraction(*, session: Session, row: SessionMemory | None, resolved: ResolvedPolicy, now: datetime) -> Extraction:
    policy, state = resolved.policy, getattr(session, "compaction_state", None) or CompactionState()
    newest = _newest_try(session=session)
    return Extraction(
        hindrance=_hindrance(policy=policy, off=switched_off(resolved=resolved, automatic=True) or "", row=row),
        under_way_since=state.memory_asked_at if state.is_extracting(now=now, policy=policy) else None,
        is_first=not state.memory_at_tokens,
        tokens=session.appended_tokens - state.memory_at_tokens,
        tokens_wanted=policy.memory_step_tokens if state.memory_at_tokens else policy.memory_first_tokens,
        calls=session.appended_calls - state.memory_at_calls,
        calls_wanted=policy.memory_step_calls if state.memory_at_tokens else 0,
        last_at=newest.at if newest else None,
        last_failed=_reason(newest) if newest and newest.name == telemetry.MEMORY_FAILED else "",
    )


def _hindrance(*, policy: Policy, off: str, row: SessionMemory | None) -> str:
    for figure in ("memory_enabled", "memory_extraction"):
        if not getattr(policy, figure):
            return f"switched off ({figure})"
    return off or ("the client keeps the memory itself" if row is not None and row.is_kept_by_client else "")


def _newest_try(*, session: Session) -> TelemetryEvent | None:
    names = (telemetry.MEMORY_EXTRACTED, telemetry.MEMORY_FAILED)
    return TelemetryEvent.objects.filter(session=session, name__in=names).order_by("-id").first()


def _reason(event: TelemetryEvent) -> str:
    told = event.payload.get("reason") if isinstance(event.payload, dict) else None
    return one_line(str(told or "unknown").replace("_", " "), limit=NAME_CHARS)
