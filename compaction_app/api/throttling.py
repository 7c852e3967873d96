"""How many requests one caller may send in a minute.

REST framework's own throttle keeps the moment of each request in the cache, a list that is read and written with every
one: at thousands a minute that is slower than what it guards, and two at once lose one another's entries. Here are two
counters a caller instead, of this minute and of the one before; the latter counts as far as a window of sixty seconds
still reaches into it.

Counts of several servers add up where they share a cache (REDIS_URL); otherwise each process counts for itself. Of
requests that arrive in the same instant a few more than allowed may pass. A request that is refused is not counted.
"""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING

from django.core.cache import cache
from rest_framework.exceptions import Throttled
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from compaction_app.api.auth import Caller
from sessions_app import selectors
from sessions_app.policy import Policy

if TYPE_CHECKING:  # REST framework loads this module while it loads its views
    from rest_framework.views import APIView

logger = logging.getLogger(__name__)
WINDOW = 60  # seconds
# A counter is read until the minute after its own has ended.
KEPT = 3 * WINDOW


class _Counters:
    """Counters in the cache. One that does not answer is left alone for a while: each call would wait for it."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._silent_until = float("-inf")

    def pause(self, *, name: str, limit: int, now: float) -> float | None:
        """Seconds until there is room under `limit` again; None where there is, and then one more is counted."""
        if time.monotonic() < self._silent_until:
            return None
        try:
            return self._counted(name=name, limit=limit, now=now)
        except Exception as error:
            self._silent_until = time.monotonic() + Policy().api_rate_pause_seconds
            logger.warning("the cache does not answer (%s); requests are not counted for now", type(error).__name__)
            return None

    def _counted(self, *, name: str, limit: int, now: float) -> float | None:
        minute, second = divmod(now, WINDOW)
        this, before = (f"requests:{name}:{int(minute) - ago}" for ago in (0, 1))
        found = cache.get_many([this, before])
        refused = room_in(this=found.get(this, 0), before=found.get(before, 0), second=second, limit=limit)
        if refused is not None:
            return refused
        # Of several that are the first one at the same time, one is counted.
        if this in found:
            cache.incr(this)
        else:
            cache.add(this, 1, KEPT)
        return None


def room_in(*, this: int, before: int, second: float, limit: int) -> float | None:
    """Seconds until one more request fits under `limit`, `second` seconds into a minute that has seen `this` of them
    after one with `before`; None where it fits now."""
    if this + before * (1 - second / WINDOW) + 1 <= limit:
        return None
    if this + 1 <= limit:  # it fits as soon as enough of the minute before has gone by
        return WINDOW * (1 - (limit - 1 - this) / before) - second
    return WINDOW - second + WINDOW * (1 - (limit - 1) / this)


_counters = _Counters()


def pause_for(*, caller: Caller) -> float | None:
    """Seconds that the caller has to wait before one more request; None where it may be made, and then it is counted.

    No query, and at most two calls of the cache; none where there is no limit. A cache that does not answer refuses
    nothing.
    """
    limit = selectors.effective_policy(team=caller.team).policy.api_requests_per_minute
    if not limit:
        return None
    return _counters.pause(name=caller.reference, limit=limit, now=time.time())


def check_rate(*, caller: Caller) -> None:
    """Raises Throttled, which becomes 429 with Retry-After."""
    pause = pause_for(caller=caller)
    if pause is not None:
        raise Throttled(wait=math.ceil(pause) or 1)


def forget_silence() -> None:
    """Ask the cache again with the next request (in this process)."""
    _counters.forget()


class PerCaller(BaseThrottle):
    """Whoever is nobody is refused before this, and nothing is done for them."""

    def allow_request(self, request: Request, view: APIView) -> bool:
        if isinstance(request.auth, Caller):
            check_rate(caller=request.auth)
        return True
