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
from sessions_app.transcript.native import COMPACTION_BETA
from sessions_app.transcript.request import MessagesRequest

PAGE_MODELS, MOST_PAGES = 100, 20  # more models than any provider has; a server that always has more is not followed
MOST_COUNT = 2**31 - 1  # what the column takes
CONNECT_SECONDS = 5  # the SDK's own


@dataclass(frozen=True, slots=True)
class ToldModels:
    """`limits`: id -> context window and longest output, in tokens. `without_compaction`: ids of models of which the
    provider says that they have no compaction of its own."""

    limits: dict[str, ToldLimits]
    without_compaction: frozenset[str]


def list_models(*, seconds: float) -> ToldModels:
    """All models that the provider has. Never empty.

    `seconds`: longest silence of the server, and how long pages go on being asked for. Raises ProviderError.
    """
    until = time.monotonic() + seconds
    told: dict[str, ToldLimits] = {}
    without: set[str] = set()
    with _client(seconds=seconds) as client:
        # What a model can do of a beta is told to who names it.
        page = client.beta.models.list(limit=PAGE_MODELS, betas=[COMPACTION_BETA])
        for _ in range(MOST_PAGES):
            for name, row in _rows_on(page):
                window, output = getattr(row, "max_input_tokens", None), getattr(row, "max_tokens", None)
                told[name] = plausible(window=window, output=output)
                without |= {name} if _says_no(row) else set()
            if not page.has_next_page():
                break
            if time.monotonic() > until:
                raise ProviderError(problem=ProviderProblem.TIMEOUT)
            page = page.get_next_page()
    if not told:
        raise ProviderError(problem=ProviderProblem.UNREADABLE)
    return ToldModels(limits=told, without_compaction=frozenset(without))


def _rows_on(page: Any) -> Iterator[tuple[str, Any]]:
    rows = getattr(page, "data", None)
    if not isinstance(rows, list):
        raise ProviderError(problem=ProviderProblem.UNREADABLE)
    for row in rows:
        name = getattr(row, "id", None)
        if isinstance(name, str) and name:
            yield name.lower(), row


def _says_no(row: Any) -> bool:
    """Whether the model has no compaction on demand (facts: Anthropic API, section 11); one that tells nothing may."""
    told = getattr(getattr(row, "capabilities", None), "compaction", None)
    return getattr(told, "supported", None) is False


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
                answer = _count(client, body, betas=request.betas)
            except UnicodeEncodeError:
                answer = _count(client, sendable(body), betas=request.betas)
        tokens = getattr(answer, "input_tokens", None)
        if not isinstance(tokens, int) or isinstance(tokens, bool) or not 0 <= tokens <= MOST_COUNT:
            raise ProviderError(problem=ProviderProblem.UNREADABLE)
        return tokens


def _count(client: Any, body: dict[str, Any], *, betas: tuple[str, ...]) -> Any:
    if betas:
        return client.beta.messages.count_tokens(**body, betas=list(betas))
    return client.messages.count_tokens(**body)


@contextmanager
def _client(*, seconds: float) -> Iterator[Any]:
    """The SDK's client; its errors become ProviderError, without their text and without what they came from."""
    import anthropic  # noqa: PLC0415
    import httpx2  # noqa: PLC0415

    timeout = httpx2.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))
    with provider_errors(), anthropic.Anthropic(max_retries=0, timeout=timeout) as client:
        yield client
