"""The state of the todo list and of the plan, rebuilt from the calls."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from compaction_app.engine.extractive.story import Call
from compaction_app.engine.extractive.text import clean

_TASK_ID = re.compile(r"[Tt]ask #?(\w+)")
_DONE = frozenset({"completed", "done", "cancelled", "deleted"})
_LIST_KEYS = ("todos", "plan", "items", "tasks")
_TEXT_KEYS = ("content", "step", "subject", "title", "text", "description")


@dataclass(frozen=True, slots=True)
class Todo:
    """One item, its text as the agent wrote it, and its status in the agent's own word. `key`: the number of a task
    that calls name one by one, "" in a list that is written whole."""

    text: str
    status: str
    key: str = ""

    @property
    def is_open(self) -> bool:
        return self.status not in _DONE


@dataclass(frozen=True, slots=True)
class TodoState:
    """The items of the newest list, in its order, and the newest plan that was put before the human."""

    items: tuple[Todo, ...]
    plan: str


def todo_state(calls: Sequence[Call], *, known: Sequence[Todo] = ()) -> TodoState:
    """`known`: the items before these calls."""
    listed = tuple(one for one in known if not one.key)
    tasks = {one.key: one for one in known if one.key}
    plan = ""
    for call in calls:
        if call.name == "ExitPlanMode":
            plan = call.value("plan").strip() or plan
        elif call.name == "TaskCreate":
            _create(call, tasks)
        elif call.name == "TaskUpdate":
            _update(call, tasks)
        else:
            listed = _listed(call) or listed
    return TodoState(items=(*listed, *tasks.values()), plan=plan)


def _listed(call: Call) -> tuple[Todo, ...]:
    """The items of a call that carries a whole list (TodoWrite, update_plan)."""
    if not re.search(r"todo|plan", call.name, re.IGNORECASE):
        return ()
    for key in _LIST_KEYS:
        value = call.input.get(key)
        if isinstance(value, Sequence) and not isinstance(value, str):
            items = [_item(entry) for entry in value if isinstance(entry, Mapping)]
            return tuple(item for item in items if item.text)
    return ()


def _item(entry: Mapping[str, Any]) -> Todo:
    text = next((entry[key] for key in _TEXT_KEYS if isinstance(entry.get(key), str) and entry[key].strip()), "")
    status = entry.get("status")
    return Todo(text=clean(text), status=clean(status) if isinstance(status, str) else "pending")


def _create(call: Call, tasks: dict[str, Todo]) -> None:
    match = _TASK_ID.search(call.result or "")
    item = _item({"subject": call.input.get("subject"), "description": call.input.get("description")})
    if item.text:
        key = match.group(1) if match else str(len(tasks) + 1)
        tasks[key] = replace(item, key=key)


def _update(call: Call, tasks: dict[str, Todo]) -> None:
    key = str(call.input.get("taskId", call.input.get("task_id", "")))
    known = tasks.get(key)
    if known is None:
        return
    status = call.value("status") or known.status
    tasks[key] = replace(known, text=call.value("subject") or known.text, status=status)
