"""Token estimates without a tokenizer, and the context's size from the last real usage.

No public tokenizer exists for these models. A text's surface features (words, digits, symbols, line breaks, scripts)
are counted and weighted; the weights are fitted on the usage that recorded sessions report, one table per tokenizer
family (token_weights.py; docs/token-estimation.md has the measured errors). All results are in tokens.

Content comes from clients, so nothing here trusts its shape: what is not as documented is counted as JSON, and what
cannot be written as JSON by its length. No content raises.
"""

from __future__ import annotations

import base64
import binascii
import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sessions_app.catalog import TokenizerFamily
from sessions_app.transcript.messages import Content, ContentBlock, Role, Usage
from sessions_app.transcript.token_weights import FEATURES, SCRIPTS, WEIGHTS

Counts = list[float]

# --- Features of a text -----------------------------------------------------------------------------------------

# The text is put into classes with one `bytes.translate`: each byte becomes one bit that names its class. As one big
# integer, "a letter after four letters" is a shift and an AND over the whole chunk; a loop over characters would be
# fifty times slower.
_LOWER, _UPPER, _DIGIT, _SYMBOL, _NEWLINE, _BLANK, _CONTROL, _OTHER = range(8)


def _class_of(code: int) -> int:
    char = chr(code)
    if "a" <= char <= "z":
        return _LOWER
    if "A" <= char <= "Z":
        return _UPPER
    if "0" <= char <= "9":
        return _DIGIT
    if char in " \t":
        return _BLANK
    if char == "\n":
        return _NEWLINE
    # "?" stands for a character outside ASCII once the text is encoded (see count_text).
    if char == "?" or code > 127:
        return _OTHER
    return _SYMBOL if char.isprintable() else _CONTROL


_CLASSES = bytes(1 << _class_of(code) for code in range(256))
# Bounds the memory, and keeps the integers inside the processor's cache. A cut costs at most a token or two.
CHUNK_CHARS = 1 << 15
_FIRST_BITS = int.from_bytes(b"\x01" * CHUNK_CHARS, "little")

# Upper byte of a UTF-16 unit -> 1 + the script's index in SCRIPTS; 0: not counted. Ranges are inclusive. Page 0 holds
# ASCII and Latin-1 both, so Latin is what remains of all characters outside ASCII.
_PAGES: tuple[tuple[int, int, str], ...] = (
    (0x01, 0x02, "latin"),
    (0x03, 0x03, "greek"),
    (0x04, 0x04, "cyrillic"),
    (0x05, 0x05, "hebrew"),
    (0x06, 0x08, "arabic"),
    (0x09, 0x0D, "indic"),
    (0x0E, 0x0F, "thai"),
    (0x10, 0x10, "indic"),
    (0x11, 0x11, "hangul"),
    (0x12, 0x1D, "other"),
    (0x1E, 0x1E, "latin"),
    (0x1F, 0x1F, "greek"),
    (0x20, 0x20, "punctuation"),
    (0x21, 0x21, "arrow"),
    (0x22, 0x24, "symbol_sign"),
    (0x25, 0x25, "box"),
    (0x26, 0x2B, "symbol_sign"),
    (0x2C, 0x2F, "other"),
    (0x30, 0x30, "kana"),
    (0x31, 0x31, "hangul"),
    (0x32, 0x33, "kana"),
    (0x34, 0x9F, "han"),
    (0xA0, 0xA8, "other"),
    (0xA9, 0xA9, "hangul"),
    (0xAA, 0xAB, "other"),
    (0xAC, 0xD7, "hangul"),
    (0xD8, 0xDB, "emoji"),  # first half of a pair: nearly always a pictograph
    (0xE0, 0xF8, "other"),
    (0xF9, 0xFA, "han"),
    (0xFB, 0xFD, "arabic"),
    (0xFE, 0xFE, "selector"),
    (0xFF, 0xFF, "kana"),  # full-width forms
)


def _page_table() -> bytes:
    table = bytearray(256)
    for first, last, script in _PAGES:
        for page in range(first, last + 1):
            table[page] = 1 + SCRIPTS.index(script)
    return bytes(table)


_SCRIPT_OF_PAGE = _page_table()
_UNCOUNTED_PAGES = bytes(page for page in range(256) if not _SCRIPT_OF_PAGE[page])
_AT = {name: index for index, name in enumerate(FEATURES)}
_FIRST_SCRIPT = _AT[SCRIPTS[0]]
_LATIN = _AT["latin"]


def count_text(*, text: str, counts: Counts) -> None:
    """Add the features of `text` to `counts` (in the order of FEATURES). Linear in the text."""
    for start in range(0, len(text), CHUNK_CHARS):
        chunk = text[start : start + CHUNK_CHARS] if len(text) > CHUNK_CHARS else text
        if not chunk.isascii():
            _count_scripts(chunk, counts)
        # Encoding writes "?" for whatever is not ASCII; a real one is a symbol like "!".
        _count_surface(chunk.replace("?", "!").encode("ascii", "replace"), counts)


def _count_surface(chunk: bytes, counts: Counts) -> None:
    bits = int.from_bytes(chunk.translate(_CLASSES), "little")
    mask = _FIRST_BITS
    lower, upper = bits & mask, bits >> _UPPER & mask
    digit, symbol = bits >> _DIGIT & mask, bits >> _SYMBOL & mask
    newline, blank = bits >> _NEWLINE & mask, bits >> _BLANK & mask
    # A shift by 8 moves the text by one character: `x & y << 8` is every x that has a y just before it.
    letter = lower | upper
    second = letter & letter << 8
    start = letter ^ second
    fourth = second & second << 16
    fifth = fourth & letter << 32
    blank_again = blank & blank << 8
    for name, found in (
        ("word", start),
        ("letter_past_4", fifth),
        ("letter_past_8", fifth & fifth << 32),
        ("case_change", upper & lower << 8),
        ("upper_again", upper & upper << 8),
        ("digit", digit),
        ("digit_run", digit & ~(digit << 8)),
        ("symbol", symbol),
        ("symbol_run", symbol & ~(symbol << 8)),
        ("newline", newline),
        ("newline_run", newline & ~(newline << 8)),
        ("blank_run", blank ^ blank_again),
        ("blank_again", blank_again),
        ("indent", blank_again & ~(blank_again << 8)),
        ("glued_word", start & (symbol | digit) << 8),
        ("digit_after_blank", digit & blank << 8),
        ("control", bits >> _CONTROL & mask),
        ("latin", bits >> _OTHER & mask),  # all that is not ASCII; _count_scripts takes the other scripts off
    ):
        counts[_AT[name]] += found.bit_count()


def _count_scripts(chunk: str, counts: Counts) -> None:
    pages = chunk.encode("utf-16-le", "surrogatepass")[1::2].translate(_SCRIPT_OF_PAGE, _UNCOUNTED_PAGES)
    for index in range(len(SCRIPTS)):
        if index + _FIRST_SCRIPT == _LATIN:
            continue
        found = pages.count(index + 1)
        if found:
            counts[_FIRST_SCRIPT + index] += found
            counts[_LATIN] -= found


# --- Blocks -----------------------------------------------------------------------------------------------------

# Characters of a signature that hold no thinking: where the line through hidden thinking (real output_tokens less the
# estimate of the reply's other blocks) against the signature's length meets zero; 27 and 189 replies of the sample.
_SEAL_CHARS = {TokenizerFamily.UNTIL_OPUS_4_6: 350, TokenizerFamily.FROM_OPUS_4_7: 220}

# Image figures, in tokens (facts: Anthropic API, section 13). Older models: width * height / 750, at most about
# 1,600. Newer: 256x256 = 177 and 1024x1024 = 1,446 lie on 92 + pixels / 775; large ones end between 3,000 and 4,000.
_IMAGE = {
    TokenizerFamily.UNTIL_OPUS_4_6: (0, 750, 1_600),
    TokenizerFamily.FROM_OPUS_4_7: (92, 775, 3_500),
}
# An image whose size cannot be read (an URL, a file id, an unknown format): about one megapixel.
UNKNOWN_IMAGE_TOKENS = 1_500
# A PDF page is sent as its text and as a picture: 1,500 to 3,000 tokens of text (public PDF documentation), and
# an image. Pages that cannot be counted are taken to be 60,000 bytes each; a request holds 600 at most.
PDF_PAGE_TOKENS = 3_000
PDF_PAGE_BYTES = 60_000
PDF_MOST_PAGES = 600
_PDF_LOOK_CHARS = 8_000_000
_PDF_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_PDF_COUNT = re.compile(rb"/Count\s+(\d{1,4})(?!\d)")
# A result holds blocks, which may hold blocks; nothing real is deeper.
_DEEPEST = 4


def count_block(*, block: object, family: TokenizerFamily) -> Counts:
    """The features of one content block, in the order of FEATURES. Also what the weights are fitted on."""
    counts: Counts = [0.0] * len(FEATURES)
    _count_block(block, counts, family, 0)
    return counts


def _count_block(block: object, counts: Counts, family: TokenizerFamily, depth: int) -> None:
    if isinstance(block, str):
        count_text(text=block, counts=counts)
        return
    kind = block.get("type") if isinstance(block, Mapping) else None
    count = _BY_TYPE.get(kind) if isinstance(kind, str) else None
    if isinstance(block, Mapping) and count is not None and depth < _DEEPEST:
        count(block, counts, family, depth)
    else:
        count_text(text=_as_json(block), counts=counts)


def _count_text_block(block: ContentBlock, counts: Counts, family: TokenizerFamily, depth: int) -> None:
    counts[_AT["text_block"]] += 1
    _count_value(block.get("text"), counts)


def _count_thinking(block: ContentBlock, counts: Counts, family: TokenizerFamily, depth: int) -> None:
    text, signature = block.get("thinking"), block.get("signature")
    counts[_AT["thinking_block"]] += 1
    _count_value(text, counts)
    if isinstance(signature, str):
        # Newer clients keep only the signature, which is the encrypted thinking: its length tells the hidden text's.
        if text:
            counts[_AT["signature_beside_text"]] += len(signature)
        else:
            counts[_AT["sealed_char"]] += _sealed_chars(signature, family)


def _sealed_chars(sealed: str, family: TokenizerFamily) -> int:
    return max(0, len(sealed) - _SEAL_CHARS[family])


def _count_redacted(block: ContentBlock, counts: Counts, family: TokenizerFamily, depth: int) -> None:
    counts[_AT["thinking_block"]] += 1
    data = block.get("data")
    if isinstance(data, str):
        counts[_AT["sealed_char"]] += _sealed_chars(data, family)
    else:
        _count_value(data, counts)


def _count_tool_use(block: ContentBlock, counts: Counts, family: TokenizerFamily, depth: int) -> None:
    counts[_AT["tool_use"]] += 1
    _count_value(block.get("name"), counts)
    arguments = block.get("input")
    if not isinstance(arguments, Mapping):
        _count_value(arguments, counts)
        return
    # Measured: arguments cost what they cost as plain text under their name, not as one JSON string with escapes.
    counts[_AT["tool_argument"]] += len(arguments)
    parts = [part for pair in arguments.items() for part in pair]
    count_text(text="\n".join(part if isinstance(part, str) else _as_json(part) for part in parts), counts=counts)


def _count_tool_result(block: ContentBlock, counts: Counts, family: TokenizerFamily, depth: int) -> None:
    counts[_AT["tool_result"]] += 1
    content = block.get("content")
    if isinstance(content, Sequence) and not isinstance(content, (str, bytes)):
        # A text inside a result has no wrapping of its own: the result's constant covers it.
        for item in content:
            text = item.get("text") if isinstance(item, Mapping) and item.get("type") == "text" else None
            if isinstance(text, str):
                count_text(text=text, counts=counts)
            else:
                _count_block(item, counts, family, depth + 1)
    else:
        _count_value(content, counts)


def _count_image(block: ContentBlock, counts: Counts, family: TokenizerFamily, depth: int) -> None:
    source = block.get("source")
    data = source.get("data") if isinstance(source, Mapping) else None
    size = image_size(data=data) if isinstance(data, str) else None
    counts[_AT["media_token"]] += _image_tokens(size, family)


def _image_tokens(size: tuple[int, int] | None, family: TokenizerFamily) -> float:
    if size is None:
        return UNKNOWN_IMAGE_TOKENS
    base, pixels_per_token, most = _IMAGE[family]
    return min(most, base + size[0] * size[1] / pixels_per_token)


def _count_document(block: ContentBlock, counts: Counts, family: TokenizerFamily, depth: int) -> None:
    for key in ("title", "context"):
        if block.get(key):
            _count_value(block[key], counts)
    source = block.get("source")
    kind = source.get("type") if isinstance(source, Mapping) else None
    if not isinstance(source, Mapping) or kind not in ("base64", "text", "content"):
        counts[_AT["media_token"]] += PDF_PAGE_TOKENS
    elif kind == "base64":
        data = source.get("data")
        counts[_AT["media_token"]] += PDF_PAGE_TOKENS * (pdf_pages(data=data) if isinstance(data, str) else 1)
    else:
        _count_parts(source.get("data" if kind == "text" else "content"), counts, family, depth)


def _count_search_result(block: ContentBlock, counts: Counts, family: TokenizerFamily, depth: int) -> None:
    counts[_AT["text_block"]] += 1
    for key in ("title", "source"):
        _count_value(block.get(key), counts)
    _count_parts(block.get("content"), counts, family, depth)


def _count_compaction(block: ContentBlock, counts: Counts, family: TokenizerFamily, depth: int) -> None:
    counts[_AT["text_block"]] += 1
    _count_parts(block.get("content"), counts, family, depth)


def _count_parts(content: object, counts: Counts, family: TokenizerFamily, depth: int) -> None:
    if isinstance(content, Sequence) and not isinstance(content, (str, bytes)):
        for item in content:
            _count_block(item, counts, family, depth + 1)
    else:
        _count_value(content, counts)


def _count_value(value: object, counts: Counts) -> None:
    if value is not None:
        count_text(text=value if isinstance(value, str) else _as_json(value), counts=counts)


# Types that are not here (results of server tools among them) count as their JSON.
_BY_TYPE: dict[str, Callable[[ContentBlock, Counts, TokenizerFamily, int], None]] = {
    "text": _count_text_block,
    "thinking": _count_thinking,
    "redacted_thinking": _count_redacted,
    "tool_use": _count_tool_use,
    "server_tool_use": _count_tool_use,
    "mcp_tool_use": _count_tool_use,
    "tool_result": _count_tool_result,
    "mcp_tool_result": _count_tool_result,
    "image": _count_image,
    "document": _count_document,
    "search_result": _count_search_result,
    "compaction": _count_compaction,
}


# --- JSON of any shape ------------------------------------------------------------------------------------------


def _as_json(value: object) -> str:
    """The value as JSON; a value that JSON cannot hold (too deep, cyclic, huge numbers) as its strings joined."""
    try:
        return json.dumps(value, ensure_ascii=False, skipkeys=True, default=_plain)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return "\n".join(_strings_in(value))


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, (set, frozenset, Sequence)) and not isinstance(value, bytes) else "?"


def _strings_in(value: object) -> Iterable[str]:
    """The strings and numbers in `value`, without recursion; each container once, so that a cycle ends."""
    waiting, seen = [value], set[int]()
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, int):
            # Digits only as many as the number has; writing them out costs quadratic time.
            yield "0" * (1 + item.bit_length() * 3 // 10)
        elif isinstance(item, (Mapping, list, tuple, set, frozenset)) and id(item) not in seen:
            seen.add(id(item))
            waiting.extend(item)
            if isinstance(item, Mapping):
                waiting.extend(item.values())
        else:
            yield "?"


# --- Sizes of media ---------------------------------------------------------------------------------------------

# Base64 characters, multiples of four. A PNG, GIF or WebP states its size at once; a JPEG after its metadata,
# which may hold a preview of up to 64 KB per segment.
_HEAD_CHARS = 64
_JPEG_HEAD_CHARS = 400_000
_LARGEST_SIDE = 65_535
# Start-of-frame markers carry the size; C4, C8 and CC in that range are tables.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def image_size(*, data: str) -> tuple[int, int] | None:
    """Width and height in pixels, from the head of a base64 PNG, GIF, WebP or JPEG; None when they cannot be read."""
    head = _decoded(data[:_HEAD_CHARS])
    size: tuple[int, int] | None = None
    if head.startswith(b"\x89PNG\r\n\x1a\n") and len(head) >= 24:
        size = int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    elif head[:6] in (b"GIF87a", b"GIF89a") and len(head) >= 10:
        size = int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    elif head[:4] == b"RIFF" and head[8:12] == b"WEBP" and len(head) >= 30:
        size = _webp_size(head)
    elif head[:2] == b"\xff\xd8":
        size = _jpeg_size(_decoded(data[:_JPEG_HEAD_CHARS]))
    if size is None or not all(0 < side <= _LARGEST_SIDE for side in size):
        return None
    return size


def _webp_size(head: bytes) -> tuple[int, int] | None:
    kind = head[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if kind == b"VP8L":
        packed = int.from_bytes(head[21:25], "little")
        return 1 + (packed & 0x3FFF), 1 + (packed >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        return int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _JPEG_FRAMES:
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        if marker == 0xFF:
            at += 1
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


def pdf_pages(*, data: str) -> int:
    """Pages of a base64 PDF: counted where its page objects lie open, else from its size. At least 1."""
    raw = _decoded(data[:_PDF_LOOK_CHARS])
    told = [int(count) for count in _PDF_COUNT.findall(raw)]
    pages = max(len(_PDF_PAGE.findall(raw)), *told, 0)
    if not pages:
        pages = len(data) * 3 // 4 // PDF_PAGE_BYTES
    return max(1, min(pages, PDF_MOST_PAGES))


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text[: len(text) // 4 * 4])
    except (binascii.Error, ValueError):
        return b""


# --- Estimates --------------------------------------------------------------------------------------------------

_WEIGHTS: dict[TokenizerFamily, tuple[float, ...]] = {
    family: tuple(weights[name] for name in FEATURES) for family, weights in WEIGHTS.items()
}


def _weigh(counts: Sequence[float], family: TokenizerFamily) -> int:
    """Weighted sum, rounded; at least 1 when there is anything at all."""
    total: float = sum(map(operator.mul, counts, _WEIGHTS[family]))
    return max(round(total), 1 if any(counts) else 0)


def estimate_text(*, text: str, family: TokenizerFamily) -> int:
    """Tokens of a plain text, without any wrapping; 0 for ""."""
    counts: Counts = [0.0] * len(FEATURES)
    count_text(text=text, counts=counts)
    return _weigh(counts, family)


def estimate_block(*, block: ContentBlock, family: TokenizerFamily) -> int:
    """Tokens of one content block with its wrapping, whatever its type and shape."""
    return _weigh(count_block(block=block, family=family), family)


def estimate_content(*, content: Content, family: TokenizerFamily) -> int:
    """Tokens of one message's content; a string counts as one text block. 0 when empty."""
    if isinstance(content, str):
        return estimate_block(block={"type": "text", "text": content}, family=family) if content else 0
    return sum(estimate_block(block=block, family=family) for block in content)


def estimate_json(*, value: object, family: TokenizerFamily) -> int:
    """Tokens of a value that is sent as JSON (tool schemas), of a system prompt's string, or of its text blocks."""
    if isinstance(value, str):
        return estimate_text(text=value, family=family)
    if isinstance(value, (list, tuple)) and value and all(_is_text(item) for item in value):
        return estimate_content(content=value, family=family)
    return estimate_text(text=_as_json(value), family=family)


def _is_text(item: Any) -> bool:
    return isinstance(item, Mapping) and item.get("type") == "text" and isinstance(item.get("text"), str)


# --- The last real usage ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UsageAnchor:
    """The last response with a usage, and the estimate of what came after it. All figures in tokens.

    position: that response's first line, 0 when no response had a usage yet. message_id: its API message id.
    prompt_tokens, output_tokens: its usage. response_tokens: estimate of its own lines. tokens_since: estimate of the
    messages after it (of all messages while there is no anchor). cleared_tokens: estimate of what was in the prompt or
    came since and is not sent any more. Estimates are raw; the session's ratio is laid on where they are read.
    """

    position: int
    message_id: str | None
    prompt_tokens: int
    output_tokens: int
    response_tokens: int
    tokens_since: int
    # Rows that were stored before clearings were counted lack it.
    cleared_tokens: int = 0

    @classmethod
    def none(cls, *, void_message_id: str | None = None) -> UsageAnchor:
        """No usage known yet: everything is estimated.

        `void_message_id`: a response whose usage is from before a boundary. Lines of it that are still to come repeat
        that usage, and must not anchor (known failure T11).
        """
        return cls(
            position=0,
            message_id=void_message_id,
            prompt_tokens=0,
            output_tokens=0,
            response_tokens=0,
            tokens_since=0,
        )

    def after(
        self, *, position: int, role: Role, message_id: str | None, usage: Usage | None, tokens: int
    ) -> UsageAnchor:
        """The anchor once one more message was appended (`tokens`: its estimate). Constant cost.

        Lines of one response share their message id and repeat its usage, and results may stand between them: such a
        line adds its estimate to the response, and the highest counts are kept. A usage without prompt tokens (some
        clients report zeros) never anchors.
        """
        same_response = role == Role.ASSISTANT and bool(message_id) and message_id == self.message_id
        if same_response and self.position:
            repeated = usage or Usage()
            return replace(
                self,
                prompt_tokens=max(self.prompt_tokens, repeated.prompt_tokens),
                output_tokens=max(self.output_tokens, repeated.output_tokens),
                response_tokens=self.response_tokens + tokens,
            )
        if role == Role.ASSISTANT and usage is not None and usage.prompt_tokens > 0 and not same_response:
            return UsageAnchor(
                position=position,
                message_id=message_id,
                prompt_tokens=usage.prompt_tokens,
                output_tokens=usage.output_tokens,
                response_tokens=tokens,
                tokens_since=0,
            )
        return replace(self, tokens_since=self.tokens_since + tokens)

    def cleared(self, *, tokens: int) -> UsageAnchor:
        """The anchor once results of `tokens` (their estimate, less their placeholders') are not sent any more.

        The usage still tells all that was not cleared. Never raises the size.
        """
        return replace(self, cleared_tokens=self.cleared_tokens + max(tokens, 0))

    def changed(self, *, tokens: int) -> UsageAnchor:
        """The anchor once what stands before the messages (system prompt, tools) has grown or shrunk by an estimate."""
        return replace(self, prompt_tokens=max(self.prompt_tokens + tokens, 0))

    @property
    def step_tokens(self) -> int:
        """Estimate of what the next prompt holds beyond this one: the reply and what came since. Never from
        output_tokens, which clients before 2.1.60 log as a placeholder (facts: token estimation)."""
        return self.response_tokens + self.tokens_since

    def reply_tokens(self, *, ratio: float = 1.0) -> int:
        """The response's own size; it counts at least as its estimate, since output_tokens may be a placeholder."""
        return max(self.output_tokens, round(self.response_tokens * ratio))

    def context_tokens(self, *, ratio: float = 1.0) -> int:
        """Last prompt, its reply, and what came since; what was cleared is still in it.

        `ratio`: billed tokens per estimated one in this session (calibration.py).
        """
        return self.prompt_tokens + self.reply_tokens(ratio=ratio) + round(self.tokens_since * ratio)

    def source(self, *, ratio: float = 1.0) -> str:
        """What the figure rests on: "usage", "usage+estimate" or "estimate"."""
        if not self.position:
            return "estimate"
        estimated = self.tokens_since or self.cleared_tokens or self.reply_tokens(ratio=ratio) > self.output_tokens
        return "usage+estimate" if estimated else "usage"


def context_tokens(
    *, anchor: UsageAnchor | None, view_tokens: int, overhead_tokens: int = 0, ratio: float = 1.0
) -> tuple[int, str]:
    """Size of the context in tokens and what it rests on: the anchor's where a usage is known, else all estimated.

    view_tokens: raw estimate of what is shown; overhead_tokens: what the transcript does not show; ratio: billed tokens
    per estimated one in this session.
    """
    if anchor is None or not anchor.position:
        return overhead_tokens + round(view_tokens * ratio), "estimate"
    whole = anchor.context_tokens(ratio=ratio)
    shown_before = view_tokens + anchor.cleared_tokens
    # What was cleared is estimated, the whole measured: the same share goes of both, so the rest is never below 0.
    share = anchor.cleared_tokens / shown_before if anchor.cleared_tokens and shown_before > 0 else 0.0
    cleared = max(whole - overhead_tokens, 0) * min(share, 1.0)
    return whole - round(cleared), anchor.source(ratio=ratio)
