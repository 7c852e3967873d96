"""The request to a hook: signed, bounded in time and size, only to public addresses, and never redirected."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest
import urllib3.util.connection
from django.utils import timezone

from compaction_app.services import hook_http
from compaction_app.services.hook_http import HookAnswer
from compaction_app.services.hook_setup import make_secret
from compaction_app.services.hook_url import url_problem
from tests.hook_receiver import Answering, Receiver, receiver, says

SECRET = make_secret()
PUBLIC = "93.184.216.34"
PRIVATE = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0177.0.0.1",
    "0x7f.0.0.1",
    "0x7f000001",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:10.0.0.1]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "[fe80::1]",
    "[fc00::1]",
    "[fec0::1]",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.0.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "0",
    "224.0.0.1",
    "255.255.255.255",
    "localhost",
    "localhost.",
]


@pytest.fixture
def here(settings: Any) -> Iterator[Receiver]:
    settings.HOOKS_ALLOW_PRIVATE_ADDRESSES = True
    with receiver() as made:
        yield made


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Addresses that somebody tried to connect to. Nothing is reached."""
    seen: list[Any] = []

    def refuse(address: Any, *args: Any, **options: Any) -> Any:
        seen.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(urllib3.util.connection, "create_connection", refuse)
    return seen


def send(url: str, **more: Any) -> HookAnswer:
    given: dict[str, Any] = {
        "secret": SECRET,
        "webhook_id": str(uuid4()),
        "payload": {"type": "post_compact", "text": "ü \ud800"},
        "timeout": 5,
        "now": timezone.now(),
    }
    return hook_http.post(url=url, **(given | more))


def to(here: Receiver, **more: Any) -> HookAnswer:
    return send(here.url, secret=here.secret, **more)


class TestRequest:
    def test_the_library_verifies_it(self, here: Receiver) -> None:
        assert to(here, webhook_id="msg-1") == HookAnswer(status=200)
        assert here.got == [("msg-1", {"type": "post_compact", "text": "ü \ud800"})]
        assert here.headers[0]["Content-Type"] == "application/json"

    def test_another_secret_is_noticed(self, here: Receiver) -> None:
        assert send(here.url, secret=SECRET) == HookAnswer(status=401, problem="HTTP 401")
        assert (here.got, here.refused) == ([], 1)

    @pytest.mark.parametrize("secret", ["", "whsec_", "whsec_%%%"])
    def test_a_broken_secret_is_a_value(self, here: Receiver, secret: str) -> None:
        assert send(here.url, secret=secret).problem
        assert here.got == []

    def test_a_proxy_of_the_environment_is_not_used(self, here: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        assert to(here).problem == ""

    def test_nothing_is_logged(self, here: Receiver, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO")
        to(here)
        here.answer = says({"a": "hush"}, status=500)
        to(here)
        assert caplog.text == ""


class TestAnswers:
    @pytest.mark.parametrize(
        ("answer", "expected"),
        [
            (says(status=204), HookAnswer(status=204)),
            (says({"a": 1}), HookAnswer(status=200, body=b'{"a": 1}')),
            (says(raw=b"x" * 100), HookAnswer(status=200, body=b"x" * 20, is_cut=True)),
            (says({"secret": "s"}, status=500), HookAnswer(status=500, problem="HTTP 500")),
            (says(status=404), HookAnswer(status=404, problem="HTTP 404")),
            (
                says(status=307, Location="http://169.254.169.254/"),
                HookAnswer(status=307, problem="HTTP 307: redirects are not followed"),
            ),
            (
                says(status=302, Location="/elsewhere"),
                HookAnswer(status=302, problem="HTTP 302: redirects are not followed"),
            ),
        ],
    )
    def test_each_is_a_value(self, here: Receiver, answer: Answering, expected: HookAnswer) -> None:
        here.answer = answer
        assert to(here, answer_bytes=20) == expected
        assert len(here.got) == 1

    def test_what_is_packed_small_is_not_unpacked(self, here: Receiver) -> None:
        import gzip

        packed = gzip.compress(b"x" * 1_000_000)
        here.answer = says(raw=packed, **{"Content-Encoding": "gzip"})
        assert to(here, answer_bytes=100_000).body == packed

    def test_one_that_is_down(self, here: Receiver) -> None:
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        assert send(f"http://127.0.0.1:{port}/").problem == "no connection, or it broke off"

    def test_one_that_hangs_up(self, here: Receiver) -> None:
        here.answer = lambda handler: handler.connection.close()
        assert to(here).problem

    def test_one_that_speaks_no_http(self, here: Receiver) -> None:
        here.answer = lambda handler: (handler.wfile.write(b"garbage: secret\r\n\r\n"), handler.connection.close())[0]
        answer = to(here)
        assert answer.problem
        assert "secret" not in answer.problem

    def test_one_without_tls(self, here: Receiver) -> None:
        assert to(here).problem == ""
        assert send(here.url.replace("http", "https", 1), timeout=2).problem == "no trusted TLS connection"


class TestTime:
    @pytest.mark.parametrize("where", ["before the answer", "in the headers", "in the body"])
    def test_a_byte_now_and_then_does_not_hold_it_up(self, here: Receiver, where: str) -> None:
        hung_up = threading.Event()

        def drip(handler: BaseHTTPRequestHandler) -> None:
            begin = {"before the answer": b"", "in the headers": b"HTTP/1.1 200 OK\r\nX-A: "}
            handler.wfile.write(begin.get(where, b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"))
            try:
                while not here.stopping.wait(0.02):
                    handler.wfile.write(b"a" if where != "before the answer" else b"")
                    handler.wfile.flush()
                    if where == "before the answer" and not handler.connection.recv(1):
                        raise ConnectionResetError
            except OSError:
                hung_up.set()

        here.answer = drip
        begun = monotonic()
        assert to(here, timeout=0.4, answer_bytes=20_000).problem == "no whole answer within 0.4 seconds"
        assert monotonic() - begun < 2
        assert hung_up.wait(3), "the connection stays open"

    def test_a_look_up_without_end_does_not_hold_it_up(self, monkeypatch: pytest.MonkeyPatch, tried: list[Any]) -> None:
        looked_up, go_on = threading.Event(), threading.Event()

        def slow(*args: Any, **options: Any) -> Any:
            looked_up.set()
            go_on.wait(5)
            raise socket.gaierror

        monkeypatch.setattr(socket, "getaddrinfo", slow)
        assert send("http://hooks.example.com/", timeout=0.2).problem == "no whole answer within 0.2 seconds"
        assert looked_up.is_set()
        go_on.set()
        assert tried == []

    def test_somebody_hears_that_it_waits_and_may_end_it(self, here: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hook_http, "BEAT_SECONDS", 0.05)
        here.answer = lambda handler: (here.stopping.wait(5), None)[1]
        beats: list[int] = []

        def beat() -> None:
            beats.append(1)
            if len(beats) == 3:
                raise KeyError("enough")

        with pytest.raises(KeyError, match="enough"):
            to(here, beat=beat, timeout=5)


class TestOnlyPublicAddresses:
    @pytest.mark.parametrize("host", PRIVATE)
    @pytest.mark.parametrize("scheme", ["http", "https"])
    def test_a_private_one_is_not_even_tried(self, tried: list[Any], scheme: str, host: str) -> None:
        answer = send(f"{scheme}://{host}/")
        assert answer.status is None
        assert answer.problem
        assert tried == []

    @pytest.mark.parametrize("host", PRIVATE)
    def test_a_private_one_is_refused_when_the_hook_is_made(self, host: str) -> None:
        assert "public" in url_problem(url=f"https://{host}/x", allow_private=False)
        assert url_problem(url=f"https://{host}:8000/x", allow_private=True) == ""

    @pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.7", "169.254.169.254", "::1", "fd00::1", "fec0::1"])
    def test_a_name_that_leads_to_one(self, monkeypatch: pytest.MonkeyPatch, tried: list[Any], address: str) -> None:
        resolve(monkeypatch, address)
        answer = send("http://hooks.example.com/")
        assert answer == HookAnswer(problem="its address is not public")
        assert tried == []

    def test_a_name_is_looked_up_once(self, monkeypatch: pytest.MonkeyPatch, tried: list[Any]) -> None:
        """A name whose second answer is private: what was judged is what is connected to."""
        resolve(monkeypatch, PUBLIC, "127.0.0.1")
        send("http://hooks.example.com/")
        assert tried == [(PUBLIC, 80)]

    def test_a_public_one_gets_its_request(self, monkeypatch: pytest.MonkeyPatch) -> None:
        resolve(monkeypatch, PUBLIC)
        with receiver() as here:
            port = int(here.url.split(":")[2].split("/")[0])
            plain = socket.socket

            def connect(address: Any, *args: Any, **options: Any) -> socket.socket:
                assert address == (PUBLIC, 80)
                made = plain()
                made.connect(("127.0.0.1", port))
                return made

            monkeypatch.setattr(urllib3.util.connection, "create_connection", connect)
            assert send("http://hooks.example.com/", secret=here.secret).status == 200
            assert here.headers[0]["Host"] == "hooks.example.com"


class TestUrls:
    @pytest.mark.parametrize(
        "url",
        [
            "",
            "hooks.example.com",
            "ftp://example.com/",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "http:///x",
            "http://",
            "http://user@example.com/",
            "http://user:pw@example.com/",
            "http://example.com\\@127.0.0.1/",
            "http://example.com:99999/",
            "http://example.com:0/",
            "http://example.com:x/",
            "http://exa mple.com/",
            "http://example.com/\r\nX: y",
            "http://１２７.0.0.1/",
            "http://[::1/",
            "http://[fe80::1%25eth0]/",
            "https://example.com/#part",
            "https://example.com/" + "x" * 2_000,
        ],
    )
    @pytest.mark.parametrize("allow_private", [True, False])
    def test_what_is_no_address_of_a_hook(self, url: str, allow_private: bool) -> None:
        assert url_problem(url=url, allow_private=allow_private)

    @pytest.mark.parametrize(
        "url",
        [
            "https://example.com",
            "http://example.com:8080/a/b?c=d%20e",
            "https://xn--bcher-kva.example/",
            "http://8.8.8.8/",
        ],
    )
    def test_what_is_one(self, url: str) -> None:
        assert url_problem(url=url, allow_private=False) == ""


def resolve(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Any name leads to the first address, then to the next; the last one stays."""
    left = list(addresses)

    def look_up(host: str, port: int, *args: Any, **options: Any) -> Any:
        address = left.pop(0) if len(left) > 1 else left[0]
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return [(family, socket.SOCK_STREAM, 6, "", (address, port, 0, 0) if ":" in address else (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
