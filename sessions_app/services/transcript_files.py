"""What a transcript file holds, whatever its shape: sessions, each with its lines, read as they are asked for.

Shapes: a client's session file (`READERS`), a JSON object a line; chats (`CHAT_READERS`) as one JSON document, as one
conversation a line, or as one message a line; and an export of ours, a chat with the history in a field of ours. Memory
holds one line at a time, or one JSON document that is no longer than a line may be.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from types import ModuleType
from typing import IO, Any
from uuid import UUID

from sessions_app.models.fields import storable_text
from sessions_app.services.transcript_lines import Line, Progress, lines_of
from sessions_app.transcript.entries import LineProblem, NotThisFormat, ParsedLine, TranscriptMessage
from sessions_app.transcript.exported import mark_of
from sessions_app.transcript.formats import AUTO, CHAT_READERS, FORMATS, READERS
from sessions_app.transcript.history_items import HISTORY, MODEL, VERSION, BadItem, read_item, read_session
from sessions_app.transcript.json_values import DEEPEST, Unreadable, first_value, is_too_deep, whole_value

SNIFFED_LINES = 400  # lines looked at to tell the format; real files open with up to a few dozen side lines
HEAD_BYTES = 64 * 1024
NAME_LENGTH = 240  # of the 255 characters of an external id; the rest is for the number of a conversation
MARK_LINE = b'"compactionService":{"version":'  # how the second line of an export of ours begins
END_LINE = b"]}}"
BLANK = b"\xef\xbb\xbf \t\r\n"
# What we wrote may be nested by these more levels: the original stands within an item of an export.
LEVELS_OF_EXPORT = 12

Read = tuple[Sequence[ParsedLine], int]  # what a line holds, and its size in bytes


class ImportRefused(Exception):
    """The file as a whole can't be imported; the message is one line for a person. Nothing was stored."""


@dataclass(frozen=True, slots=True)
class FoundSession:
    """One session of a file. `known_as`: the id that it is looked up by; `columns`: what it is made with where it is
    new; `reader`: the module that read it, where that is asked again; `is_ours`: whether its lines restore a history,
    and nothing is to be concluded from them."""

    known_as: str
    columns: Mapping[str, Any]
    lines: Iterable[Read]
    reader: ModuleType | None = None
    is_ours: bool = False


def sessions_in(
    *, stream: IO[bytes], name: str, format_name: str, limit: int, progress: Progress | None = None
) -> Iterator[FoundSession | LineProblem]:
    """The sessions of a file, one after the other, and what of it is none. `stream` is seekable; `limit`: bytes of a
    line, and of a document that spans lines.

    Raises ImportRefused with what is wrong: empty, binary, not JSON, unknown.
    """
    if format_name not in FORMATS:
        raise ImportRefused(f"format {format_name!r} is not known; known are {', '.join(FORMATS)}")
    _refuse_what_is_no_text(stream)
    file = _File(stream=stream, name=name, limit=limit, progress=progress)
    if format_name not in READERS and (head := _head_of_export(file)) is not None:
        return iter([_export(file, head)])
    sniffed = _sniffed(file)
    reader = READERS.get(format_name) or (_reader_of(sniffed) if format_name == AUTO else None)
    if reader is not None:
        return iter([_session_file(file, reader)])
    return _chats(file, sniffed, _Chats(readers=_chat_readers(format_name), is_chosen=format_name != AUTO))


@dataclass(frozen=True, slots=True)
class _File:
    stream: IO[bytes]
    name: str
    limit: int
    progress: Progress | None

    @property
    def stem(self) -> str:
        return storable_text(PurePath(self.name).stem)

    def lines(self, *, told: bool = False) -> Iterator[Line]:
        """From the beginning. `told`: this is the reading that counts as progress."""
        return lines_of(stream=self.stream, limit=self.limit, progress=self.progress if told else None)


def _refuse_what_is_no_text(stream: IO[bytes]) -> None:
    stream.seek(0)
    head = stream.read(HEAD_BYTES)
    if not head.strip(BLANK):
        raise ImportRefused("the file is empty")
    if b"\x00" in head:
        raise ImportRefused("a binary file, not a transcript")


# A client's session file


def _sniffed(file: _File) -> list[Any]:
    """The JSON values with which the first lines begin, as far as a line's limit reaches."""
    values: list[Any] = []
    size = 0
    for line in itertools.islice(file.lines(), SNIFFED_LINES):
        size += len(line.raw)
        if size > file.limit and values:
            break
        try:
            values.append(first_value(text=line.raw.decode("utf-8", "replace").lstrip("\ufeff \t"))[0])
        except Unreadable:
            continue
    return values


def _reader_of(sniffed: Sequence[Any]) -> ModuleType | None:
    objects = [value for value in sniffed if isinstance(value, Mapping)]
    return next((reader for reader in READERS.values() if reader.recognizes(objects=objects)), None)


def _session_file(file: _File, reader: ModuleType) -> FoundSession:
    def read(line: Line) -> Read:
        fault = line.fault()
        parsed = [fault] if fault else list(reader.read_line(text=line.raw.decode(), line_number=line.number))
        return parsed, len(line.raw)

    return FoundSession(
        known_as=_named_in(file, reader),
        columns={"source": reader.NAME},
        lines=(read(line) for line in file.lines(told=True)),
        reader=reader,
    )


def _named_in(file: _File, reader: ModuleType) -> str:
    """The session's id: the file's name where that is one (clients name the file so), else the last id in it.

    The first lines of a continued session may carry the id of the session before it.
    """
    try:
        return str(UUID(file.stem))
    except ValueError:
        pass
    last = None
    for line in file.lines():
        last = reader.session_id_of(line=line.raw) or last
    return storable_text(last or file.stem)[:255]


# An export of ours


def _head_of_export(file: _File) -> bytes | None:
    """The second line of an export of ours; the first is the context, which its history gives again. None for any
    other file."""
    first, second = next(file.lines()), None
    if first.raw.lstrip(BLANK).startswith(b"{") and (first.too_long or first.raw.rstrip().endswith(b",")):
        second = next(itertools.islice(file.lines(), 1, 2), None)
    return second.raw if second and not second.too_long and second.raw.startswith(MARK_LINE) else None


def _export(file: _File, head: bytes) -> FoundSession:
    value = _value(b"{" + head.rstrip() + END_LINE, line_number=2)
    if isinstance(value, LineProblem):
        raise ImportRefused(f"an export whose second line can't be read: {value.reason}")
    known_as, columns = _session_told(mark_of(value))
    return FoundSession(known_as=known_as, columns=columns, lines=_history_lines(file), is_ours=True)


def _session_told(mark: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    version = mark.get("version")
    if version != VERSION or isinstance(version, bool):
        raise ImportRefused(f"an export of a version that is not known here; known is {VERSION}")
    try:
        return read_session(value=mark.get("session"))
    except BadItem as bad:
        raise ImportRefused(f"an export whose session can't be read: {bad}") from bad


def _history_lines(file: _File) -> Iterator[Read]:
    has_ended = False
    number = 0
    for line in file.lines(told=True):
        number = line.number
        if number <= 2 or line.is_blank:
            continue
        if has_ended:
            yield [LineProblem(line_number=number, reason="stands behind the end of the export")], len(line.raw)
        elif line.raw.strip() == END_LINE:
            has_ended = True
        else:
            yield [line.fault() or _history_item(line)], len(line.raw)
    if not has_ended:
        yield [LineProblem(line_number=number, reason="the export ends before its last line; what is there is kept")], 0


def _history_item(line: Line) -> ParsedLine:
    value = _value(line.raw.strip().removesuffix(b","), line_number=line.number, deepest=DEEPEST + LEVELS_OF_EXPORT)
    return value if isinstance(value, LineProblem) else read_item(value=value, line_number=line.number)


def _value(raw: bytes, *, line_number: int, deepest: int | None = None) -> Any | LineProblem:
    """The one JSON value that stands there, or why it can't be told. `deepest`: its levels; else by what it is."""
    try:
        text = raw.decode("utf-8")
        value = whole_value(text=text, deepest=deepest or DEEPEST + LEVELS_OF_EXPORT)
        if deepest is None and not _is_export(value) and is_too_deep(value=value, text=text):
            raise Unreadable("nested too deeply")
    except UnicodeDecodeError as error:
        return LineProblem(line_number=line_number, reason=f"not UTF-8 at byte {error.start}")
    except Unreadable as why:
        return LineProblem(line_number=line_number, reason=str(why))
    return value


def _line_value(line: Line) -> Any | LineProblem:
    return line.fault() or _value(line.raw, line_number=line.number)


# Chats


def _chat_readers(format_name: str) -> list[ModuleType]:
    return list(CHAT_READERS.values()) if format_name == AUTO else [CHAT_READERS[format_name]]


@dataclass(frozen=True, slots=True)
class _Chats:
    """Which formats come into question. `is_chosen`: somebody has named the one."""

    readers: Sequence[ModuleType]
    is_chosen: bool

    def reader_of(self, value: object) -> ModuleType | None:
        found = next((reader for reader in self.readers if reader.recognizes_document(value=value)), None)
        return found or (self.readers[0] if self.is_chosen else None)

    def recognizes(self, value: object) -> bool:
        return _is_export(value) or any(reader.recognizes_document(value=value) for reader in self.readers)

    def is_message(self, value: object) -> bool:
        return any(reader.is_message(value=value) for reader in self.readers)


def _is_export(value: object) -> bool:
    return isinstance(value, Mapping) and HISTORY in mark_of(value)


def _chats(file: _File, sniffed: Sequence[Any], chats: _Chats) -> Iterator[FoundSession | LineProblem]:
    """By the shape of the file: its first line is a whole value, or the beginning of a document that spans lines."""
    first = next((line for line in file.lines() if not line.is_blank), None)
    document: Any | LineProblem | None = None
    if first is not None and isinstance(_line_value(first), LineProblem):
        document = _document(file)
        if not isinstance(document, LineProblem):
            return _one_document(file, document, chats)
    messages = [one for one in sniffed if chats.is_message(one)]
    if messages and len(messages) * 2 > len(sniffed):
        return iter([_message_file(file, chats, messages)])
    if any(chats.recognizes(one) for value in sniffed for one in _each_of(value, chats)) or (
        chats.is_chosen and document is None
    ):
        return _named(file.stem, _line_values(file), chats)
    raise ImportRefused(_why_none(sniffed, document))


def _why_none(sniffed: Sequence[Any], document: LineProblem | None) -> str:
    if document is not None and document.line_number == 0:
        return document.reason
    if not any(isinstance(one, (Mapping, list)) for one in sniffed):
        return "no line of it is a JSON object"
    why = f"none of the known transcript formats ({', '.join(name for name in FORMATS if name != AUTO)})"
    return f"{why}; as one document: {document.reason}" if document else why


def _document(file: _File) -> Any | LineProblem:
    """The file as one JSON value. The problem of one that is too long has line number 0: no line of it was read."""
    file.stream.seek(0)
    data = file.stream.read(file.limit + 1)
    if len(data) > file.limit and data.lstrip(BLANK)[:1] in (b"{", b"["):
        reason = f"one JSON document longer than {file.limit:,} bytes (policy: import_line_bytes)"
        return LineProblem(line_number=0, reason=reason)
    return _value(data, line_number=1)


def _one_document(file: _File, value: Any, chats: _Chats) -> Iterator[FoundSession | LineProblem]:
    if chats.is_message(value):
        value = [value]
    if not chats.is_chosen and not any(chats.recognizes(one) for one in _each_of(value, chats)):
        raise ImportRefused(_why_none([value], None))
    size = file.stream.seek(0, 2)
    if file.progress:
        file.progress(size)
    return _named(file.stem, iter([(1, value, size)]), chats)


def _each_of(value: Any, chats: _Chats) -> list[Any]:
    """The conversations of an array of them; anything else is one itself."""
    several = isinstance(value, list) and not chats.recognizes(value) and any(map(chats.recognizes, value))
    return value if several else [value]


def _line_values(file: _File) -> Iterator[tuple[int, Any, int]]:
    for line in file.lines(told=True):
        if not line.is_blank:
            yield line.number, _line_value(line), len(line.raw)


def _named(stem: str, values: Iterator[tuple[int, Any, int]], chats: _Chats) -> Iterator[FoundSession | LineProblem]:
    """The conversations, by the file's name; where there are several values, by that and their number."""
    each = (
        (line_number, one, size // len(found))
        for line_number, value, size in values
        for found in [_each_of(value, chats)]
        for one in found
    )
    first_two = list(itertools.islice(each, 2))
    several = len(first_two) > 1
    for number, (line_number, value, size) in enumerate(itertools.chain(first_two, each), start=1):
        known_as = f"{stem[:NAME_LENGTH]}#{number}" if several else stem[:255]
        yield from _conversation(value, line_number=line_number, size=size, known_as=known_as, chats=chats)


def _conversation(
    value: Any, *, line_number: int, size: int, known_as: str, chats: _Chats
) -> Iterator[FoundSession | LineProblem]:
    if isinstance(value, LineProblem):
        yield value
        return
    if _is_export(value):
        yield _export_document(mark_of(value), line_number=line_number, size=size)
        return
    reader = chats.reader_of(value)
    try:
        if reader is None:
            raise NotThisFormat("no conversation of a known format")
        told = reader.read_document(value=value, line_number=line_number)
    except NotThisFormat as why:
        yield LineProblem(line_number=line_number, reason=str(why))
        return
    if not any(isinstance(item, TranscriptMessage) for item in told.items):
        yield from (item for item in told.items if isinstance(item, LineProblem))
        yield LineProblem(line_number=line_number, reason="a conversation without a message")
        return
    columns = _columns(told.session, reader)
    yield FoundSession(known_as=known_as, columns=columns, lines=_shared_out(told.items, size))


def _columns(told: Mapping[str, Any], reader: ModuleType) -> dict[str, Any]:
    model = storable_text(told.get("model") or "")[:MODEL]
    return {**told, "model": model, "source": reader.NAME}


def _export_document(mark: Mapping[str, Any], *, line_number: int, size: int) -> FoundSession:
    """An export of ours that somebody has laid out anew: one value, in memory."""
    history = mark[HISTORY]
    if not isinstance(history, list):
        raise ImportRefused("an export whose history is no list")
    known_as, columns = _session_told(mark)
    items = [read_item(value=item, line_number=line_number) for item in history]
    return FoundSession(known_as=known_as, columns=columns, lines=_shared_out(items, size), is_ours=True)


def _shared_out(items: Sequence[ParsedLine], size: int) -> Iterator[Read]:
    """Each by itself, with its share of the size: a batch ends by size too."""
    share = size // max(len(items), 1)
    return (([item], share) for item in items)


def _message_file(file: _File, chats: _Chats, messages: Sequence[Any]) -> FoundSession:
    """One message a line. A system prompt that leads is the session's, as in a document."""
    reader = chats.reader_of(messages) or chats.readers[0]
    values = _line_values(file)
    leading: list[Any] = []
    rest: Iterator[tuple[int, Any, int]] = values
    for one in values:
        if not (isinstance(one[1], Mapping) and one[1].get("role") in ("system", "developer")):
            rest = itertools.chain([one], values)
            break
        leading.append(one[1])
    told: Mapping[str, Any] = reader.read_document(value=leading, line_number=1).session if leading else {}
    columns = _columns(told, reader)
    return FoundSession(known_as=file.stem[:255], columns=columns, lines=_message_lines(rest, reader))


def _message_lines(values: Iterator[tuple[int, Any, int]], reader: ModuleType) -> Iterator[Read]:
    """Each hangs on the one before."""
    ordinal, parent = 0, None
    for line_number, value, size in values:
        if isinstance(value, LineProblem):
            yield [value], size
        elif not reader.is_message(value=value):
            yield [LineProblem(line_number=line_number, reason="no message")], size
        else:
            ordinal += 1
            item: ParsedLine = reader.read_message(value=value, line_number=line_number, ordinal=ordinal)
            if isinstance(item, TranscriptMessage):
                item = replace(item, parent_uuid=parent)
                parent = item.uuid
            yield [item], size
