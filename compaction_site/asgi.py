"""The ASGI entry point.

Streams of a run's events have a handler of their own: they stay open for long, and Django's keeps a thread for each
request until it is answered to its end.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.core.asgi import get_asgi_application
from django.core.handlers.asgi import ASGIHandler
from django.db import close_old_connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from compaction_app.api import watching

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "compaction_site.settings")

EVENTS = re.compile(r"/api/v1/runs/[^/]+/events/")
# Who may watch, and what stands there at first, is asked of the database by these; a thousand at once wait a little.
_DOORS = ThreadPoolExecutor(max_workers=2, thread_name_prefix="event-doors")


class EventsHandler(ASGIHandler):
    """The whole of a request until its answer begins, middleware and view, runs in a thread that goes on to the next
    one then. What the answer streams needs none."""

    def load_middleware(self, is_async: bool = False) -> None:
        super().load_middleware(is_async=False)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.handle(scope, receive, send)  # Django's own would keep a thread, ThreadSensitiveContext

    async def run_get_response(self, request: HttpRequest) -> HttpResponseBase:
        response = await asyncio.get_running_loop().run_in_executor(_DOORS, self._in_thread, request)
        response._handler_class = self.__class__  # type: ignore[attr-defined]
        return response

    def _in_thread(self, request: HttpRequest) -> HttpResponseBase:
        close_old_connections()
        try:
            return self.get_response(request)
        finally:
            close_old_connections()  # the signals of the request's begin and end are heard in another thread


class Application:
    def __init__(self) -> None:
        self._django = get_asgi_application()
        self._events = EventsHandler()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._handler_of(scope)(scope, receive, send)

    def _handler_of(self, scope: Any) -> Callable[..., Any]:
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        return self._events if scope["type"] == "http" and EVENTS.fullmatch(path) else self._django

    def end_streams(self) -> None:
        """Before the server stops: it waits for what it answers. Called in the thread of its event loop."""
        watching.end_streams()


application = Application()
