"""One request of the Messages API, streamed: behind the engine's port `LanguageModel`.

The stream runs in an event loop of its own that the caller's thread drives in steps. Between the steps no loop runs, so
the run's lease can be renewed and a cancellation be noticed, also while the first byte is awaited; what is raised there
ends the call and its connection at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from compaction_app.engine.ports import Completion, ModelRequest, ProviderError, ProviderProblem
from compaction_app.llm.anthropic_errors import provider_errors
from compaction_app.llm.anthropic_events import Heard

TICK_SECONDS = 0.5
FINISH_SECONDS = 2.0  # for a connection to close


@dataclass(frozen=True, slots=True)
class AnthropicModel:
    """The provider that the environment names (key and address are read by the SDK itself)."""

    def complete(
        self, *, request: ModelRequest, seconds: float, silence_seconds: float, heard: Callable[[int], None]
    ) -> Completion:
        """See `LanguageModel`. For a thread in which no event loop runs."""
        from compaction_app.llm import anthropic_stream  # noqa: PLC0415

        loop = asyncio.new_event_loop()
        got = Heard(at=time.monotonic())
        task = loop.create_task(anthropic_stream.stream(request, got, seconds=seconds))
        try:
            _drive(loop, task, got, seconds=seconds, silence_seconds=silence_seconds, heard=heard)
        except ProviderError as error:
            # A new one: what it came from quotes the request.
            told = _with_what_came(error, got)
        else:
            return got.completion()
        finally:
            _close(loop, task)
        raise told


def _drive(
    loop: asyncio.AbstractEventLoop,
    task: asyncio.Task[None],
    got: Heard,
    *,
    seconds: float,
    silence_seconds: float,
    heard: Callable[[int], None],
) -> None:
    until = time.monotonic() + seconds
    while True:
        left = min(until, got.at + silence_seconds) - time.monotonic()
        loop.run_until_complete(asyncio.wait({task}, timeout=min(TICK_SECONDS, max(left, 0))))
        if task.done():
            break
        began = time.monotonic()
        heard(got.characters)
        got.at += time.monotonic() - began  # nothing is read meanwhile, so that was no silence of the provider's
        if time.monotonic() >= min(until, got.at + silence_seconds):
            raise ProviderError(problem=ProviderProblem.TIMEOUT)
    with provider_errors():
        task.result()


def _with_what_came(error: ProviderError, got: Heard) -> ProviderError:
    """What was billed is told although nothing came of it."""
    return ProviderError(
        problem=error.problem,
        status=error.status,
        request_id=error.request_id or got.request_id,
        overflow=error.overflow,
        retry_after=error.retry_after,
        usage=error.usage or got.usage,
        code=error.code,
    )


def _close(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    """Cancel what still runs and let it close its connection."""
    try:
        left = asyncio.all_tasks(loop)
        for one in left:
            one.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=FINISH_SECONDS))
        for one in {task, *left}:
            if one.done() and not one.cancelled():
                one.exception()  # looked at, so that nothing is told of it at the loop's end
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
