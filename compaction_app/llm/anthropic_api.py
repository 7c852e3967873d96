"""The Anthropic API: windows of models and exact counts. The SDK reads key and address from the environment.

The SDK takes two seconds to import, so each call imports it, and nothing else waits for it. It never tries again by
itself: a Retry-After has no cap there, and could hold a worker for hours.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from compaction_app.engine.ports import ProviderError, ProviderProblem
from compaction_app.llm.anthropic_errors import provider_errors
from compaction_app.llm.anthropic_text import sendable
from sessions_app.catalog import ToldLimits, plausible
from sessions_app.transcript.request import MessagesRequest

PAGE_MODELS, MOST_PAGES = 100, 20  # more models than any provider has; a server that always has more is not followed
MOST_COUNT = 2**31 - 1  # what the column takes
CONNECT_SECONDS = 5  # the SDK's own


def list_models(*, seconds: float) -> dict[str, ToldLimits]:
    """All models that the provider has: id -> context window and longest output, in tokens. Never empty.

    `seconds`: longest silence of the server, and how long pages go on being asked for. Raises ProviderError.
    """
    until = time.monotonic() + seconds
    told: dict[str, ToldLimits] = {}
    with _client(seconds=seconds) as client:
        page = client.models.list(limit=PAGE_MODELS)
        for _ in range(MOST_PAGES):
            told.update(_limits_on(page))
            if not page.has_next_page():
                break
            if time.monotonic() > until:
                raise ProviderError(problem=ProviderProblem.TIMEOUT)
            page = page.get_next_page()
    if not told:
        raise ProviderError(problem=ProviderProblem.UNREADABLE)
    return told


def _limits_on(page: Any) -> Iterator[tuple[str, ToldLimits]]:
    rows = getattr(page, "data", None)
    if not isinstance(rows, list):
        raise ProviderError(problem=ProviderProblem.UNREADABLE)
    for row in rows:
        name = getattr(row, "id", None)
        if isinstance(name, str) and name:
            window, output = getattr(row, "max_input_tokens", None), getattr(row, "max_tokens", None)
            yield name.lower(), plausible(window=window, output=output)


@dataclass(frozen=True, slots=True)
class AnthropicCounter:
    """Counts by `count_tokens`. `seconds`: longest silence of the server."""

    seconds: float

    def count(self, *, model: str, request: MessagesRequest) -> int:
        """Size of system prompt, tools and messages together, in tokens. Raises ProviderError."""
        optional = {name: part for name, part in (("system", request.system), ("tools", request.tools)) if part}
        body: dict[str, Any] = {"model": model, "messages": request.messages, **optional}
        with _client(seconds=self.seconds) as client:
            try:
                answer = client.messages.count_tokens(**body)
            except UnicodeEncodeError:
                answer = client.messages.count_tokens(**sendable(body))
        tokens = getattr(answer, "input_tokens", None)
        if not isinstance(tokens, int) or isinstance(tokens, bool) or not 0 <= tokens <= MOST_COUNT:
            raise ProviderError(problem=ProviderProblem.UNREADABLE)
        return tokens


@contextmanager
def _client(*, seconds: float) -> Iterator[Any]:
    """The SDK's client; its errors become ProviderError, without their text and without what they came from."""
    import anthropic  # noqa: PLC0415
    import httpx2  # noqa: PLC0415

    timeout = httpx2.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))
    with provider_errors(), anthropic.Anthropic(max_retries=0, timeout=timeout) as client:
        yield client
