"""The worker inside the serving process, for when there is no Redis: a Celery worker thread and a sweep thread.

The broker is this process's memory, so exactly one process serves in this mode; what it loses when it dies, the sweep
finds again in the database.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from celery import current_app
from django.db import close_old_connections, connection
from django.utils import timezone

from compaction_app import actions

logger = logging.getLogger(__name__)

# After the first sweep: the provider's SDK takes two seconds to import, and the server starts in that time.
SECOND_SWEEP_SECONDS = 3


class EmbeddedWorker:
    def __init__(self, *, concurrency: int, sweep_seconds: int) -> None:
        self._sweep_seconds = sweep_seconds
        self._stopping = threading.Event()
        self._controller: Any = current_app.WorkController(
            pool_cls="threads",
            concurrency=concurrency,
            prefetch_multiplier=1,
            loglevel="WARNING",
            without_heartbeat=True,
            without_mingle=True,
            without_gossip=True,
            quiet=True,
        )
        self._threads = [
            threading.Thread(target=self._controller.start, name="embedded-worker", daemon=True),
            threading.Thread(target=self._sweep, name="embedded-sweep", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let running compactions finish; queued ones stay queued in the database."""
        self._stopping.set()
        self._controller.stop()
        for thread in self._threads:
            thread.join(timeout=30)

    def _sweep(self) -> None:
        """At the start, and again and again: hand out runs that nobody works on; then what can wait."""
        first = True  # the broker is this process's own and holds nothing yet
        while not self._stopping.is_set():
            pause = min(SECOND_SWEEP_SECONDS, self._sweep_seconds) if first else self._sweep_seconds
            try:
                close_old_connections()
                actions.recover_runs(now=timezone.now(), broker_is_new=first)
                if not first:
                    actions.refresh_catalog(now=timezone.now())
                first = False
            except Exception:
                logger.exception("the sweep for runs left behind failed; it tries again")
            finally:
                connection.close()
            self._stopping.wait(pause)
