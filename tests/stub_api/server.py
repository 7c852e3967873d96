"""The stub as tests hold it: what it answers, how it goes wrong, what came in."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Self

from tests.stub_api.answers import Answer, Block, text_block
from tests.stub_api.faults import EVERY_FAULT, NO_FAULT, Fault
from tests.stub_api.record import Recorded
from tests.stub_api.state import Json, State
from tests.stub_api.wire import Handler, HttpServer

Predicate = Callable[[Any], bool]
LONGEST_HOLD_SECONDS = 30  # a test that forgets to release ends all the same


class StubApi:
    """Serves between `with` and its end. `state` may be changed at any time; `requests` is all that came, in order."""

    def __init__(self, *, models: list[Json] | None = None, port: int = 0, **state: Any) -> None:
        self.state = State(models=list(models or []), **state)
        self.requests: list[Recorded] = []
        self.stopping = threading.Event()
        self._came = threading.Condition()
        self._open = threading.Event()
        self._open.set()
        self._held_after = 0
        self._always: Fault | None = None
        self._next: deque[Fault] = deque()
        self._conditional: list[tuple[Predicate, Fault]] = []
        self._scripted: deque[Answer] = deque()
        self._server = HttpServer(("127.0.0.1", port), Handler)
        self._server.stub = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def say(self, text: str = "", *, stop_reason: str = "end_turn", blocks: Sequence[Block] | None = None) -> None:
        """The next call of a model is answered so; several stand in line. `blocks`: in place of the text."""
        given = tuple(blocks) if blocks is not None else (text_block(text),)
        self.answer(Answer(blocks=given, stop_reason=stop_reason))

    def answer(self, *answers: Answer) -> None:
        """As `say`, with all that an answer can hold."""
        self._scripted.extend(answers)

    def fail(self, *names: str) -> None:
        """The next requests meet these faults, one each; one of a model's calls waits for such a call."""
        self._next.extend(EVERY_FAULT[name] for name in names)

    def keep_failing(self, name: str | None) -> None:
        """Every request meets this fault from now on; None: no more."""
        self._always = EVERY_FAULT[name] if name else None

    def fail_when(self, predicate: Predicate, name: str) -> None:
        """Every request whose body is such meets this fault from now on. The body: a dict, or None for a GET."""
        self._conditional.append((predicate, EVERY_FAULT[name]))

    def hold(self, *, frames: int = 0) -> None:
        """Calls of a model get no first byte (or nothing after so many frames) until `release`."""
        self._held_after = frames
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def wait_for(self, *, path: str, count: int = 1, seconds: float = 10) -> list[Recorded]:
        """The requests of that path once there are `count` of them. Raises TimeoutError."""
        with self._came:
            if not self._came.wait_for(lambda: len(self.of(path)) >= count, timeout=seconds):
                raise TimeoutError(f"{len(self.of(path))} requests of {path} in {seconds} s, not {count}")
        return self.of(path)

    def of(self, path: str) -> list[Recorded]:
        return [one for one in self.requests if one.path == path]

    # What the handler asks.

    def record(self, request: Recorded) -> None:
        with self._came:
            request.request_id = f"req_stub_{len(self.requests) + 1:08d}"
            self.requests.append(request)
            self._came.notify_all()

    def fault_for(self, request: Recorded) -> Fault:
        """The fault that this request meets, or NO_FAULT. One that was asked for once is used up."""
        fault = self._fault(request)
        request.fault = fault.name or None
        return fault

    def _fault(self, request: Recorded) -> Fault:
        with self._came:
            if self._next and _meets(request, self._next[0]):
                return self._next.popleft()
        for predicate, fault in self._conditional:
            if _meets(request, fault) and predicate(request.body):
                return fault
        return self._always if self._always and _meets(request, self._always) else NO_FAULT

    def scripted(self) -> Answer | None:
        with self._came:
            return self._scripted.popleft() if self._scripted else None

    def wait_at_gate(self, *, frames: int) -> None:
        """`frames`: how many were sent."""
        if frames == self._held_after:
            self._open.wait(LONGEST_HOLD_SECONDS)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _meets(request: Recorded, fault: Fault) -> bool:
    body = request.body
    streamed = request.for_message and isinstance(body, dict) and body.get("stream") is True
    return (request.for_message or not fault.model_only) and (streamed or fault.stream is None)
