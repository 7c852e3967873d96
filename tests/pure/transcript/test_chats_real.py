"""Real chats: each is known as what it is and read whole; and nothing else is taken for one."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sessions_app.transcript.entries import TranscriptMessage
from sessions_app.transcript.formats import anthropic, openai
from sessions_app.transcript.messages import Usage, content_blocks
from tests.real_transcripts import FOLDER, needs_transcripts

pytestmark = [pytest.mark.transcripts, needs_transcripts]

FORMATS: dict[str, ModuleType] = {"anthropic-messages": anthropic, "openai-chat": openai}
FILES = sorted(path for path in FOLDER.glob("*/*") if path.is_file())
CHATS = [path for path in FILES if path.parent.name in FORMATS]
OTHERS = [path for path in FILES if path.parent.name not in FORMATS]


def values(path: Path) -> list[Any]:
    """The file as one value, or as one a line; lines that are damaged left out."""
    told = path.read_text(encoding="utf-8")
    try:
        return [json.loads(told)]
    except ValueError:
        found = []
        for line in told.split("\n"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def given_messages(value: Any) -> list[Any]:
    body = value.get("request", value) if isinstance(value, dict) else {"messages": value}
    answer = [value["response"]] if isinstance(value, dict) and "response" in value else []
    prompts = sum(one["role"] in ("system", "developer") for one in body["messages"][:1])
    return [*body["messages"][prompts:], *answer]


@pytest.mark.parametrize("path", CHATS, ids=name)
def test_a_chat_is_known_and_read_whole(path: Path) -> None:
    format_ = FORMATS[path.parent.name]
    for value in values(path):
        assert [one.recognizes_document(value=value) for one in FORMATS.values()] == [
            one is format_ for one in FORMATS.values()
        ]
        told = format_.read_document(value=value, line_number=1)
        assert all(isinstance(one, TranscriptMessage) for one in told.items)
        assert len(told.items) == len(given_messages(value))
        assert len({one.uuid for one in told.items if isinstance(one, TranscriptMessage)}) == len(told.items)
        assert json.dumps([one.content for one in told.items if isinstance(one, TranscriptMessage)])


@pytest.mark.parametrize("path", [path for path in CHATS if path.parent.name == "openai-chat"], ids=name)
def test_no_call_and_no_result_is_lost(path: Path) -> None:
    for value in values(path):
        messages = [one["choices"][0]["message"] if "choices" in one else one for one in given_messages(value)]
        told = openai.read_document(value=value, line_number=1).items
        blocks = [b for one in told if isinstance(one, TranscriptMessage) for b in content_blocks(one.content)]
        kinds = [block["type"] for block in blocks]
        assert kinds.count("tool_use") == sum(len(one.get("tool_calls") or ()) for one in messages)
        assert kinds.count("tool_result") == sum(one["role"] == "tool" for one in messages)


def test_a_response_tells_its_usage() -> None:
    value = values(FOLDER / "openai-chat" / "openhands-llm-log-claude.json")[0]
    last = openai.read_document(value=value, line_number=1).items[-1]
    assert isinstance(last, TranscriptMessage)
    usage = Usage.from_json(last.usage)
    assert usage is not None
    assert (usage.prompt_tokens, usage.output_tokens) == (6_729, 199)


@pytest.mark.parametrize("path", OTHERS, ids=name)
def test_nothing_else_is_taken_for_one(path: Path) -> None:
    for value in values(path):
        for format_ in FORMATS.values():
            assert not format_.recognizes_document(value=value)
            assert not format_.is_message(value=value)
