"""One signed request to a hook. Everything that can go wrong is a value; neither secrets nor bodies are ever told.

The request is sent by a thread of its own, because nothing else bounds all of it: a name's look-up has no timeout, and
a server that sends a byte now and then meets every timeout of a single read. When the time is over the connection is
cut, so that the thread ends too.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import requests
from django.conf import settings
from requests_hardened import Config, HTTPSession
from requests_hardened.ip_filter import InvalidIPAddress
from standardwebhooks import Webhook
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from compaction_app.services.hook_url import is_public
from sessions_app.models.fields import dump_json

USER_AGENT = "compaction-service-hooks"
BEAT_SECONDS = 1  # as progress is reported: engine/ports.py


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """`status`: of HTTP, None where there was no answer. `problem`: why it is no success, "" for a 2xx.

    `body`: of a 2xx, as far as it was wanted. `is_cut`: there was more of it.
    """

    status: int | None = None
    problem: str = ""
    body: bytes = b""
    is_cut: bool = False


def post(
    *,
    url: str,
    secret: str,
    webhook_id: str,
    payload: Mapping[str, Any],
    timeout: float,
    now: datetime,
    answer_bytes: int = 0,
    beat: Callable[[], None] | None = None,
) -> HookAnswer:
    """Send the payload as JSON with the headers of Standard Webhooks, and wait `timeout` seconds at most.

    `answer_bytes`: most of the body that is read; 0: the status is enough. `beat`: called about once a second while
    this waits; what it raises ends the call and is passed on.
    """
    line = _Line(public_only=not settings.HOOKS_ALLOW_PRIVATE_ADDRESSES, seconds=timeout)
    send = functools.partial(
        _send, line=line, url=url, secret=secret, webhook_id=webhook_id, payload=payload, now=now, most=answer_bytes
    )
    threading.Thread(target=send, name="hook", daemon=True).start()
    try:
        while (left := line.deadline - monotonic()) > 0 and not line.ended.wait(min(left, BEAT_SECONDS)):
            if beat:
                beat()
        return line.answer or HookAnswer(problem=f"no whole answer within {timeout:g} seconds")
    finally:
        line.cut()


class _Cut(OSError):
    """The caller does not wait any more."""


class _NotPublic(Exception):
    """The address at the other end is not public. (No OSError: urllib3 would take that for a broken connection.)"""


class _Line:
    """What the caller and the sending thread share: the answer, the end, and the connection, so that it can be cut."""

    def __init__(self, *, public_only: bool, seconds: float) -> None:
        self.public_only = public_only
        self.seconds = seconds
        self.deadline = monotonic() + seconds
        self.answer: HookAnswer | None = None
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self._is_cut = False
        self._held: list[socket.socket] = []

    def check(self, *, host: str) -> None:
        """The last word on where this connects to: `host` is what the connection will be made to, looked up already.

        The library's own filter has judged it before; it lets some ranges through that lead nowhere public.
        """
        if self._is_cut:
            raise _Cut
        if self.public_only and not is_public(ip=ipaddress.ip_address(host.strip("[]"))):
            raise _NotPublic

    def hold(self, *, connection: socket.socket) -> None:
        """Keep a second handle: TLS takes the first one over, and shutting down either ends the connection."""
        with self._lock:
            if self._is_cut:
                connection.close()
                raise _Cut
            self._held.append(connection.dup())

    def cut(self) -> None:
        with self._lock:
            self._is_cut = True
            for held in self._held:
                with contextlib.suppress(OSError):
                    held.shutdown(socket.SHUT_RDWR)
                held.close()
            self._held.clear()


class _Watched:
    """Mixed into a connection: the line checks where it goes, and holds it."""

    def __init__(self, *args: Any, line: _Line, **options: Any) -> None:
        super().__init__(*args, **options)
        self._line = line

    def _new_conn(self) -> socket.socket:
        self._line.check(host=self._dns_host)  # type: ignore[attr-defined]
        made: socket.socket = super()._new_conn()  # type: ignore[misc]
        self._line.hold(connection=made)
        return made


class _Http(_Watched, HTTPConnection):
    pass


class _Https(_Watched, HTTPSConnection):
    pass


def _send(
    *,
    line: _Line,
    url: str,
    secret: str,
    webhook_id: str,
    payload: Mapping[str, Any],
    now: datetime,
    most: int,
) -> None:
    try:
        body = dump_json(payload)
        headers = _headers(secret=secret, webhook_id=webhook_id, body=body, now=now)
        with (
            _session(line) as session,
            session.post(url, data=body.encode(), headers=headers, stream=True, allow_redirects=False) as response,
        ):
            line.answer = _answer(response, most=most)
    except Exception as error:
        line.answer = HookAnswer(problem=_problem(error, seconds=line.seconds))
    finally:
        line.ended.set()


def _headers(*, secret: str, webhook_id: str, body: str, now: datetime) -> dict[str, str]:
    at = now.astimezone(UTC)
    return {
        "Content-Type": "application/json",
        "Accept": "application/json",
        "Accept-Encoding": "identity",  # what is packed small may unpack large
        "webhook-id": webhook_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(secret).sign(msg_id=webhook_id, timestamp=at, data=body),
    }


def _session(line: _Line) -> HTTPSession:
    session = HTTPSession(
        Config(
            ip_filter_enable=line.public_only,
            ip_filter_allow_loopback_ips=False,
            never_redirect=True,
            default_timeout=(line.seconds, line.seconds),
            user_agent_override=USER_AGENT,
        )
    )
    session.trust_env = False  # a proxy would connect to where it likes, and .netrc would add a password
    pools = {"http": _pool(HTTPConnectionPool, _Http, line), "https": _pool(HTTPSConnectionPool, _Https, line)}
    for adapter in session.adapters.values():
        adapter.poolmanager.pool_classes_by_scheme = pools
    return session


def _pool(pool: type[HTTPConnectionPool], connection: type[_Watched], line: _Line) -> Callable[..., HTTPConnectionPool]:
    def make(*args: Any, **options: Any) -> HTTPConnectionPool:
        made = pool(*args, **options)
        made.ConnectionCls = functools.partial(connection, line=line)  # type: ignore[assignment]
        return made

    return make


def _answer(response: requests.Response, *, most: int) -> HookAnswer:
    status = response.status_code
    if 300 <= status < 400:
        return HookAnswer(status=status, problem=f"HTTP {status}: redirects are not followed")
    if not 200 <= status < 300:
        return HookAnswer(status=status, problem=f"HTTP {status}")
    if not most:
        return HookAnswer(status=status)
    body = response.raw.read(most + 1, decode_content=False)
    return HookAnswer(status=status, body=body[:most], is_cut=len(body) > most)


def _problem(error: Exception, *, seconds: float) -> str:
    """What went wrong, by its kind: an error's own text may quote what was sent or answered."""
    if isinstance(error, InvalidIPAddress | _NotPublic):
        return "its address is not public"
    if isinstance(error, requests.exceptions.SSLError):
        return "no trusted TLS connection"
    if isinstance(error, requests.Timeout):
        return f"no whole answer within {seconds:g} seconds"
    if isinstance(error, requests.ConnectionError):
        return "no connection, or it broke off"
    return f"the request could not be made ({type(error).__name__})"
