"""Calls with what they were answered, as attachments look at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sessions_app.transcript.messages import (
    PATH_KEYS,
    ContentBlock,
    Message,
    Role,
    result_text,
    text_of,
    tool_results,
    tool_uses,
)

REMINDER = "<system-reminder>"  # Claude Code's tag around what it tells the model


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call. `result`: None where none is known. `in_tail`: the call stands in the kept tail.

    `result_position`: 0 where there is no result; `result_in_tail`: what answered it stands in the tail.
    """

    name: str
    position: int
    arguments: Mapping[str, Any]
    result: ContentBlock | None = None
    result_position: int = 0
    in_tail: bool = False
    result_in_tail: bool = False

    @property
    def failed(self) -> bool:
        return self.result is not None and self.result.get("is_error") is True

    @property
    def succeeded(self) -> bool:
        return self.result is not None and not self.failed

    @property
    def path(self) -> str:
        return self.argument(*PATH_KEYS)

    @property
    def answer(self) -> str:
        return result_text(self.result) if self.result is not None else ""

    def argument(self, *names: str) -> str:
        """The first of these arguments that is a text; "" where none is."""
        values = (self.arguments.get(name) for name in names)
        return next((value for value in values if isinstance(value, str)), "")


def calls_of(*, history: Sequence[Message], tail: Sequence[Message]) -> list[Call]:
    """All calls in their order, each with its result. What is in both parts counts as of the tail.

    An id may be used again, and a result may stand before its use: a use takes the next result of its id, else the
    last one before it.
    """
    of_tail = {message.position for message in tail}
    messages = [*(message for message in history if message.position not in of_tail), *tail]
    messages.sort(key=lambda message: message.position)
    results: dict[str, list[tuple[int, ContentBlock]]] = {}
    for message in messages:
        if message.role == Role.USER:
            for block in tool_results(message.content):
                results.setdefault(block["tool_use_id"], []).append((message.position, block))
    found = []
    for message in messages:
        for block in tool_uses(message.content) if message.role == Role.ASSISTANT else ():
            at, result = _take(results.get(block["id"], []), after=message.position)
            found.append(
                Call(
                    name=block["name"] if isinstance(block.get("name"), str) else "",
                    position=message.position,
                    arguments=block["input"] if isinstance(block.get("input"), Mapping) else {},
                    result=result,
                    result_position=at,
                    in_tail=message.position in of_tail,
                    result_in_tail=at in of_tail,
                )
            )
    return found


def _take(waiting: list[tuple[int, ContentBlock]], *, after: int) -> tuple[int, ContentBlock | None]:
    if not waiting:
        return 0, None
    index = next((i for i, (position, _) in enumerate(waiting) if position > after), len(waiting) - 1)
    return waiting.pop(index)


def told_in(tail: Sequence[Message]) -> str:
    """What the client has put into the tail beside results: no words of a person, who may name anything."""
    texts = ((message, text_of(message.content)) for message in tail if message.role == Role.USER)
    return "\n".join(text for message, text in texts if message.is_meta or REMINDER in text)
