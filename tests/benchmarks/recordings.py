"""The real transcripts as recordings to send again. Claude Code's come through the service's own import."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from django.utils import timezone

from sessions_app.catalog import TokenizerFamily, tokenizer_family
from sessions_app.models import Message as MessageRow
from sessions_app.policy import Policy
from sessions_app.services.transcripts import import_transcript
from sessions_app.transcript.messages import Content, Message, Role, Usage
from sessions_app.transcript.tokens import estimate_content
from tests.benchmarks.cache_cost import Recording, calls_of
from tests.factories import make_team
from tests.real_transcripts import CLAUDE_CODE, FOLDER

CODEX = sorted((FOLDER / "codex").glob("*.jsonl"))
CODEX_PREFIX = "codex/"
# Codex's tools whose results can be had again; our table doesn't name them, a team of its users would.
CODEX_TOOLS = {"shell": True, "exec": True, "exec_command": True, "write_stdin": True, "apply_patch": True}
# No public tokenizer, and this family's is the nearer one.
CODEX_FAMILY = TokenizerFamily.UNTIL_OPUS_4_6
WHY_NONE = f"no real transcripts at {FOLDER} (TRANSCRIPTS_DIR)"


@functools.cache
def all_recordings() -> tuple[Recording, ...]:
    """Every file's main thread; side chains are calls of other prompts."""
    return (*map(_claude_code, CLAUDE_CODE), *map(_codex, CODEX))


def policy_of(recording: Recording) -> Policy:
    policy = Policy()
    if not recording.name.startswith(CODEX_PREFIX):
        return policy
    return replace(policy, compactable_tools=policy.compactable_tools.overridden(CODEX_TOOLS))


def _claude_code(path: Path) -> Recording:
    with path.open("rb") as stream:
        report = import_transcript(team=make_team(), stream=stream, name=path.name, policy=Policy(), now=timezone.now())
    rows = MessageRow.objects.filter(session=report.session, is_sidechain=False).order_by("position")
    messages = [row.as_value() for row in rows.defer("envelope")]
    model = next((m.model for m in messages if m.model and m.model.startswith("claude")), None)
    return _recording(path.stem, messages, tokenizer_family(model))


def _codex(path: Path) -> Recording:
    entries = [
        entry for line in path.read_text(encoding="utf-8", errors="replace").splitlines() for entry in _json(line)
    ]
    return _recording(CODEX_PREFIX + path.stem, list(_codex_messages(entries)), CODEX_FAMILY)


def _recording(name: str, messages: Sequence[Message], family: TokenizerFamily) -> Recording:
    return Recording(name=name, messages=messages, overhead_tokens=_overhead_tokens(messages), family=family)


def _overhead_tokens(messages: Sequence[Message]) -> int:
    """The first usage less what was shown before it.

    What a resumed session brought along beyond the policy's limit is history that its file does not hold.
    """
    by_position = {message.position: message for message in messages}
    for call in calls_of(messages):
        usage = by_position[call.position].usage
        if usage is not None and usage.prompt_tokens:
            shown = sum(message.tokens for message in messages if message.position < call.position)
            return min(max(usage.prompt_tokens - shown, 0), Policy().largest_overhead_tokens)
    return 0


def _codex_messages(entries: Sequence[Mapping[str, Any]]) -> Iterator[Message]:
    """The items of a rollout, one message each.

    A response ends where something answers it; reasoning is sealed, so it is left out; the first usage that is told
    belongs to the first response.
    """
    usage = next(_usages(entries), None)
    position, responses, last_role = 0, 0, Role.USER
    for entry in entries:
        if entry.get("type") != "response_item":
            continue
        role, content = _codex_content(entry["payload"])
        if not content:
            continue
        answers = role == Role.ASSISTANT
        responses += answers and last_role == Role.USER
        position, last_role = position + 1, role
        yield Message(
            position=position,
            uuid=str(position),
            role=role,
            content=content,
            tokens=estimate_content(content=content, family=CODEX_FAMILY),
            message_id=f"response-{responses}" if answers else None,
            sent_at=datetime.fromisoformat(entry["timestamp"]),
            usage=usage if answers and responses == 1 else None,
        )


def _usages(entries: Sequence[Mapping[str, Any]]) -> Iterator[Usage]:
    for entry in entries:
        payload = entry.get("payload")
        info = payload.get("info") if isinstance(payload, Mapping) and payload.get("type") == "token_count" else None
        if isinstance(info, Mapping):
            yield Usage(input_tokens=info["last_token_usage"]["input_tokens"])


def _json(line: str) -> Iterator[Mapping[str, Any]]:
    """The line's object; nothing where it can't be read."""
    try:
        value = json.loads(line)
    except ValueError:
        return
    if isinstance(value, Mapping):
        yield value


def _codex_content(payload: Mapping[str, Any]) -> tuple[Role, Content]:
    kind = payload.get("type")
    if kind == "message":
        role = Role.ASSISTANT if payload.get("role") == "assistant" else Role.USER
        texts = (part.get("text") for part in payload.get("content") or ())
        return role, [{"type": "text", "text": text} for text in texts if text]
    if kind in ("function_call", "custom_tool_call"):
        given = {"text": payload.get("arguments", payload.get("input"))}
        return Role.ASSISTANT, [{"type": "tool_use", "id": payload["call_id"], "name": payload["name"], "input": given}]
    if kind in ("function_call_output", "custom_tool_call_output"):
        output = payload.get("output")
        text = output if isinstance(output, str) else json.dumps(output)
        return Role.USER, [{"type": "tool_result", "tool_use_id": payload["call_id"], "content": text}]
    return Role.USER, ()
