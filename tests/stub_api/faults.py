"""How the API can fail: each row of the product's facts about errors, one name each.

`FAULTS` meet any request. `MODEL_FAULTS` meet a call of a model alone (POST /v1/messages): an answer in place of the
right one, a right answer that goes wrong on its way (`stream`; only where a stream was asked for), or a model that says
the wrong thing (`says`). SECRET-… stands wherever the API could quote what it was sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.stub_api.answers import Answer, summary_text, text_block
from tests.stub_api.compaction import signed_block

Says = Callable[[Mapping[str, Any], Any], Answer]


def error_body(*, kind: str, message: str, code: str = "", request_id: str = "req_stub") -> bytes:
    """The API's one shape of error."""
    error: dict[str, Any] = {"type": kind, "message": message}
    if code:
        error["details"] = {"error_code": code}
    return json.dumps({"type": "error", "error": error, "request_id": request_id}).encode()


@dataclass(frozen=True, slots=True)
class Stream:
    """How a stream goes wrong. `share`: of its deltas that are sent before.

    `then`: what comes next: `error` (an event, then the end), `end` (without message_stop), `cut` (inside a chunk),
    `half_frame` (of message_stop, then a clean end), `silence`, `all` (nothing goes wrong there). `error`: type and
    message. `twice`: each event is sent two times. `noise`: unknown events, comments and pings stand between them.
    """

    then: str
    share: float = 0.5
    error: tuple[str, str] = ("overloaded_error", "Overloaded SECRET-CONTENT")
    twice: bool = False
    noise: bool = False

    def sent_of(self, events: Sequence[str]) -> int:
        """How many of these events are sent before it goes wrong."""
        if self.then == "all":
            return len(events)
        if self.share in (0.0, 1.0):
            return int(self.share) * (len(events) - 1)
        deltas = [place for place, event in enumerate(events) if event == "content_block_delta"]
        return deltas[max(0, int(len(deltas) * self.share) - 1)] + 1 if deltas else len(events) // 2


@dataclass(frozen=True, slots=True)
class Fault:
    """`silent`: no answer at all until the server stops; `hangs_up`: none, ever; `slow`: a right one, but late."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    silent: bool = False
    hangs_up: bool = False
    slow: bool = False
    stream: Stream | None = None
    says: Says | None = None
    model_only: bool = False
    name: str = ""

    @property
    def answers(self) -> bool:
        """Whether the right answer is made, in whatever way it may go wrong then."""
        return not self.name or self.slow or self.stream is not None or self.says is not None


def _error(status: int, kind: str, message: str, **headers: str) -> Fault:
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Fault(status=status, body=error_body(kind=kind, message=message), headers=named)


def _coded(status: int, kind: str, code: str) -> Fault:
    return Fault(status=status, body=error_body(kind=kind, message="no compaction: SECRET-CONTENT", code=code))


def _invalid(message: str) -> Fault:
    return _error(400, "invalid_request_error", message)


def _html(status: int, title: str) -> Fault:
    page = f"<html><head><title>{status} {title}</title></head><body><h1>{title}</h1>SECRET-CONTENT</body></html>"
    return Fault(status=status, body=page.encode(), content_type="text/html")


def _blocks(*blocks: dict[str, Any], stop: str = "end_turn", **more: Any) -> Fault:
    return Fault(says=lambda body, state: Answer(blocks=blocks, stop_reason=stop, **more))


def _half_said(stop: str) -> Fault:
    half = summary_text(names=["src/half.py"])
    return _blocks(text_block(half[: len(half) // 2]), stop=stop)


def _overlong(body: Mapping[str, Any], state: Any) -> Answer:
    """As long as was asked for, within what the request allows."""
    tokens = min(state.overlong_tokens, max(0, body["max_tokens"] - MARGIN_TOKENS))
    filling = "- a line that nobody needs, again and again\n" * (tokens // 11)
    return Answer(blocks=(text_block(summary_text(names=[filling])),), stop_reason="end_turn")


def _tool_call(body: Mapping[str, Any], state: Any) -> Answer:
    name = next((tool["name"] for tool in body.get("tools") or () if tool.get("name")), "Read")
    call = {"type": "tool_use", "id": "toolu_stub_call", "name": name, "input": {"file_path": "/SECRET-CONTENT.py"}}
    return Answer(blocks=(call,), stop_reason="tool_use")


MARGIN_TOKENS = 200  # for the headings of a summary
TOO_LONG = "prompt is too long: 204123 tokens > 200000 maximum"
THOUGHT = {"type": "thinking", "thinking": "I should write a summary.", "signature": "c3R1Yg=="}

_ANYWHERE: dict[str, Fault] = {
    "400-too-long": _invalid(TOO_LONG),
    "400": _invalid("messages.0.SECRET-CONTENT: bad"),
    "401": _error(401, "authentication_error", "invalid key SECRET-KEY"),
    "403": _error(403, "permission_error", "not allowed"),
    "404": _error(404, "not_found_error", "model: no such model"),
    "413-html": Fault(status=413, body=b"<html><h1>413</h1></html>", content_type="text/html"),
    "429": _error(429, "rate_limit_error", "slow down", retry_after="3600"),
    "500": _error(500, "api_error", "internal error", x_should_retry="true"),
    "529": _error(529, "overloaded_error", "overloaded"),
    "garbage": Fault(body=b'{"data": [{"id": "claude-'),
    "list": Fault(body=b"[1, 2]"),
    "number": Fault(body=b"7"),
    "null-parts": Fault(body=b'{"data": null, "has_more": true, "last_id": "x", "input_tokens": null}'),
    "text-parts": Fault(body=b'{"data": "x", "has_more": false, "input_tokens": "many"}'),
    "html": Fault(body=b"<html>a proxy's page</html>", content_type="text/html"),
    "empty": Fault(body=b""),
    "silent": Fault(silent=True),
    "hangs-up": Fault(hangs_up=True),
}

_ERRORS: dict[str, Fault] = {
    "400-too-long-no-figures": _invalid("prompt is too long"),
    "400-output-too-long": _invalid(
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, "
        "decrease input length or `max_tokens` and try again"
    ),
    "bedrock-too-long": _invalid("Input is too long for requested model."),
    "gateway-too-long": Fault(
        status=400,
        body=json.dumps(
            {"error": {"code": "prompt_too_long", "message": "prompt_too_long: reduce the prompt (SECRET-CONTENT)"}}
        ).encode(),
    ),
    "402": _error(402, "billing_error", "Your credit balance is too low"),
    "408": _error(408, "timeout_error", "Request timed out"),
    "409": _error(409, "conflict_error", "conflict SECRET-CONTENT"),
    "413-json": _error(413, "request_too_large", "Request exceeds the maximum size"),
    "429-short": _error(429, "rate_limit_error", "slow down SECRET-CONTENT", retry_after_ms="10"),
    "429-bare": _error(429, "rate_limit_error", "slow down"),
    "429-date": _error(429, "rate_limit_error", "slow down", retry_after="Fri, 31 Dec 2049 23:59:59 GMT"),
    "500-final": _error(500, "api_error", "internal error SECRET-CONTENT", x_should_retry="false"),
    "502-html": _html(502, "Bad Gateway"),
    "503": _error(503, "api_error", "unavailable SECRET-CONTENT"),
    "504": _error(504, "timeout_error", "gateway timeout SECRET-CONTENT"),
    "slow": Fault(slow=True),
}

_STREAMS: dict[str, Stream] = {
    "stream-overloaded": Stream("error"),
    "stream-api-error": Stream("error", error=("api_error", "Internal server error SECRET-CONTENT")),
    "stream-too-long": Stream("error", error=("invalid_request_error", TOO_LONG)),
    "stream-error-first": Stream("error", share=0.0),
    "truncated": Stream("end"),
    "no-message-stop": Stream("end", share=1.0),
    "half-frame": Stream("half_frame", share=1.0),
    "cut": Stream("cut"),
    "silent-mid-stream": Stream("silence"),
    "duplicated-events": Stream("all", twice=True),
    "unknown-events": Stream("all", noise=True),
}

_SAYINGS: dict[str, Fault] = {
    "blank": _blocks(text_block("  \n\n ")),
    "only-thinking": _blocks(THOUGHT),
    "tool-call": Fault(says=_tool_call),
    "max-tokens": _half_said("max_tokens"),
    "window-exceeded": _half_said("model_context_window_exceeded"),
    "pause-turn": _half_said("pause_turn"),
    "unknown-stop": _half_said("tomorrow_reason"),
    "refusal": _blocks(
        text_block("I can't help with that SECRET-CONTENT."),
        stop="refusal",
        extra={"stop_details": {"type": "refusal", "category": None, "explanation": "declined SECRET-CONTENT"}},
    ),
    "overlong": Fault(says=_overlong),
    "missing-sections": _blocks(text_block(summary_text(names=["src/a.py"], sections=[1, 2, 3]))),
    "no-tags": _blocks(text_block("The conversation was about several things. All is well.")),
    "only-analysis": _blocks(text_block("<analysis>\nI looked at everything.\n</analysis>")),
    "empty-content": _blocks(),
    "unknown-block": _blocks({"type": "tomorrow_block", "tomorrow": 1}),
    "sparse-usage": _blocks(
        text_block(summary_text(names=["src/a.py"])),
        usage={"cache_read_input_tokens": None, "cache_creation_input_tokens": None, "cache_creation": None},
    ),
    "other-model": _blocks(text_block(summary_text(names=["src/a.py"])), model="claude-fallback-9"),
}

# Of a compaction on demand (facts, section 7a): the API's own names of the cause, and answers that hold no block.
COMPACTION_CODES = (
    *("block_misplaced", "block_ambiguous", "content_mismatch", "signature_invalid", "nothing_to_summarize"),
    *("incomplete_turn", "too_many_tool_references", "tool_changes_mismatch"),
)
EMPTY_STOPS = ("max_tokens", "model_context_window_exceeded", "tool_use", "refusal", "end_turn")
_SUMMED = signed_block("SECRET-CONTENT was summed up")
_COMPACTIONS: dict[str, Fault] = {
    **{f"compaction-{code}": _coded(400, "invalid_request_error", f"compaction_{code}") for code in COMPACTION_CODES},
    "compaction-unavailable": _coded(529, "overloaded_error", "compaction_unavailable"),
    **{f"compaction-empty-{stop}": _blocks(stop=stop) for stop in EMPTY_STOPS},
    "compaction-unsigned": _blocks({**_SUMMED, "signature": None}, stop="compaction"),
    "compaction-blank": _blocks({**_SUMMED, "content": None}, stop="compaction"),
    "compaction-twice": _blocks(_SUMMED, signed_block("another"), stop="compaction"),
    "compaction-and-text": _blocks(_SUMMED, text_block("and more"), stop="compaction"),
    "compaction-other-stop": _blocks(_SUMMED, stop="end_turn"),
    "compaction-cut": Fault(stream=Stream("end", share=0.0)),
}

_OF_MODELS = _COMPACTIONS | _ERRORS | {name: Fault(stream=how) for name, how in _STREAMS.items()} | _SAYINGS

NO_FAULT = Fault()
FAULTS: dict[str, Fault] = {name: replace(fault, name=name) for name, fault in _ANYWHERE.items()}
MODEL_FAULTS: dict[str, Fault] = {
    name: replace(fault, name=name, model_only=True) for name, fault in _OF_MODELS.items()
}
COMPACTION_FAULTS = frozenset(_COMPACTIONS)
EVERY_FAULT: dict[str, Fault] = FAULTS | MODEL_FAULTS
