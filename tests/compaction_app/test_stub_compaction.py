"""The stub's compaction on demand: it takes and refuses what the API does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from tests.build import res, text, use
from tests.stub_api import StubApi, model

MODEL, BETA = "claude-sonnet-5", "compact-2026-09-04"
TALK: list[Any] = [
    {"role": "user", "content": [text("go on with src/a.py")]},
    {"role": "assistant", "content": [text("done")]},
]
AND_NOW: Any = {"role": "user", "content": [text("and now?")]}


@pytest.fixture
def stub() -> Iterator[StubApi]:
    with StubApi(models=[model(MODEL), model("claude-haiku-4-5")]) as stub:
        yield stub


@pytest.fixture
def client(stub: StubApi) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(api_key="k", base_url=stub.url, max_retries=0) as client:
        yield client


def ask(client: anthropic.Anthropic, **changes: Any) -> Any:
    body: dict[str, Any] = {"model": MODEL, "max_tokens": 4_000, "messages": TALK, "betas": [BETA]}
    return client.beta.messages.create(**{**body, "compaction": {"type": "summarize"}, **changes})


def reply(client: anthropic.Anthropic, messages: list[Any], **changes: Any) -> Any:
    return ask(client, **{"messages": messages, "compaction": anthropic.omit, **changes})


def block_of(client: anthropic.Anthropic) -> dict[str, Any]:
    [block] = ask(client).content
    return block.to_dict()  # type: ignore[no-any-return]


def test_it_answers_with_one_signed_block(client: anthropic.Anthropic, stub: StubApi) -> None:
    told = ask(client)
    assert told.stop_reason == "compaction"
    [block] = told.content
    assert (block.type, bool(block.signature)) == ("compaction", True)
    assert (told.usage.input_tokens, told.usage.output_tokens) == (0, 0)
    assert told.usage.iterations[0].type == "compaction"
    assert told.usage.iterations[0].input_tokens > 0


def test_streamed_it_is_the_same(client: anthropic.Anthropic) -> None:
    options: dict[str, Any] = {"model": MODEL, "max_tokens": 4_000, "messages": TALK, "betas": [BETA]}
    with client.beta.messages.stream(**options, compaction={"type": "summarize"}) as stream:
        told = stream.get_final_message()
    assert (told.stop_reason, [block.type for block in told.content]) == ("compaction", ["compaction"])
    assert told.usage.iterations


def test_the_block_goes_back_and_a_second_compaction_takes_its_place(client: anthropic.Anthropic) -> None:
    first = {"role": "assistant", "content": [block_of(client)]}
    assert reply(client, [first, AND_NOW]).stop_reason == "end_turn"
    counted = client.beta.messages.count_tokens(model=MODEL, messages=[first, AND_NOW], betas=[BETA])  # type: ignore[list-item]
    assert counted.input_tokens > 0
    [second] = ask(client, messages=[first, AND_NOW]).content
    assert reply(client, [{"role": "assistant", "content": [second.to_dict()]}, AND_NOW]).stop_reason == "end_turn"


OPEN: list[Any] = [TALK[0], {"role": "assistant", "content": [use("c1")]}]
REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "no beta": ({"betas": []}, "", "compaction"),
    "another type": ({"compaction": {"type": "shorten"}}, "", "compaction.type"),
    "another key": ({"compaction": {"type": "summarize", "trigger": 1}}, "", "compaction.trigger"),
    "long instructions": ({"compaction": {"type": "summarize", "instructions": "x" * 16_385}}, "", "16384"),
    "edits": ({"context_management": {"edits": []}}, "", "context_management"),
    "stop sequences": ({"stop_sequences": ["x"]}, "", "stop_sequences"),
    "a format": ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "", "output_config.format"),
    "a budget": (
        {"output_config": {"task_budget": {"type": "tokens", "total": 9, "remaining": 5}}},
        "",
        "task_budget.remaining",
    ),
    "a forced tool": ({"tool_choice": {"type": "any"}}, "", "tool_choice"),
    "no output": ({"max_tokens": 0}, "", "max_tokens"),
    "no messages": ({"messages": []}, "compaction_nothing_to_summarize", ""),
    "an open call": ({"messages": OPEN}, "compaction_incomplete_turn", ""),
    "a model that can't": ({"model": "claude-haiku-4-5"}, "", "does not support"),
    "too long": ({"messages": [{"role": "user", "content": "x" * 900_000}]}, "", "prompt is too long"),
}


@pytest.mark.parametrize(("changes", "code", "words"), REFUSED.values(), ids=list(REFUSED))
def test_what_is_refused(
    client: anthropic.Anthropic, stub: StubApi, changes: dict[str, Any], code: str, words: str
) -> None:
    stub.state.without_compaction.add("claude-haiku-4-5")
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(client, **changes)
    assert (caught.value.error_code or "") == code
    assert words in str(caught.value.api_message)


def test_a_finished_round_is_taken(client: anthropic.Anthropic) -> None:
    messages = [*OPEN, {"role": "user", "content": [res("c1")]}]
    assert ask(client, messages=messages).stop_reason == "compaction"


def with_block(block: dict[str, Any], *before: Any) -> list[Any]:
    return [*before, {"role": "assistant", "content": [block]}, AND_NOW]


REPLAYED: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "behind a message": (lambda block: with_block(block, TALK[0]), "compaction_block_misplaced", {}),
    "behind a text": (
        lambda block: [{"role": "assistant", "content": [text("a"), block]}, AND_NOW],
        "compaction_block_misplaced",
        {},
    ),
    "two": (
        lambda block: [{"role": "assistant", "content": [block, block]}, AND_NOW],
        "compaction_block_ambiguous",
        {},
    ),
    "other content": (lambda block: with_block({**block, "content": "mine"}), "compaction_content_mismatch", {}),
    "less of it": (
        lambda block: with_block({k: v for k, v in block.items() if k != "tool_changes"}),
        "compaction_content_mismatch",
        {},
    ),
    "other signature": (lambda block: with_block({**block, "signature": "x"}), "compaction_signature_invalid", {}),
    "more of it": (lambda block: with_block({**block, "citations": None}), "", {}),
    "no beta": (with_block, "", {"betas": []}),
    "another beta": (with_block, "", {"betas": ["compact-2026-01-12"]}),
}


@pytest.mark.parametrize(("build", "code", "changes"), REPLAYED.values(), ids=list(REPLAYED))
def test_a_block_that_comes_back_otherwise(
    client: anthropic.Anthropic, build: Any, code: str, changes: dict[str, Any]
) -> None:
    messages = build(block_of(client))
    with pytest.raises(anthropic.BadRequestError) as caught:
        reply(client, messages, **changes)
    assert (caught.value.error_code or "") == code
