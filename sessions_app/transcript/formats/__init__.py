"""The transcript formats. Another one that is read: one module here, one line in READERS (a client's session file, line
by line) or CHAT_READERS (a chat as one JSON value), one fixture; one that is written: one module here, one line in
WRITERS or DOCUMENT_WRITERS."""

from __future__ import annotations

from types import ModuleType

from sessions_app.transcript.formats import (
    anthropic,
    anthropic_export,
    claude_code,
    claude_code_export,
    openai,
    openai_export,
)

READERS: dict[str, ModuleType] = {claude_code.NAME: claude_code}
CHAT_READERS: dict[str, ModuleType] = {anthropic.NAME: anthropic, openai.NAME: openai}
AUTO = "auto"
FORMATS = (AUTO, *READERS, *CHAT_READERS)  # what an import may be told

LINE_WRITERS: dict[str, ModuleType] = {claude_code_export.NAME: claude_code_export}
DOCUMENT_WRITERS: dict[str, ModuleType] = {anthropic_export.NAME: anthropic_export, openai_export.NAME: openai_export}
WRITERS: dict[str, ModuleType] = LINE_WRITERS | DOCUMENT_WRITERS
