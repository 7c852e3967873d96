"""Tool calls and their results, joined: a result is shown under its call, wherever the two stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from compaction_app.admin.rendering.text import one_line
from sessions_app.models import Message, ToolCall
from sessions_app.transcript.messages import ContentBlock, tool_results

HEADLINE_CHARS = 160
# What tells a call from its neighbours, most telling first.
_TELLING = (
    "command", "file_path", "notebook_path", "pattern", "query", "url", "description", "path", "skill", "subject",
    "prompt", "title", "name", "question", "task_id", "bash_id", "shell_id", "plan", "id",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CallIndex:
    """The calls that a page shows or answers, and the result blocks that were loaded for them."""

    by_use: Mapping[tuple[int, str], ToolCall]
    by_result: Mapping[tuple[int, str], ToolCall]
    results: Mapping[tuple[int, str], ContentBlock]

    def call_at(self, *, position: int, tool_use_id: str) -> ToolCall | None:
        return self.by_use.get((position, tool_use_id))

    def call_answered_at(self, *, position: int, tool_use_id: str) -> ToolCall | None:
        return self.by_result.get((position, tool_use_id))

    def result_of(self, call: ToolCall) -> ContentBlock | None:
        if call.result_position is None:
            return None
        return self.results.get((call.result_position, call.tool_use_id))


def index_calls(*, calls: Iterable[ToolCall], messages: Iterable[Message]) -> CallIndex:
    """`messages`: those of the page and those that hold the results of its calls."""
    rows = list(calls)
    results: dict[tuple[int, str], ContentBlock] = {}
    for message in messages:
        for block in tool_results(message.content):
            results.setdefault((message.position, block["tool_use_id"]), block)
    return CallIndex(
        by_use={(call.use_position, call.tool_use_id): call for call in rows if call.use_position is not None},
        by_result={(call.result_position, call.tool_use_id): call for call in rows if call.result_position is not None},
        results=results,
    )


def headline(tool_input: object) -> str:
    """The most telling input of a call, in one line."""
    if not isinstance(tool_input, Mapping):
        return ""
    todos = tool_input.get("todos")
    if isinstance(todos, list):
        done = sum(isinstance(todo, Mapping) and todo.get("status") == "completed" for todo in todos)
        return f"{done} of {len(todos)} done"
    questions = tool_input.get("questions")
    if isinstance(questions, list) and questions and isinstance(questions[0], Mapping):
        return one_line(str(questions[0].get("question", "")), limit=HEADLINE_CHARS)
    text = _first_text(tool_input)
    where = tool_input.get("path")
    if isinstance(tool_input.get("pattern"), str) and isinstance(where, str):
        text = f"{text} in {where}"
    return one_line(text, limit=HEADLINE_CHARS)


def _first_text(tool_input: Mapping[str, Any]) -> str:
    for name in _TELLING:
        value = tool_input.get(name)
        if isinstance(value, str) and value.strip():
            return value
    return next((value for value in tool_input.values() if isinstance(value, str) and value.strip()), "")
