"""The transcript formats that can be read. Another format: one module here, one line in READERS, one fixture."""

from __future__ import annotations

from types import ModuleType

from sessions_app.transcript.formats import claude_code

READERS: dict[str, ModuleType] = {claude_code.NAME: claude_code}
AUTO = "auto"
