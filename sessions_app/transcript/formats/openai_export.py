"""A request body of OpenAI's Chat Completions, for a request that the Messages API would take.

Calls stand beside the text of their message, and each result is a message behind it, of text alone; so pictures of
results follow in a message of the user's. Thinking is left out: that API takes none back.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sessions_app.transcript.call_arguments import arguments_of
from sessions_app.transcript.chat import text
from sessions_app.transcript.messages import Content, ContentBlock, Role, content_blocks
from sessions_app.transcript.native import COMPACTION, readable
from sessions_app.transcript.openai_parts import is_media, part_of
from sessions_app.transcript.request import THINKING

NAME = "openai"
MEDIA_TYPE = "application/json"
SUFFIX = ".json"

# Characters that the API takes in a call's id and in a function's name; ours may be longer.
LONGEST_ID = 40
LONGEST_NAME = 64
_ODD = re.compile(r"[^A-Za-z0-9_-]")

Part = dict[str, Any]


def document(*, model: str, system: Any, tools: Any, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The body. Tools that run on Anthropic's side have no counterpart, and are left out."""
    prompt = [{"role": "system", "content": _told(_parts(system))}] if system else []
    functions = [_function(tool) for tool in tools or () if isinstance(tool.get("input_schema"), Mapping)]
    return {
        **({"model": model} if model else {}),
        **({"tools": functions} if functions else {}),
        "messages": [*prompt, *(made for one in messages for made in _messages(one))],
    }


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": _name(tool.get("name"))}
    function |= {key: tool[key] for key in ("description", "strict") if tool.get(key) is not None}
    return {"type": "function", "function": {**function, "parameters": tool["input_schema"]}}


def _messages(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if message["role"] == Role.ASSISTANT:
        yield from _answer(message["content"])
        return
    blocks = content_blocks(message["content"])
    results = [block for block in blocks if block.get("type") == "tool_result"]
    for result in results:
        yield {"role": "tool", "tool_call_id": _id(result.get("tool_use_id")), "content": _told(_result(result))}
    more = [part for result in results for part in _media_of(result)]
    more += _parts([block for block in blocks if block.get("type") != "tool_result"])
    if more:
        yield {"role": message["role"], "content": _told(more)}


def _answer(content: Content) -> Iterator[dict[str, Any]]:
    blocks = [block for block in content_blocks(content) if block.get("type") not in THINKING]
    calls = [_call(block) for block in blocks if block.get("type") == "tool_use"]
    said = _parts([block for block in blocks if block.get("type") != "tool_use"])
    if said or calls:
        made: dict[str, Any] = {"role": "assistant", "content": _told(said) if said else None}
        yield {**made, "tool_calls": calls} if calls else made


def _call(block: ContentBlock) -> dict[str, Any]:
    function = {"name": _name(block.get("name")), "arguments": arguments_of(input=block.get("input"))}
    return {"id": _id(block.get("id")), "type": "function", "function": function}


# Contents


def _parts(content: Any) -> list[Part]:
    parts = (_part(block) for block in content_blocks(content))
    return [part for part in parts if part is not None]


def _part(block: ContentBlock) -> Part | None:
    if block.get("type") != COMPACTION:
        return part_of(block=block)
    told = readable(block)
    return {"type": "text", "text": told} if told else None


def _told(parts: Sequence[Part]) -> Any:
    """A single text as a text; several parts as they are; "" for none."""
    if not parts:
        return ""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else list(parts)


def _result(result: ContentBlock) -> list[Part]:
    """A result as texts; a picture in it is told, and follows."""
    content = result.get("content")
    if not isinstance(content, list):
        return _parts(text(value=content))
    return [_as_text(part) if is_media(part=part) else part for part in _parts(content)]


def _as_text(part: Part) -> Part:
    return {"type": "text", "text": "[image: shown below]" if part["type"] == "image_url" else "[file: shown below]"}


def _media_of(result: ContentBlock) -> list[Part]:
    content = result.get("content")
    media = [part for part in _parts(content) if is_media(part=part)] if isinstance(content, list) else []
    label = {"type": "text", "text": f"[of the result of {_id(result.get('tool_use_id'))}]"}
    return [label, *media] if media else []


# Names


def _id(value: Any) -> str:
    """As it is where the API takes it; else one that is the same for the call and its result."""
    given = text(value=value)
    return given if len(given) <= LONGEST_ID else f"call_{_digest(given)[:32]}"


def _name(value: Any) -> str:
    given = _ODD.sub("_", text(value=value))
    return given if len(given) <= LONGEST_NAME else f"{given[: LONGEST_NAME - 9]}_{_digest(given)[:8]}"


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
