"""Serve: migrate, then the ASGI server, with the worker in the same process where there is no Redis."""

from __future__ import annotations

import logging
import signal
import socket
import threading
import warnings
from argparse import ArgumentParser
from typing import Any

import uvicorn
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connections
from django.utils.module_loading import import_string

from compaction_app.management import demo
from compaction_app.management.embedded import EmbeddedWorker
from sessions_app.management.base import OneLineCommand
from sessions_app.policy import Policy

logger = logging.getLogger(__name__)

SHUTDOWN_SECONDS = 5  # for what is being answered; a client that does not read would hold Ctrl-C for ever
STARTUP_SECONDS = 30


class Server(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Streams of events first: they would go on until the time for the others is over."""
        self.config.app.end_streams()  # type: ignore[union-attr]
        await super().shutdown(sockets)


class Command(OneLineCommand):
    help = "Migrates the database and serves; without REDIS_URL the worker runs in this process."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", default="8000", help="port to listen on (default 8000)")
        parser.add_argument("--demo", action="store_true", help="prepare the demonstration team and session")

    def handle(self, *args: Any, **options: Any) -> None:
        host, port = options["host"], _port(options["port"])
        # WhiteNoise hands out its (small, local) files as plain iterators; Django says so at each first file.
        warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")
        with _listen(host=host, port=port) as listener:
            self.stdout.write("preparing the database …")
            call_command("migrate", interactive=False, verbosity=0)
            connections.close_all()
            worker = self._worker()
            server = Server(
                uvicorn.Config(
                    import_string(settings.ASGI_APPLICATION),
                    log_level="warning",
                    lifespan="off",
                    timeout_graceful_shutdown=SHUTDOWN_SECONDS,
                )
            )
            address = f"http://{host}:{port}"
            threading.Thread(target=self._announce, args=(server, address, options["demo"]), daemon=True).start()
            # uvicorn shuts down on either signal and then passes it on; this turns the second kind into the first.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            try:
                server.run(sockets=[listener])
            except KeyboardInterrupt:
                pass  # uvicorn has shut down already and passes the signal on
            finally:
                if worker:
                    self.stdout.write("\nstopping; a running compaction is finished first …")
                    worker.stop()
        self.stdout.write("stopped")

    def _worker(self) -> EmbeddedWorker | None:
        if settings.REDIS_URL:
            return None
        worker = EmbeddedWorker(concurrency=settings.CELERY_WORKER_CONCURRENCY, sweep_seconds=Policy().sweep_seconds)
        worker.start()
        return worker

    def _announce(self, server: uvicorn.Server, address: str, with_demo: bool) -> None:
        for _ in range(STARTUP_SECONDS * 20):
            if server.started or server.should_exit:
                break
            threading.Event().wait(0.05)
        try:
            if with_demo:
                demo.show(address=address, say=self._say)
            else:
                self._say(f"Serving on {address}/ (admin at {address}/admin/). Ctrl-C stops.")
        except Exception:
            logger.exception("the demonstration could not be prepared; the server goes on")
        finally:
            connections.close_all()

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()


def _port(value: str) -> int:
    if not value.isdigit() or not 0 < int(value) < 65536:
        raise CommandError(f"--port {value!r}: allowed is a number from 1 to 65535")
    return int(value)


def _listen(*, host: str, port: int) -> socket.socket:
    """The listening socket, taken before anything else starts, so that a taken port is one clear line."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise CommandError(
            f"can't listen on {host}:{port}: {error.strerror or error}; choose another (PORT=…)"
        ) from error
    listener.listen(2048)
    listener.set_inheritable(True)
    return listener
