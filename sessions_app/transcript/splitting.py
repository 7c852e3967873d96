"""The stored estimate of a message, split into its blocks without losing or adding a token."""

from __future__ import annotations

from sessions_app.catalog import TokenizerFamily
from sessions_app.transcript.messages import ContentBlock, content_blocks
from sessions_app.transcript.tokens import estimate_block
from sessions_app.transcript.view import ViewItem, placeholder_tokens


def split_tokens(*, item: ViewItem, family: TokenizerFamily) -> list[tuple[ContentBlock, int]]:
    """Each block with its tokens as they are shown; they add up to `item.tokens` unless there is no block.

    A single block takes all, and of several the longest takes what the others leave: most of the text is not estimated
    a second time, and what another tokenizer family would give does not break the sum.
    """
    blocks = content_blocks(item.content)
    if len(blocks) == 1:
        return [(blocks[0], item.tokens)]
    if not blocks:
        return []
    sizes = [0 if is_cleared(item, block) else _chars(block) for block in blocks]
    longest = sizes.index(max(sizes))
    left, tokens = item.tokens, [0] * len(blocks)
    for number, block in enumerate(blocks):
        if number != longest:
            shown = estimate_block(block=block, family=family)
            if is_cleared(item, block):
                shown = min(shown, placeholder_tokens(family=family))
            tokens[number] = min(shown, left)
            left -= tokens[number]
    tokens[longest] = left
    return list(zip(blocks, tokens, strict=True))


def is_cleared(item: ViewItem, block: ContentBlock) -> bool:
    """Whether a result's content is not what the model sees."""
    if not item.cleared and not item.edited:
        return False
    use_id = block.get("tool_use_id") if block.get("type") == "tool_result" else None
    return isinstance(use_id, str) and (use_id in item.cleared or use_id in item.edited)


def _chars(block: ContentBlock) -> int:
    """How long a block is, roughly: enough to find the longest of several."""
    size = 0
    for key in ("text", "content", "thinking"):
        value = block.get(key)
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, list):
            size += sum(_chars(part) for part in value if isinstance(part, dict) and "text" in part)
    arguments = block.get("input")
    if isinstance(arguments, dict):
        size += sum(len(value) for value in arguments.values() if isinstance(value, str))
    return size
