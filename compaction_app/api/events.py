"""runs/{id}/events/: a run as it goes on (server-sent events).

The view answers like any other. What it streams is an async iterator under ASGI, which waits for the one poller of the
process (`watching.py`) and holds neither a thread nor a connection of the database; compaction_site/asgi.py sees to it
that the request holds none either. Under WSGI a stream has its request's thread.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from uuid import UUID

from django.core.handlers.asgi import ASGIRequest
from django.db import connection
from django.http import HttpResponse, StreamingHttpResponse
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from compaction_app.api.base import ApiView
from compaction_app.api.event_text import HEARTBEAT, MEDIA_TYPE, Seen, events_of, opening, seen_by
from compaction_app.api.watching import watchers_here
from compaction_app.engine.run_state import RunState
from compaction_app.selectors.watching import run_state, run_states
from sessions_app.policy import Policy

# Each event of the stream, as its lines tell it.
EVENT = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "What `Last-Event-ID` takes."},
        "event": {"type": "string", "enum": ["stage", "progress", "done"]},
        "data": {"type": "string", "description": "JSON."},
    },
    "required": ["id", "event", "data"],
}
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class WhateverIsAccepted(DefaultContentNegotiation):
    """A browser accepts events alone, and yet what is wrong is told as JSON."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        [renderer] = renderers
        return renderer, renderer.media_type


class EventsView(ApiView):
    content_negotiation_class = WhateverIsAccepted

    @extend_schema(
        summary="Watch a run",
        description="Server-sent events: `stage` for each stage that the run comes to (`stage`, `at`, `attempt`, "
        "`progress`), `progress` as it goes on (`progress`, `stage`, `tokens_streamed`), and `done` at its end "
        "(`run`, `status`, `failure_reason`, `detail`, `boundary`, `tokens_before`, `tokens_after`), after which the "
        "stream ends. A run that has ended gives its stages and `done` at once. While there is nothing to tell, a "
        "comment comes from time to time. A stream also ends without `done` after a while, when the server stops, "
        "and when the run is erased: ask again with the id of the last event, as a browser's EventSource does.",
        parameters=[
            OpenApiParameter(
                "Last-Event-ID",
                type=str,
                location=OpenApiParameter.HEADER,
                description="The id of the last event that came: what follows it is told, no stage twice and none left "
                "out. One that is none of ours is as if there were none.",
            )
        ],
        responses={
            (200, MEDIA_TYPE): EVENT,
            204: OpenApiResponse(description="`done` was the last event: there is nothing to come."),
        },
    )
    def get(self, request: Request, run_id: UUID) -> HttpResponse | StreamingHttpResponse:
        state = run_state(team=self.team, uuid=run_id)
        if state is None:
            raise NotFound(f"There is no run {run_id}.")
        seen = seen_by(last_event_id=request.headers.get("Last-Event-ID", ""))
        if seen.end and state.has_ended:
            return HttpResponse(status=204, headers={"Cache-Control": "no-store"})
        if request.method == "HEAD":
            return HttpResponse(content_type=MEDIA_TYPE, headers=HEADERS)
        seen = Seen() if seen.end else seen
        is_async = isinstance(request._request, ASGIRequest)
        body = stream(state=state, seen=seen) if is_async else stream_in_thread(state=state, seen=seen)
        return StreamingHttpResponse(body, content_type=MEDIA_TYPE, headers=HEADERS)


async def stream(*, state: RunState, seen: Seen) -> AsyncIterator[bytes]:
    """What happens to the run from `state` on, for a client that has seen `seen`."""
    figures, began = Policy(), time.monotonic()
    told, seen = events_of(state=state, seen=seen)
    yield opening(retry_seconds=figures.events_retry_seconds) + told
    if state.has_ended:
        return
    with watchers_here(look=look, pause=figures.events_poll_seconds).watch(state=state) as box:
        while (left := figures.events_stream_seconds - (time.monotonic() - began)) > 0:
            try:
                now = await box.take(within=min(left, figures.events_heartbeat_seconds))
            except TimeoutError:
                yield HEARTBEAT
                continue
            if now is None:
                return
            told, seen = events_of(state=now, seen=seen)
            if told:
                yield told
            if now.has_ended:
                return


def stream_in_thread(*, state: RunState, seen: Seen) -> Iterator[bytes]:
    """The same for a server that gives each request a thread."""
    figures, began = Policy(), time.monotonic()
    now: RunState | None = state
    told = opening(retry_seconds=figures.events_retry_seconds)
    spoke = began
    while now is not None:
        news, seen = events_of(state=now, seen=seen)
        if told + news:
            yield told + news
            spoke = time.monotonic()
        if now.has_ended or time.monotonic() - began > figures.events_stream_seconds:
            return
        time.sleep(figures.events_poll_seconds)
        told = HEARTBEAT if time.monotonic() - spoke > figures.events_heartbeat_seconds else b""
        now = run_states(keys=[state.key]).get(state.key)


def look(keys: Sequence[int]) -> Mapping[int, RunState]:
    """What the poller reads. Between two looks it holds no connection."""
    try:
        return run_states(keys=keys)
    finally:
        connection.close()
