"""Thinking is bound to what stood before it (facts, section 8): a signature that comes again behind another prefix is
refused. The stub binds each signature to the prefix that it is first seen behind. `cache_control` does not count.
Compaction blocks are signed as they are given out (section 7a)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from sessions_app.transcript.request import THINKING
from tests.stub_api.prefix import blocks_of, read_prompt


@dataclass
class Signatures:
    bound: dict[str, str] = field(default_factory=dict)

    def check(self, *, body: dict[str, Any]) -> str | None:
        """The first problem in words; else all signatures are bound from now on."""
        context = {key: body.get(key) for key in ("tools", "system", "messages")}
        hashes = read_prompt(body=context, total=0).hashes
        before, found = "", {}
        for (where, block), now in zip(blocks_of(context), hashes, strict=True):
            if where == "assistant" and block.get("type") in THINKING:
                signature = str(block.get("signature") or block.get("data"))
                if self.bound.get(signature, before) != before:
                    return f"messages: Invalid signature in {block['type']} block: bound to a different conversation"
                found[signature] = before
            before = now
        self.bound |= found
        return None


@dataclass
class SignedBlocks:
    """Compaction blocks that were given out, by their signature."""

    blocks: dict[str, dict[str, Any]] = field(default_factory=dict)

    def keep(self, message: dict[str, Any]) -> None:
        for block in message["content"]:
            if block.get("type") == "compaction" and block.get("signature"):
                self.blocks[block["signature"]] = json.loads(json.dumps(block))
