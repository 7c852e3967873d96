"""The stream itself, in an event loop: the SDK's client, watched byte by byte.

Imported inside functions only: the SDK takes two seconds.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import anthropic
import httpx2

from compaction_app.engine.ports import ModelRequest, ProviderError, ProviderProblem
from compaction_app.llm.anthropic_api import CONNECT_SECONDS
from compaction_app.llm.anthropic_errors import LONGEST_ID, problem_of
from compaction_app.llm.anthropic_events import Heard
from compaction_app.llm.anthropic_raw import RawBlocks
from compaction_app.llm.anthropic_text import sendable, storable_name

# More characters for each token that was asked for than any text has: a stream that does not end is not followed.
MOST_CHARS_PER_TOKEN = 64
# An event of some 250 bytes for each token, its text escaped, and as much again of what is no text (thinking, pings).
MOST_BYTES_PER_TOKEN = 1_024
LEAST_BYTES = 4 * 1024 * 1024  # that are read all the same: for errors, signatures, pings of a long wait
# Of one event: the SDK puts it together line by line, which takes the square of its size.
MOST_EVENT_BYTES = 1024 * 1024
EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
PLAIN = {"accept-encoding": "identity"}  # what is packed has no bound that can be seen from outside


async def stream(request: ModelRequest, got: Heard, *, seconds: float) -> None:
    """Send the request and note in `got` what comes, until the stream ends. `seconds`: longest for each phase;
    whoever drives the loop sees to silence and to the whole. Raises what the SDK raises.

    ProviderError (UNREADABLE) where more comes than was asked for.
    """
    timeout = httpx2.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))
    most_bytes = LEAST_BYTES + request.max_tokens * MOST_BYTES_PER_TOKEN
    got.raw = RawBlocks() if request.compaction else None

    async def watch(response: httpx2.Response) -> None:
        got.at = time.monotonic()
        response.stream = _Watched(response, got, most_bytes)

    http = anthropic.DefaultAsyncHttpxClient(timeout=timeout, headers=PLAIN, event_hooks={"response": [watch]})
    sdk = anthropic.AsyncAnthropic(max_retries=0, timeout=timeout, http_client=http)
    async with sdk as client, await _open(client, request) as events:
        got.request_id = storable_name(events.response.headers.get("request-id"), most=LONGEST_ID)
        async for event in events:
            got.take(event)
            if got.characters > request.max_tokens * MOST_CHARS_PER_TOKEN:
                raise ProviderError(problem=ProviderProblem.UNREADABLE)
        if got.size and not got.has_begun:
            # A page, or another API's stream. Nothing at all is a stream that was cut off before it began.
            raise ProviderError(problem=ProviderProblem.UNREADABLE, status=events.response.status_code)


async def _open(client: anthropic.AsyncAnthropic, request: ModelRequest) -> Any:
    body = request.body()
    try:
        return await _create(client, request, body)
    except UnicodeEncodeError:
        # Before anything is sent. Looked for here only: to look through every request takes as long as to encode it.
        return await _create(client, request, sendable(body))


async def _create(client: anthropic.AsyncAnthropic, request: ModelRequest, body: Mapping[str, Any]) -> Any:
    """Events as they come: the SDK's own reading of them into a message gives up on any that it does not expect."""
    if request.betas:
        # The other client reads a compaction block as a text.
        return await client.beta.messages.create(**body, betas=list(request.betas), stream=True)
    return await client.messages.create(**body, stream=True)


class _Watched(httpx2.AsyncByteStream):
    """The body of a response: notes when bytes came, pings too, and stops where there are too many."""

    def __init__(self, response: httpx2.Response, got: Heard, most_bytes: int) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        self._body, self._got, self._most_bytes = response.stream, got, most_bytes
        self._status = response.status_code
        self._is_packed = response.headers.get("content-encoding", "identity") != "identity"
        self._event_bytes, self._last = 0, b""

    @property
    def elapsed(self) -> Any:
        """Asked for by the response."""
        return getattr(self._body, "elapsed", None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._is_packed:
            raise self._unreadable()
        async for piece in self._body:
            self._got.at = time.monotonic()
            self._got.size += len(piece)
            self._measure_event(piece)
            if self._got.size > self._most_bytes or self._event_bytes > MOST_EVENT_BYTES:
                raise self._unreadable()
            if self._got.raw is not None:
                self._got.raw.feed(piece)
            yield piece

    def _unreadable(self) -> ProviderError:
        """Of an error that can't be read, the status is known all the same."""
        is_error = self._status >= 400
        problem = problem_of(status=self._status, kind="") if is_error else ProviderProblem.UNREADABLE
        return ProviderError(problem=problem, status=self._status)

    def _measure_event(self, piece: bytes) -> None:
        seen = self._last + piece
        end = max(seen.rfind(mark) for mark in EVENT_ENDS)
        self._event_bytes = len(seen) - end if end >= 0 else self._event_bytes + len(piece)
        self._last = seen[-3:]  # the longest end, but for its last byte

    async def aclose(self) -> None:
        await self._body.aclose()
