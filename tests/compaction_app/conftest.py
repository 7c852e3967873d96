"""A provider on this machine, with a key for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache

from tests.stub_api import StubApi, model


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[StubApi]:
    """The stub of the Messages API, a key in the environment, and a cache that knows nothing."""
    with StubApi(models=[model("claude-sonnet-4-5-20250929", 400_000, 80_000)]) as stub:
        for name in ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_LOG"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "dummy-key")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", stub.url)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        settings.ANTHROPIC_KEY_SET = True
        cache.clear()
        yield stub
        cache.clear()
