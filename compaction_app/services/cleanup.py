"""Cleanup after a compaction: what this service holds of a session is cleared, what its client holds is named (S14).

Runs after the commit, so that a cache can't be filled from what was before; nothing in it can undo the boundary.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from compaction_app.engine.cleanup import CacheName, CleanupPlan, NamedCache, plan_cleanup
from sessions_app.models import CompactBoundary, Session
from sessions_app.transcript.boundary import BoundaryKind

logger = logging.getLogger(__name__)

Clear = Callable[[Session], None]
_registered: dict[CacheName, list[Clear]] = {}


def register(name: CacheName, clear: Clear) -> None:
    """Have `clear(session)` called whenever the named cache is cleared. It must be repeatable; registered once."""
    functions = _registered.setdefault(name, [])
    if clear not in functions:
        functions.append(clear)


def unregister(name: CacheName, clear: Clear) -> None:
    """Undo `register`."""
    _registered[name].remove(clear)


def run_cleanup(*, boundary: CompactBoundary) -> dict[str, Any]:
    """Clear what the boundary makes stale, and write on it what was done: `cleared` and `kept`, with `failed` where a
    function of ours has. Call it after the commit. Never raises; may be called again.

    A boundary that only clears results leaves everything else as it was: nothing is done.
    """
    if not BoundaryKind(boundary.kind).summarizes:
        return {}
    try:
        session = Session.objects.get(pk=boundary.session_id)
        done = _clear(session=session, plan=plan_cleanup(is_subagent=session.thread == Session.Thread.SUBAGENT))
        CompactBoundary.objects.filter(pk=boundary.pk).update(cleanup=done)
        boundary.cleanup = done
        return done
    except Exception as error:
        logger.error("cleanup after boundary %s met %s", boundary.uuid, type(error).__name__)
        return {}


def _clear(*, session: Session, plan: CleanupPlan) -> dict[str, Any]:
    cleared, failed = [], []
    for cache in plan.cleared:
        problem = _clear_one(session=session, cache=cache)
        if problem:
            failed.append({**_told(cache), "why": problem})
        else:
            cleared.append(_told(cache))
    done: dict[str, Any] = {"cleared": cleared, "kept": [_told(cache) for cache in plan.kept]}
    return {**done, "failed": failed} if failed else done


def _clear_one(*, session: Session, cache: NamedCache) -> str:
    """Call every function of the cache; "" where all went well, else what kind of error one met."""
    problem = ""
    for clear in _registered.get(cache.name, ()):
        try:
            clear(session)
        except Exception as error:
            # The kind only: an error's text may quote the transcript.
            problem = f"clearing it met {type(error).__name__}"
            logger.error("the cache %s of session %s: %s", cache.name.value, session.uuid, problem)
    return problem


def _told(cache: NamedCache) -> dict[str, str]:
    holder = "service" if _registered.get(cache.name) else "client"
    return {"cache": cache.name.value, "scope": cache.scope.value, "why": cache.why, "held_by": holder}


def _forget_old_context(session: Session) -> None:
    """The prompt of a usage that was told to be of another context: of the one before, so it says nothing of this one.

    A message that has come since may have told it anew; that is left.
    """
    in_force = CompactBoundary.objects.filter(session=session, reverted_at__isnull=True).order_by("-id")
    newest = in_force.only("committed_at_position").first()
    if newest:
        unchanged = Session.objects.filter(pk=session.pk, last_position=newest.committed_at_position)
        unchanged.update(ignored_prompt_tokens=0)


register(CacheName.MICRO_TRACKING, _forget_old_context)
