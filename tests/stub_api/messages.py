"""POST /v1/messages: checked, edited, counted, priced by the cache's books, answered as JSON or as a stream."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.stub_api.answers import Answer, default_answer, tokens_of, within
from tests.stub_api.books import Account
from tests.stub_api.checks import check_messages
from tests.stub_api.compaction import as_iteration, compacted
from tests.stub_api.edits import apply_edits
from tests.stub_api.prefix import Prompt, read_prompt
from tests.stub_api.state import Call, Json, State, invalid

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Reply:
    """A message that is ready to be sent. `opened` is to be called once its first byte goes out."""

    message: Json
    prompt: Prompt
    answer: Answer
    streamed: bool
    delta_usage: Json
    edits: list[Json] | None
    opened: Callable[[], None]

    def frames(self, *, characters: int) -> list[tuple[str, Json]]:
        """(event, data) in the order of the stream; texts in pieces of `characters`."""
        return list(_frames(self, characters))


def create_message(state: State, call: Call, say: Callable[[Json], Answer | None]) -> Reply:
    """Raises Refusal. `say`: what was scripted for the request as the model sees it, if anything."""
    body = call.body
    check_messages(state, call)
    problem = state.signatures.check(body=body) if state.bound_thinking else None
    if problem:
        raise invalid(problem)
    seen, edits = apply_edits(body=body, count=state.count)
    total, window = state.count(seen), state.window(body["model"])
    if total > window:
        raise invalid(f"prompt is too long: {total} tokens > {window} maximum")
    if state.room_for_output and total + body["max_tokens"] > window:
        raise invalid(
            f"input length and `max_tokens` exceed context limit: {total} + {body['max_tokens']} > {window}, "
            "decrease input length or `max_tokens` and try again"
        )
    prompt = read_prompt(body=seen, total=total)
    account = state.books.price(prompt=prompt, minimum=state.shortest_prefix(body["model"]), now=state.now())
    is_compaction = body.get("compaction") is not None
    made = compacted if is_compaction else default_answer
    answer = within(answer=say(seen) or made(seen), most_tokens=body["max_tokens"])
    usage = _usage(account, tokens_of(answer))
    message: Json = {
        "id": f"msg_stub_{next(_numbers):08d}",
        "type": "message",
        "role": "assistant",
        "model": answer.model or body["model"],
        "content": [dict(block) for block in answer.blocks],
        "stop_reason": answer.stop_reason,
        "stop_sequence": None,
        "usage": (as_iteration(usage) if is_compaction else usage) | dict(answer.usage),
        **answer.extra,
    }
    if edits is not None:
        message["context_management"] = {"applied_edits": edits}
    state.signed_blocks.keep(message)
    totals = {key: message["usage"][key] for key in ("output_tokens", "iterations") if key in message["usage"]}
    return Reply(
        message=message,
        prompt=prompt,
        answer=answer,
        streamed=body.get("stream") is True,
        delta_usage={**totals, **answer.delta_usage},
        edits=edits,
        opened=lambda: state.books.keep(account=account, now=state.now()),
    )


def _usage(account: Account, output: int) -> Json:
    return {
        "input_tokens": account.uncached,
        "cache_creation_input_tokens": account.written_5m + account.written_1h,
        "cache_read_input_tokens": account.read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": account.written_5m,
            "ephemeral_1h_input_tokens": account.written_1h,
        },
        "output_tokens": output,
        "service_tier": "standard",
    }


def _frames(reply: Reply, characters: int) -> Iterator[tuple[str, Json]]:
    final = reply.message
    opening = {k: v for k, v in final.items() if k not in ("context_management", "stop_details")}
    begun_with = {key: value for key, value in final["usage"].items() if key != "iterations"}
    opening |= {"content": [], "stop_reason": None, "usage": {**begun_with, "output_tokens": 1}}
    yield "message_start", {"type": "message_start", "message": opening}
    yield "ping", {"type": "ping"}
    for index, block in enumerate(final["content"]):
        begun, deltas = _pieces(block, characters)
        yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": begun}
        for delta in deltas:
            yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": index}
    ended = {"stop_reason": final["stop_reason"], "stop_sequence": None}
    if "stop_details" in final:
        ended["stop_details"] = final["stop_details"]
    closing: Json = {"type": "message_delta", "delta": ended, "usage": reply.delta_usage}
    if reply.edits is not None:
        closing["context_management"] = final["context_management"]
    yield "message_delta", closing
    yield "message_stop", {"type": "message_stop"}


def _pieces(block: Json, characters: int) -> tuple[Json, list[Json]]:
    """The block as it begins, and its deltas. Kinds without deltas come whole."""
    kind = block["type"]
    if kind == "text":
        deltas = [{"type": "text_delta", "text": piece} for piece in _cut(block["text"], characters)]
        return {**block, "text": ""}, deltas
    if kind == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _cut(block["thinking"], characters)]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {**block, "thinking": "", "signature": ""}, deltas
    if kind in ("tool_use", "server_tool_use"):
        told = json.dumps(block["input"])
        return {**block, "input": {}}, [
            {"type": "input_json_delta", "partial_json": piece} for piece in _cut(told, characters)
        ]
    return block, []


def _cut(text: str, characters: int) -> Iterator[str]:
    return (text[start : start + characters] for start in range(0, len(text), characters))


def frame_bytes(*, event: str, data: Any) -> bytes:
    """One server-sent event."""
    return f"event: {event}\ndata: {json.dumps(data)}\n\n".encode()
