"""Which caches a compaction clears (S14)."""

from __future__ import annotations

import pytest

from compaction_app.engine.cleanup import CACHES, CacheName, Scope, plan_cleanup

MAIN_ONLY = {CacheName.CONTEXT_COLLAPSE, CacheName.MEMORY_FILES}


@pytest.mark.parametrize("is_subagent", [True, False])
class TestPlan:
    def test_every_cache_has_its_place_and_its_reason(self, is_subagent: bool) -> None:
        plan = plan_cleanup(is_subagent=is_subagent)
        assert sorted(c.name for c in (*plan.cleared, *plan.kept)) == sorted(CacheName)
        assert all(cache.why for cache in (*plan.cleared, *plan.kept))

    def test_sent_skill_names_stay(self, is_subagent: bool) -> None:
        kept = {cache.name: cache.why for cache in plan_cleanup(is_subagent=is_subagent).kept}
        assert "4,000 tokens" in kept[CacheName.SENT_SKILL_NAMES]


class TestThreads:
    def test_the_main_thread_clears_all_but_skill_names(self) -> None:
        assert [cache.name for cache in plan_cleanup(is_subagent=False).kept] == [CacheName.SENT_SKILL_NAMES]

    def test_a_subagent_never_clears_what_is_the_main_threads(self) -> None:
        plan = plan_cleanup(is_subagent=True)
        assert all(cache.scope is Scope.ALL for cache in plan.cleared)
        kept = {cache.name: cache.why for cache in plan.kept}
        assert set(kept) == MAIN_ONLY | {CacheName.SENT_SKILL_NAMES}
        assert all("belongs to the main thread" in kept[name] for name in MAIN_ONLY)

    def test_each_cache_is_named_once(self) -> None:
        assert len({cache.name for cache in CACHES}) == len(CACHES) == len(CacheName)
