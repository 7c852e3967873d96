"""One content block to what its template needs. An unknown type is shown as JSON, never dropped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from django.utils.safestring import SafeString

from compaction_app.admin.cells import place_url
from compaction_app.admin.rendering.calls import CallIndex, headline
from compaction_app.admin.rendering.diff import Diff, diffs_of
from compaction_app.admin.rendering.images import ImageBlock, image_block
from compaction_app.admin.rendering.markdown import MOST_CHARS, markdown_html
from compaction_app.admin.rendering.text import Fold, bytes_text, fold, has_escapes, one_line, pretty_json
from sessions_app.models import ToolCall
from sessions_app.transcript.messages import ContentBlock, content_blocks


@dataclass(frozen=True, slots=True)
class MarkdownBlock:
    template: ClassVar[str] = "compaction_app/admin/blocks/markdown.html"
    html: SafeString


@dataclass(frozen=True, slots=True)
class PlainBlock:
    """Text that is shown as it is: terminal output, markup, and what is too long for Markdown."""

    template: ClassVar[str] = "compaction_app/admin/blocks/plain.html"
    fold: Fold


@dataclass(frozen=True, slots=True)
class ThinkingBlock:
    """`html` is empty when the API gave no text; `note` then says why."""

    template: ClassVar[str] = "compaction_app/admin/blocks/thinking.html"
    html: SafeString
    note: str


@dataclass(frozen=True, slots=True)
class JsonBlock:
    template: ClassVar[str] = "compaction_app/admin/blocks/json.html"
    title: str
    fold: Fold


@dataclass(frozen=True, slots=True)
class ClearedMark:
    """How a result is kept from the model, in words, and the page of the boundary that cleared it."""

    how: str
    url: str


@dataclass(frozen=True, slots=True)
class ResultPart:
    """A call's result as it stands under the call. `cleared`: set where the model is not shown it any more."""

    blocks: tuple[RenderedBlock, ...]
    position: int
    url: str
    tokens: int
    is_error: bool
    cleared: ClearedMark | None


@dataclass(frozen=True, slots=True)
class CallBlock:
    template: ClassVar[str] = "compaction_app/admin/blocks/call.html"
    name: str
    headline: str
    input: Fold
    diffs: tuple[Diff, ...]
    result: ResultPart | None
    note: str


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """Stands where a result came in; the result itself is under its call."""

    template: ClassVar[str] = "compaction_app/admin/blocks/answer.html"
    name: str
    position: int
    url: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class OrphanResult:
    """A result whose call is not stored."""

    template: ClassVar[str] = "compaction_app/admin/blocks/orphan.html"
    result: ResultPart


RenderedBlock = (
    MarkdownBlock | PlainBlock | ThinkingBlock | JsonBlock | CallBlock | AnswerRow | OrphanResult | ImageBlock
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the block stands, and what is known around it."""

    session_id: int
    position: int
    calls: CallIndex
    cleared: Mapping[str, ClearedMark]


def render_block(*, block: ContentBlock, place: Place) -> RenderedBlock:
    kind = block.get("type") if isinstance(block, Mapping) else None
    renderer = _RENDERERS.get(kind) if isinstance(kind, str) else None
    return (renderer(block, place) if renderer else None) or _json(block)


def render_text(text: str) -> MarkdownBlock | PlainBlock:
    """Markdown, unless it is markup (command output in tags), terminal output, or very long."""
    if has_escapes(text) or text.lstrip().startswith("<") or len(text) > MOST_CHARS:
        return PlainBlock(fold=fold(text))
    return MarkdownBlock(html=markdown_html(text))


def _text(block: ContentBlock, place: Place) -> RenderedBlock | None:
    text = block.get("text")
    return render_text(text) if isinstance(text, str) else None


def _thinking(block: ContentBlock, place: Place) -> RenderedBlock | None:
    text = block.get("thinking")
    if not isinstance(text, str) or not text.strip():
        return ThinkingBlock(html=SafeString(""), note="hidden by the API")
    return ThinkingBlock(html=markdown_html(text[:MOST_CHARS]), note="")


def _redacted_thinking(block: ContentBlock, place: Place) -> RenderedBlock | None:
    data = block.get("data")
    size = bytes_text(len(data)) if isinstance(data, str) else "no data"
    return ThinkingBlock(html=SafeString(""), note=f"encrypted by the API ({size})")


def _image(block: ContentBlock, place: Place) -> RenderedBlock | None:
    return image_block(block)


def _call(block: ContentBlock, place: Place) -> RenderedBlock | None:
    tool_input = block.get("input")
    tool_use_id = block.get("id")
    call = place.calls.call_at(position=place.position, tool_use_id=str(tool_use_id))
    found = place.calls.result_of(call) if call else None
    result = _result(found, call=call, place=place) if call and found else None
    return CallBlock(
        name=one_line(str(block.get("name") or "a tool"), limit=100),
        headline=headline(tool_input),
        input=fold(pretty_json(tool_input)),
        diffs=diffs_of(tool_input) if isinstance(tool_input, Mapping) else (),
        result=result,
        note="" if result or block.get("type") != "tool_use" else "no result is stored",
    )


def _answer(block: ContentBlock, place: Place) -> RenderedBlock | None:
    call = place.calls.call_answered_at(position=place.position, tool_use_id=str(block.get("tool_use_id")))
    if call is None or call.use_position is None:
        return OrphanResult(result=_result(block, call=call, place=place))
    return AnswerRow(
        name=one_line(call.name, limit=100),
        position=call.use_position,
        url=place_url(session_id=place.session_id, position=call.use_position),
        is_error=call.is_error,
    )


def _result(block: ContentBlock, *, call: ToolCall | None, place: Place) -> ResultPart:
    position = (call.result_position if call else None) or place.position
    return ResultPart(
        blocks=tuple(_result_blocks(block, place)),
        position=position,
        url=place_url(session_id=place.session_id, position=position),
        tokens=call.result_tokens if call else 0,
        is_error=call.is_error if call else block.get("is_error") is True,
        cleared=place.cleared.get(str(block.get("tool_use_id"))),
    )


def _result_blocks(block: ContentBlock, place: Place) -> Sequence[RenderedBlock]:
    """Text as it is (it is output, not Markdown), images as images, the rest as JSON."""
    content = block.get("content")
    if not isinstance(content, (str, list)):
        return [] if content is None else [_json({"type": "content", "value": content})]
    shown: list[RenderedBlock] = []
    for part in content_blocks(content):
        text = part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None
        if isinstance(text, str):
            shown.append(PlainBlock(fold=fold(text)))
        elif isinstance(part, Mapping) and part.get("type") == "image":
            shown.append(image_block(part))
        else:
            shown.append(_json(part))
    return shown


def _json(block: Any) -> JsonBlock:
    kind = block.get("type") if isinstance(block, Mapping) else None
    return JsonBlock(title=one_line(str(kind or "block without a type"), limit=100), fold=fold(pretty_json(block)))


_RENDERERS: dict[str, Callable[[ContentBlock, Place], RenderedBlock | None]] = {
    "text": _text,
    "thinking": _thinking,
    "redacted_thinking": _redacted_thinking,
    "image": _image,
    "tool_use": _call,
    "server_tool_use": _call,
    "tool_result": _answer,
}
