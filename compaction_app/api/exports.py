"""sessions/{id}/export/: the session as a transcript that its client resumes, or as a chat document."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from uuid import UUID

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request

from compaction_app import actions
from compaction_app.api.base import ApiView
from compaction_app.api.exceptions import Refused
from sessions_app.transcript.formats import WRITERS

DEFAULT_FORMAT = "claude-code"
PART_BYTES = 64 * 1024  # of what is sent at once; a longer line goes whole
LINES, DOCUMENT = "application/x-ndjson", "application/json"


class ExportView(ApiView):
    @extend_schema(
        summary="The session as a transcript",
        description="Streamed: the whole history to the letter, with the boundaries in force, and the context as it is "
        "now. `claude-code` is a session file, one JSON object a line, from which its client resumes the context; save "
        "it by the name that the answer gives. `anthropic` and `openai` are one JSON document: a request body of that "
        "API with the context, and the history beside it in `compactionService`. Imported again, each gives the same "
        "history and the same context. Changes nothing.",
        parameters=[
            OpenApiParameter(
                "format", type=str, enum=list(WRITERS), description=f"The format; default `{DEFAULT_FORMAT}`."
            )
        ],
        responses={(200, LINES): OpenApiTypes.STR, (200, DOCUMENT): OpenApiTypes.OBJECT},
    )
    def get(self, request: Request, session_id: UUID) -> StreamingHttpResponse:
        session = self.session(session_id)
        wanted = request.query_params.get("format", DEFAULT_FORMAT)
        try:
            export = actions.export_session(session=session, format_name=wanted)
        except actions.ExportRefused as refused:
            attr = "format" if refused.code == "unknown_format" else None
            raise Refused(f"{str(refused)[:1].upper()}{str(refused)[1:]}.", code=refused.code, attr=attr) from refused
        parts = _parts(export.chunks)
        # Under ASGI, Django would read a plain iterator to its end before it sends anything.
        body = _each(parts) if isinstance(request._request, ASGIRequest) else parts
        name = re.sub(r"[^A-Za-z0-9._-]", "_", export.name)
        return StreamingHttpResponse(
            body,
            content_type=export.media_type,
            headers={
                "Content-Disposition": f'attachment; filename="{name}"',
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
            },
        )


def _parts(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Lines joined until a part is worth sending."""
    part = bytearray()
    for chunk in chunks:
        part += chunk
        if len(part) >= PART_BYTES:
            yield bytes(part)
            part.clear()
    if part:
        yield bytes(part)


async def _each(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The parts, each read in the request's own thread, where its database connection is."""
    following = sync_to_async(lambda: next(parts, b""))
    while part := await following():
        yield part
