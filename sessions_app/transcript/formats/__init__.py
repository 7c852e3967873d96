"""The transcript formats. Another one that is read: one module here, one line in READERS, one fixture; one that is
written: one module here, one line in WRITERS."""

from __future__ import annotations

from types import ModuleType

from sessions_app.transcript.formats import claude_code, claude_code_export

READERS: dict[str, ModuleType] = {claude_code.NAME: claude_code}
WRITERS: dict[str, ModuleType] = {claude_code_export.NAME: claude_code_export}
AUTO = "auto"
