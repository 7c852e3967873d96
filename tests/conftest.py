"""Fixtures for everybody: the cast, a frozen moment, an eager worker; and no network but this machine's own."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from celery import current_app
from django.conf import settings
from django.utils import timezone

from compaction_app.api.throttling import forget_silence
from sessions_app.models import Session
from sessions_app.selectors import forget_model_limits
from tests.browser import browser
from tests.cast import Api, Cast, make_cast
from tests.factories import NOW, make_session

__all__ = ["browser"]  # a fixture for everybody


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--thorough", action="store_true", help="also what takes long; `.ci/run` does")
    parser.addoption(
        "--database", action="store_true", help="only what a database takes part in: for a second run, on another one"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = [item for item in items if _is_chosen(config, item)]
    left_out = set(items) - set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = chosen


def _is_chosen(config: pytest.Config, item: pytest.Item) -> bool:
    is_of_a_database = item.get_closest_marker("database") is not None
    if config.getoption("--database"):
        reads_one = item.get_closest_marker("django_db") or {"db", "transactional_db"} & set(_fixtures(item))
        if not (is_of_a_database or reads_one):
            return False
        if is_of_a_database:
            return True
    return bool(config.getoption("--thorough")) or item.get_closest_marker("thorough") is None


def _fixtures(item: pytest.Item) -> list[str]:
    return list(getattr(item, "fixturenames", []))


def pytest_configure(config: pytest.Config) -> None:
    """Static files are looked up when a page asks for them: a client that reads them all first takes long to make.
    Where the tests run in several processes, each has keys of its own in a cache that they share."""
    settings.WHITENOISE_AUTOREFRESH = True
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker:
        cache = settings.CACHES["default"]
        cache["KEY_PREFIX"] = worker
        if cache["BACKEND"].endswith("RedisCache"):
            cache["BACKEND"] = "tests.shared_cache.OwnKeysCache"


LOCAL = {"127.0.0.1", "::1", "localhost", "0.0.0.0", ""}


@pytest.fixture(scope="session", autouse=True)
def only_local_sockets() -> Iterator[None]:
    """A test that reaches for the network fails at once, by name."""
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex

    def check(address: Any) -> None:
        if isinstance(address, tuple) and address[0] not in LOCAL:
            raise RuntimeError(f"a test tried to reach {address[0]}")

    def guarded(self: socket.socket, address: Any) -> None:
        check(address)
        connect(self, address)

    def guarded_ex(self: socket.socket, address: Any) -> int:
        check(address)
        return connect_ex(self, address)

    patch = pytest.MonkeyPatch()
    patch.setattr(socket.socket, "connect", guarded)
    patch.setattr(socket.socket, "connect_ex", guarded_ex)
    yield
    patch.undo()


@pytest.fixture(autouse=True)
def no_key_of_the_developers_own(settings: Any) -> None:
    """A key in the environment must not make the tests call a provider."""
    settings.ANTHROPIC_KEY_SET = False


@pytest.fixture(autouse=True)
def nothing_held_of_models() -> None:
    """What one test put into the cache, or whether it answered, is not what the next one reads."""
    forget_model_limits()
    forget_silence()


@pytest.fixture
def cast(db: None) -> Cast:
    return make_cast()


@pytest.fixture
def api(cast: Cast) -> Api:
    """Alice's client, with write scope."""
    return cast.alice


@pytest.fixture
def session(cast: Cast) -> Session:
    """An empty session of Alice's team."""
    return make_session(cast.alices_team)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> datetime:
    """The clock stands still."""
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    return NOW


@pytest.fixture
def eager_worker() -> Iterator[None]:
    """Tasks run where they are sent, their arguments through the JSON serializer as with a broker.

    A task is sent on commit: use it with `django_db(transaction=True)` or django_capture_on_commit_callbacks.
    """
    before = current_app.conf.task_always_eager
    current_app.conf.task_always_eager = True
    yield
    current_app.conf.task_always_eager = before
