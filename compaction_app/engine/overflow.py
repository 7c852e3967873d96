"""How a provider says that a request is too long, and by how much (S16; facts: Anthropic API, section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OverflowKind(StrEnum):
    """TOKENS: the prompt; OUTPUT: prompt and `max_tokens` together; BYTES: the body."""

    TOKENS = "tokens"
    OUTPUT = "output"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Overflow:
    """`prompt_tokens`: size of the prompt; `limit_tokens`: what there is room for; `max_tokens`: of the request.

    None where the provider names no figure.
    """

    kind: OverflowKind
    prompt_tokens: int | None = None
    limit_tokens: int | None = None
    max_tokens: int | None = None

    @property
    def gap_tokens(self) -> int | None:
        """By how much the prompt is too long, with the output that was asked for; None where nobody told."""
        if self.prompt_tokens is None or self.limit_tokens is None:
            return None
        return max(self.prompt_tokens + (self.max_tokens or 0) - self.limit_tokens, 0)

    @property
    def output_room_tokens(self) -> int | None:
        """What is left for output beside the prompt; None where that was not told, or is no matter of output."""
        if self.kind is not OverflowKind.OUTPUT or self.prompt_tokens is None or self.limit_tokens is None:
            return None
        return max(self.limit_tokens - self.prompt_tokens, 0)


def read_overflow(*, status: int, kind: str, message: str) -> Overflow | None:
    """What an error tells of a request that is too long; None for any other error.

    `status`: of HTTP, 200 for an error in a stream; `kind`: `error.type`, "" where there was none; `message`: its text.
    """
    raise NotImplementedError
