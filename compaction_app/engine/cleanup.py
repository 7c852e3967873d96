"""What a compaction makes stale, by name: which caches are cleared after it, which are kept, and why (S14)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class CacheName(StrEnum):
    MICRO_TRACKING = "micro_tracking"
    CONTEXT_COLLAPSE = "context_collapse"
    MEMORY_FILES = "memory_files"
    SYSTEM_PROMPT_SECTIONS = "system_prompt_sections"
    CLASSIFIER_APPROVALS = "classifier_approvals"
    SPECULATIVE_CHECKS = "speculative_checks"
    BETA_TRACING = "beta_tracing"
    MESSAGE_CACHES = "message_caches"
    SENT_SKILL_NAMES = "sent_skill_names"


class Scope(StrEnum):
    """Whose compaction clears a cache. MAIN_THREAD: a sub-agent shares it with the main thread and leaves it alone."""

    ALL = "all"
    MAIN_THREAD = "main_thread"


@dataclass(frozen=True, slots=True)
class NamedCache:
    name: CacheName
    scope: Scope
    why: str
    kept: bool = False


BELONGS_TO_MAIN = "belongs to the main thread, which goes on with it"
CACHES = (
    NamedCache(CacheName.MICRO_TRACKING, Scope.ALL, "tells of tool results that the context no longer shows"),
    NamedCache(CacheName.CONTEXT_COLLAPSE, Scope.MAIN_THREAD, "tells of stretches that the summary now stands for"),
    NamedCache(CacheName.MEMORY_FILES, Scope.MAIN_THREAD, "their text is not shown any more, so they are read again"),
    NamedCache(CacheName.SYSTEM_PROMPT_SECTIONS, Scope.ALL, "made for the conversation as it was"),
    NamedCache(CacheName.CLASSIFIER_APPROVALS, Scope.ALL, "given to calls that the context no longer shows"),
    NamedCache(CacheName.SPECULATIVE_CHECKS, Scope.ALL, "begun for calls that the context no longer shows"),
    NamedCache(CacheName.BETA_TRACING, Scope.ALL, "tells which messages a trace holds already"),
    NamedCache(CacheName.MESSAGE_CACHES, Scope.ALL, "made from messages that the summary now stands for"),
    NamedCache(
        CacheName.SENT_SKILL_NAMES,
        Scope.ALL,
        "sending the list of skills again costs about 4,000 tokens, and the model needs only those that it uses",
        kept=True,
    ),
)


@dataclass(frozen=True, slots=True)
class CleanupPlan:
    """What is to be cleared and what stays, each with its reason."""

    cleared: tuple[NamedCache, ...]
    kept: tuple[NamedCache, ...]


def plan_cleanup(*, is_subagent: bool) -> CleanupPlan:
    """The plan for a session of this thread."""
    kept = tuple(_kept(is_subagent=is_subagent))
    names = {cache.name for cache in kept}
    return CleanupPlan(cleared=tuple(cache for cache in CACHES if cache.name not in names), kept=kept)


def _kept(*, is_subagent: bool) -> Iterator[NamedCache]:
    for cache in CACHES:
        if cache.kept:
            yield cache
        elif is_subagent and cache.scope is Scope.MAIN_THREAD:
            yield NamedCache(cache.name, cache.scope, BELONGS_TO_MAIN, kept=True)
