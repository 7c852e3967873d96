"""The tool-call index, kept up with each append at the cost of what is appended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from sessions_app.catalog import tokenizer_family
from sessions_app.models import Message, Session, ToolCall
from sessions_app.models.fields import storable_text
from sessions_app.transcript.messages import PATH_KEYS, Role, tool_results, tool_uses
from sessions_app.transcript.tokens import estimate_block

ID_LENGTH, NAME_LENGTH, TARGET_LENGTH = 255, 200, 1000  # the columns' sizes


@dataclass(frozen=True, slots=True)
class Response:
    """Where the last response began, and its API message id."""

    position: int
    message_id: str | None


def record(*, session: Session, rows: Sequence[Message], response: Response) -> None:
    """Index the calls and results of the new rows; each completes what is stored of the same call, if anything is.

    `response`: the one that was the last before these rows; they may be more entries of it.
    """
    index = _Index(session=session, rows=rows, response=response)
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

    def __init__(self, *, session: Session, rows: Sequence[Message], response: Response) -> None:
        self.session = session
        self.made: list[ToolCall] = []
        self.changed: list[ToolCall] = []
        self.written: set[tuple[str, str | int]] = set()  # some clients write a block of one response twice
        stored = _stored(session=session, ids=set(_mentioned(rows)), since=response.position)
        self.waiting = {call.tool_use_id: call for call in stored if call.result_position is None}
        self.orphans = {call.tool_use_id: call for call in stored if call.use_position is None}
        of_response = [call for call in stored if call.use_position and call.use_position >= response.position]
        self.answered = {call.tool_use_id for call in of_response if call.result_position is not None}
        if response.message_id:
            self.written = {(call.tool_use_id, response.message_id) for call in of_response}

    def add_use(self, call: ToolCall, *, response: str | int) -> None:
        if (call.tool_use_id, response) in self.written:
            return
        self.written.add((call.tool_use_id, response))
        self.answered.discard(call.tool_use_id)
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
        if call is None and tool_use_id in self.answered:
            return  # a repetition of a result that is known
        self.answered.add(tool_use_id)
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


def _stored(*, session: Session, ids: set[str], since: int) -> list[ToolCall]:
    """What is stored of these ids: halves of calls, and the calls of the last response. Never all uses of an id that a
    client gives to every call."""
    if not ids:
        return []
    wanted = Q(use_position__isnull=True) | Q(result_position__isnull=True) | Q(use_position__gte=max(since, 1))
    return list(ToolCall.objects.filter(wanted, session=session, tool_use_id__in=ids).order_by("id"))


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
    for key in PATH_KEYS:
        value = arguments.get(key)
        if isinstance(value, str):
            return storable_text(value)[:TARGET_LENGTH]
    return ""


def _key(tool_use_id: str) -> str:
    return storable_text(tool_use_id)[:ID_LENGTH]
