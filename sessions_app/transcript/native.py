"""The provider's own compaction block: it is signed, and goes back to the letter, first of all and alone.

Facts: Anthropic API, section 7a. A block without a signature is of another kind (section 7b): it needs another beta and
an edit with it, so what it says is sent as text instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

COMPACTION = "compaction"
COMPACTION_BETA = "compact-2026-09-04"  # on the request that asks for a block, and on every one that carries it
UNREADABLE = "(The provider's summary can not be read here.)"


def is_signed(block: Mapping[str, Any]) -> bool:
    """Whether it is a block that the provider takes back as it is."""
    signature = block.get("signature")
    return block.get("type") == COMPACTION and isinstance(signature, str) and bool(signature.strip()) and _says(block)


def _says(block: Mapping[str, Any]) -> bool:
    """Whether anything stands in it: one without a content has failed, and the API passes over it."""
    return any(isinstance(block.get(key), str) and block[key].strip() for key in ("content", "encrypted_content"))


def readable(block: Mapping[str, Any]) -> str:
    """What a person reads of a block; "" for one that says nothing."""
    content = block.get("content")
    if isinstance(content, str) and content.strip():
        return content
    return UNREADABLE if _says(block) else ""


def leads(content: Any) -> bool:
    """Whether a message's content begins with a signed block."""
    first = content[0] if isinstance(content, Sequence) and not isinstance(content, str) and content else None
    return isinstance(first, Mapping) and is_signed(first)


def betas_for(messages: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Beta names that a request with these messages must carry."""
    return (COMPACTION_BETA,) if messages and leads(messages[0].get("content")) else ()
