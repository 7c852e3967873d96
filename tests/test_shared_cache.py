"""Processes of the tests that share a Redis leave each other's keys alone."""

from __future__ import annotations

import os

import pytest

from tests.shared_cache import OwnKeysCache


@pytest.mark.database
def test_it_forgets_its_own_keys_alone() -> None:
    if not os.environ.get("REDIS_URL"):
        pytest.skip("REDIS_URL is not set")
    mine, other = (OwnKeysCache(os.environ["REDIS_URL"], {"KEY_PREFIX": name}) for name in ("one-of-us", "another"))
    mine.set("a", 1)
    other.set("a", 2)
    mine.clear()
    assert (mine.get("a"), other.get("a")) == (None, 2)
    other.clear()
    assert other.get("a") is None
