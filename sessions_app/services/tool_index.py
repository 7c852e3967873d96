"""The tool-call index, kept up with each append at the cost of what is appended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.db.models import Q

from sessions_app.catalog import tokenizer_family
from sessions_app.models import Message, Session, ToolCall
from sessions_app.models.fields import storable_text
from sessions_app.transcript.messages import Role, tool_results, tool_uses
from sessions_app.transcript.tokens import estimate_block

ID_LENGTH, NAME_LENGTH, TARGET_LENGTH = 255, 200, 1000  # the columns' sizes
TARGET_KEYS = ("file_path", "notebook_path", "path")


def record(*, session: Session, rows: Sequence[Message]) -> None:
    """Index the calls and results of the new rows; each completes what is stored of the same call, if anything is."""
    index = _Index(session=session, rows=rows)
    for row in rows:
        if row.role == Role.ASSISTANT:
            for call in _calls(session=session, row=row):
                index.add_use(call, response=row.message_id or row.position)
        elif row.role == Role.USER:
            for block in tool_results(row.content):
                index.add_result(row=row, block=block)
    index.save()


class _Index:
    """What is half known of the calls that the new rows mention: uses without result, results without use."""

    def __init__(self, *, session: Session, rows: Sequence[Message]) -> None:
        self.session = session
        self.made: list[ToolCall] = []
        self.changed: list[ToolCall] = []
        self.written: set[tuple[str, str | int]] = set()  # some clients write a block of one response twice
        halves = _stored_halves(session=session, ids=set(_mentioned(rows)))
        self.waiting = {call.tool_use_id: call for call in halves if call.result_position is None}
        self.orphans = {call.tool_use_id: call for call in halves if call.use_position is None}

    def add_use(self, call: ToolCall, *, response: str | int) -> None:
        if (call.tool_use_id, response) in self.written:
            return
        self.written.add((call.tool_use_id, response))
        orphan = self.orphans.pop(call.tool_use_id, None)
        if orphan is None:
            self.made.append(call)
            self.waiting[call.tool_use_id] = call
            return
        orphan.name, orphan.target, orphan.use_position = call.name, call.target, call.use_position
        self._note(orphan)

    def add_result(self, *, row: Message, block: Mapping[str, Any]) -> None:
        tool_use_id = _key(block["tool_use_id"])
        call = self.waiting.pop(tool_use_id, None)
        if call is None:
            call = ToolCall(session=self.session, tool_use_id=tool_use_id)
            self.made.append(call)
            self.orphans[tool_use_id] = call
        call.result_position = row.position
        call.result_tokens = estimate_block(block=block, family=tokenizer_family(self.session.model))
        call.is_error = block.get("is_error") is True
        self._note(call)

    def _note(self, call: ToolCall) -> None:
        if call.pk:
            self.changed.append(call)

    def save(self) -> None:
        ToolCall.objects.bulk_create(self.made)
        if self.changed:
            fields = ["name", "target", "use_position", "result_position", "result_tokens", "is_error"]
            ToolCall.objects.bulk_update(self.changed, fields)


def _mentioned(rows: Sequence[Message]) -> Iterator[str]:
    for row in rows:
        if row.role == Role.USER:
            yield from (_key(block["tool_use_id"]) for block in tool_results(row.content))
        elif row.role == Role.ASSISTANT:
            yield from (_key(block["id"]) for block in tool_uses(row.content))


def _stored_halves(*, session: Session, ids: set[str]) -> list[ToolCall]:
    if not ids:
        return []
    half = Q(use_position__isnull=True) | Q(result_position__isnull=True)
    return list(ToolCall.objects.filter(half, session=session, tool_use_id__in=ids).order_by("id"))


def _calls(*, session: Session, row: Message) -> Iterator[ToolCall]:
    for block in tool_uses(row.content):
        name = block.get("name")
        yield ToolCall(
            session=session,
            tool_use_id=_key(block["id"]),
            name=storable_text(name)[:NAME_LENGTH] if isinstance(name, str) else "",
            target=_target(block.get("input")),
            use_position=row.position,
        )


def _target(arguments: object) -> str:
    if not isinstance(arguments, Mapping):
        return ""
    for key in TARGET_KEYS:
        value = arguments.get(key)
        if isinstance(value, str):
            return storable_text(value)[:TARGET_LENGTH]
    return ""


def _key(tool_use_id: str) -> str:
    return storable_text(tool_use_id)[:ID_LENGTH]
