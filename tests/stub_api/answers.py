"""What the model says: scripted, or made from the request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from compaction_app.engine.summary import SECTIONS, heading
from tests.stub_api.prefix import CHARACTERS_PER_TOKEN, block_tokens, blocks_of, result_parts

Block = dict[str, Any]
MOST_NAMES, MOST_PROMPTS, LONGEST_QUOTE, READ_CHARACTERS = 12, 12, 100, 400
# Paths, dotted or snake_case or CamelCase names: what a summary must not lose.
NAMES = re.compile(
    r"[\w./-]{0,80}\w/[\w./-]{0,80}\w|\b\w{1,60}\.\w{1,5}\b|\b[a-z]{1,30}(?:_[a-z0-9]{1,30}){1,6}\b"
    r"|\b[A-Z][a-z]{1,30}(?:[A-Z][a-z]{1,30}){1,6}\b"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One response. `stop_reason` None: follows from the blocks and from max_tokens.

    `model`: another one than was asked for; `output_tokens`: else counted; `usage`: laid over the books' figures
    in message and message_start; `delta_usage`: laid over that of message_delta; `extra`: further keys of the message.
    """

    blocks: tuple[Block, ...] = ()
    stop_reason: str | None = None
    model: str | None = None
    output_tokens: int | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    delta_usage: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "".join(block.get("text") or "" for block in self.blocks if block["type"] == "text")


def text_block(text: str) -> Block:
    return {"type": "text", "text": text}


def default_answer(body: Mapping[str, Any]) -> Answer:
    """A summary where the last user message asks for one, else a plain reply. Both tell of the request."""
    names = _first(NAMES.findall(" ".join(text[:READ_CHARACTERS] for text in texts_of(body))), MOST_NAMES)
    if asks_for_summary(body):
        return Answer(blocks=(text_block(summary_text(prompts=_prompts(body), names=names)),))
    told = f" You named {', '.join(names[:3])}." if names else ""
    return Answer(blocks=(text_block(f"Understood: {len(body['messages'])} messages.{told}"),))


def asks_for_summary(body: Mapping[str, Any]) -> bool:
    said = " ".join(_texts(body["messages"][-1]))
    return "<summary>" in said or SECTIONS[0] in said


def summary_text(
    *, prompts: Iterable[str] = (), names: Iterable[str] = (), sections: Iterable[int] = range(1, len(SECTIONS) + 1)
) -> str:
    """A well-formed summary: `<analysis>`, then the nine sections (or only those numbers) in `<summary>`."""
    said, named = [f"- {prompt}" for prompt in prompts], [f"- {name}" for name in names]
    filled = {
        1: said[:1] or ["The user wants the work done."],
        3: named or ["No files were named."],
        6: said or ["No messages by the user."],
        8: [f"The last message was: {said[-1][2:]}"] if said else ["Nothing is under way."],
    }
    parts = [heading(n) + "\n" + "\n".join(filled.get(n, ["Nothing to add."])) for n in sections]
    return (
        "<analysis>\nI went through the conversation in order.\n</analysis>\n\n<summary>\n"
        + "\n\n".join(parts)
        + "\n</summary>"
    )


def texts_of(body: Mapping[str, Any]) -> list[str]:
    return [text for message in body["messages"] for text in _texts(message)]


def _prompts(body: Mapping[str, Any]) -> list[str]:
    said = [t for m in body["messages"] if m["role"] == "user" for t in _texts(m, results=False)]
    said = said[:-1] or said  # what asks for the summary is no message of the user
    plain = (re.sub(r"[<>#\s]+", " ", text[:READ_CHARACTERS]).strip()[:LONGEST_QUOTE] for text in said)
    return [text for text in plain if text][-MOST_PROMPTS:]


def _texts(message: Mapping[str, Any], *, results: bool = True) -> list[str]:
    found: list[str] = []
    for _, block in blocks_of({"messages": [message]}):
        if block.get("type") == "text":
            found.append(block["text"])
        elif results and block.get("type") == "tool_use":
            found += [value for value in block["input"].values() if isinstance(value, str)]
        elif results and isinstance(block.get("content"), str):
            found.append(block["content"])
        elif results:
            found += [str(part["text"]) for part in result_parts(block) if part.get("type") == "text"]
    return found


def _first(found: Iterable[str], most: int) -> list[str]:
    return list(dict.fromkeys(found))[:most]


def within(*, answer: Answer, most_tokens: int) -> Answer:
    """The answer with a stop reason, cut at `most_tokens` where none was scripted."""
    if answer.stop_reason is not None:
        return answer
    blocks, left = [], most_tokens
    for block in answer.blocks:
        size = block_tokens(block)
        if size > left:
            if left and block["type"] == "text":
                blocks.append({**block, "text": block["text"][: left * CHARACTERS_PER_TOKEN]})
            return replace(answer, blocks=tuple(blocks), stop_reason="max_tokens")
        blocks.append(block)
        left -= size
    calls = any(block["type"] == "tool_use" for block in answer.blocks)
    return replace(answer, stop_reason="tool_use" if calls else "end_turn")


def tokens_of(answer: Answer) -> int:
    if answer.output_tokens is not None:
        return answer.output_tokens
    return sum(block_tokens(block) for block in answer.blocks)
