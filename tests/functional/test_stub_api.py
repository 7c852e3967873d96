"""The stub's finer rules, met by the real SDK: what it charges, refuses, takes (its faults: tests/compaction_app)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import pytest

from compaction_app.engine.summary import missing_sections
from tests.stub_api import MESSAGES_PATH, Answer, StubApi, model

MODEL, OTHER = "claude-sonnet-5", "claude-haiku-4-5"
WORD = "word " * 8  # 10 tokens
MARK = {"type": "ephemeral"}
TOOL = {"name": "Read", "description": WORD * 10, "input_schema": {"type": "object"}}
EDITING = "context-management-2025-06-27"


@pytest.fixture(scope="module")
def sdk() -> Iterator[anthropic.Anthropic]:
    """One for all tests: making it costs more than a request."""
    patch = pytest.MonkeyPatch()
    patch.setenv("no_proxy", "127.0.0.1")
    for name in ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_LOG", "ANTHROPIC_BASE_URL"):
        patch.delenv(name, raising=False)
    with anthropic.Anthropic(api_key="dummy-key", max_retries=0, timeout=10) as client:
        yield client
    patch.undo()


class Stub(StubApi):
    sdk: anthropic.Anthropic


@pytest.fixture
def stub(sdk: anthropic.Anthropic) -> Iterator[Stub]:
    with Stub(models=[model(MODEL), model(f"{OTHER}-20251001")], minimum=100) as server:
        server.sdk = sdk
        yield server


def client(stub: Stub, **options: Any) -> anthropic.Anthropic:
    return stub.sdk.with_options(base_url=stub.url, **options)


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [text(b) if isinstance(b, str) else b for b in blocks]}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {**user(*blocks), "role": "assistant"}


def rounds(count: int, *, words: int = 10) -> list[dict[str, Any]]:
    """So many calls and results, then a question."""
    made = [user("begin")]
    for number in range(count):
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Read", "input": {"file_path": f"/{number}.py"}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": WORD * words}
        made += [assistant(call), user(result)]
    return [*made, assistant("read"), user("go on")]


def create(stub: Stub, messages: Any = "hello", **more: Any) -> anthropic.types.Message:
    given = [user(messages)] if isinstance(messages, str) else messages
    return client(stub).messages.create(**{"model": MODEL, "max_tokens": 4_000, "messages": given, **more})


def streamed(stub: Stub, messages: Any = "write <summary>", **more: Any) -> anthropic.types.Message:
    given = [user(messages)] if isinstance(messages, str) else messages
    options = {"model": MODEL, "max_tokens": 4_000, "messages": given, **more}
    with client(stub).messages.stream(**options) as stream:
        return stream.get_final_message()


def books(message: anthropic.types.Message) -> tuple[int, int, int]:
    """(uncached, written, read)"""
    usage = message.usage
    return usage.input_tokens, usage.cache_creation_input_tokens or 0, usage.cache_read_input_tokens or 0


class TestAnswers:
    def test_a_summary_tells_of_what_the_user_said_but_not_of_the_order_to_write_it(self, stub: Stub) -> None:
        said = [
            user("fix src/main.py"),
            assistant("done"),
            user("then test it"),
            assistant("done"),
            user("<summary> it"),
        ]
        told = streamed(stub, said).content[0].text
        assert missing_sections(text=told) == []
        assert "fix src/main.py" in told
        assert "then test it" in told
        assert "summary it" not in told

    def test_what_has_no_stop_reason_is_cut_at_max_tokens(self, stub: Stub) -> None:
        stub.answer(Answer(blocks=(text("x" * 1_000),)))
        message = create(stub, max_tokens=10)
        assert (len(message.content[0].text), message.stop_reason, message.usage.output_tokens) == (
            40,
            "max_tokens",
            10,
        )

    def test_blocks_come_in_pieces_and_are_whole_again(self, stub: Stub) -> None:
        stub.state.frame_characters = 2
        call = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"a": [1, "é", "中"]}}
        stub.say(blocks=[{"type": "thinking", "thinking": "hm so", "signature": "sig"}, text("abc"), call])
        thought, said, called = streamed(stub).content
        assert (thought.thinking, thought.signature, said.text) == ("hm so", "sig", "abc")
        assert called.input == call["input"]

    def test_the_last_usage_overwrites_what_it_names(self, stub: Stub) -> None:
        stub.say(text="abcd" * 9)
        assert streamed(stub).usage.output_tokens == 9
        stub.answer(
            Answer(
                blocks=(text("abc"),),
                delta_usage={"input_tokens": 77, "output_tokens": 5},
                usage={"cache_read_input_tokens": 6},
            )
        )
        usage = streamed(stub).usage
        assert (usage.input_tokens, usage.output_tokens, usage.cache_read_input_tokens) == (77, 5, 6)

    def test_requests_are_recorded_with_what_was_answered(self, stub: Stub) -> None:
        client(stub).beta.messages.create(model=MODEL, max_tokens=9, messages=[user("hi")], betas=["a-beta-1"])
        message = create(stub, [user("hi"), assistant("there"), user("you")])
        first, second = stub.of(MESSAGES_PATH)
        assert first.headers["anthropic-beta"] == "a-beta-1"
        assert (first.status, first.fault, first.body["max_tokens"]) == (200, None, 9)
        assert first.message is not None
        assert first.usage == first.message["usage"]
        assert (first.shares_prefix(second), first.prefix_hash == second.prefix_hash) == (1, False)
        assert message._request_id == second.request_id != first.request_id

    def test_the_older_query_is_taken_and_no_other(self, stub: Stub) -> None:
        one: Any = {"model": OTHER, "max_tokens": 9, "messages": [user("hi")]}
        assert client(stub).messages.create(**one, extra_query={"beta": "true"})
        with pytest.raises(anthropic.BadRequestError):
            client(stub).messages.create(**one, extra_query={"gamma": "1"})

    def test_counts_go_on_while_an_answer_is_held(self, stub: Stub) -> None:
        stub.hold()
        answers: list[Any] = []
        asking = threading.Thread(target=lambda: answers.append(create(stub)))
        asking.start()
        [held] = stub.wait_for(path=MESSAGES_PATH)
        assert client(stub).messages.count_tokens(model=MODEL, messages=[user("abcdefgh")]).input_tokens == 2
        assert (answers, held.status) == ([], None)
        stub.release()
        asking.join(5)
        assert len(answers) == 1


MANY_MARKS = [text(str(n), cache_control=MARK) for n in range(5)]
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}
LEAST = {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}


def edits(*given: Any, beta: str = EDITING) -> dict[str, Any]:
    return {"context_management": {"edits": list(given)}, "_beta": beta}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"tempo": 1}, "tempo: Extra inputs are not permitted"),
    "temperature": ({"temperature": 1.0}, "temperature: Extra inputs"),
    "top_p": ({"top_p": 1.0}, "top_p: Extra inputs"),
    "top_k": ({"top_k": 1}, "top_k: Extra inputs"),
    "beta key without beta": (LEAST, "context_management: Extra inputs"),
    "beta key with another beta": (LEAST | {"_beta": "fast-1"}, "context_management: Extra inputs"),
    "thread without beta": ({"thread": {"type": "create"}}, "thread: Extra inputs"),
    "no max_tokens": ({"max_tokens": None}, "max_tokens: Field required"),
    "max_tokens as text": ({"max_tokens": "9"}, "max_tokens: Input"),
    "max_tokens over the model's": ({"max_tokens": 64_001}, "max_tokens: 64001 > 64000"),
    "no model": ({"model": ""}, "model: Field required"),
    "stream as text": ({"stream": "yes"}, "stream: "),
    "no messages": ({"messages": []}, "at least one message"),
    "messages as text": ({"messages": "hi"}, "messages: Field required"),
    "message as text": ({"messages": ["hi"]}, "messages: Field required"),
    "prefill": ({"messages": [user("a"), assistant("b")]}, "must end with a user message"),
    "assistant first": ({"messages": [assistant("b"), user("a")]}, "first message"),
    "message with an extra key": ({"messages": [user("a") | {"id": 1}]}, "extra inputs"),
    "blank text": ({"messages": [user(" \n")]}, "text is blank"),
    "blank text as string": ({"messages": [{"role": "user", "content": " "}]}, "text is blank"),
    "block with an extra key": ({"messages": [user(text("a", uuid=1))]}, "extra inputs"),
    "call without result": ({"messages": [user("a"), assistant(CALL), user("b")]}, "has 0 results"),
    "result without call": ({"messages": [user("a"), assistant("b"), user(RESULT)]}, "without its tool_use"),
    "marker of another type": ({"messages": [user(text("a", cache_control={"type": "x"}))]}, "cache_control"),
    "marker with another ttl": ({"cache_control": MARK | {"ttl": "2h"}}, "ttl: Input should be '5m' or '1h'"),
    "marker with an extra key": ({"cache_control": MARK | {"scope": "x"}}, "scope: Extra inputs"),
    "five markers": ({"messages": [user(*MANY_MARKS)]}, "at most 4"),
    "five markers over all": (
        {"tools": [TOOL | {"cache_control": MARK}], "messages": [user(*MANY_MARKS[1:])]},
        "Found 5",
    ),
    "five with the automatic one": ({"cache_control": MARK, "messages": [user(*MANY_MARKS[1:])]}, "Found 5"),
    "long after short": (
        {"tools": [TOOL | {"cache_control": MARK}], "cache_control": MARK | {"ttl": "1h"}},
        "must not come after",
    ),
    "marker on thinking": (
        {
            "messages": [
                user("a"),
                assistant({"type": "thinking", "thinking": "a", "signature": "s", "cache_control": MARK}, "b"),
                user("c"),
            ]
        },
        "thinking.cache_control",
    ),
    "tools as object": ({"tools": {}}, "tools: Input"),
    "tool without schema": ({"tools": [{"name": "Read"}]}, "input_schema: Field required"),
    "tool with a schema that is none": ({"tools": [TOOL | {"input_schema": {}}]}, "input_schema.type"),
    "tool with a bad name": ({"tools": [TOOL | {"name": "my tool"}]}, "name: String should match"),
    "tool with an extra key": ({"tools": [TOOL | {"tokens": 1}]}, "tokens: Extra inputs"),
    "two tools of one name": ({"tools": [TOOL, TOOL]}, "must be unique"),
    "choice without tools": ({"tool_choice": {"type": "auto"}}, "while providing tools"),
    "choice of no tool": ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "X"}}, "not found"),
    "choice of another kind": ({"tools": [TOOL], "tool_choice": {"type": "x"}}, "tool_choice"),
    "system as object": ({"system": {}}, "system: Input"),
    "system with an image": ({"system": [IMAGE]}, "system.0"),
    "system with blank text": ({"system": [text(" ")]}, "system.0"),
    "system with an extra key": ({"system": [text("a", id=1)]}, "system.0"),
    "image without data": ({"messages": [user(IMAGE | {"source": {"type": "base64"}})]}, "image.source"),
    "image that is a pdf": ({"messages": [user(IMAGE | {"source": PDF["source"]})]}, "media_type"),
    "thinking of another kind": ({"thinking": {"type": "deep"}}, "thinking: Input"),
    "thinking without budget": ({"thinking": {"type": "enabled"}}, "budget_tokens"),
    "thinking over max_tokens": ({"thinking": {"type": "enabled", "budget_tokens": 9_000}}, "`max_tokens` must be"),
    "adaptive with budget": ({"thinking": {"type": "adaptive", "budget_tokens": 2_000}}, "budget_tokens: Extra"),
    "blank stop sequence": ({"stop_sequences": [" "]}, "stop_sequences"),
    "metadata with more": ({"metadata": {"session": "x"}}, "metadata"),
    "edit of another kind": (edits({"type": "clear_all"}), "does not match"),
    "edit with an extra key": (edits({"type": "clear_tool_uses_20250919", "only": 1}), "only: Extra inputs"),
    "edit with a bad trigger": (
        edits({"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": "1"}}),
        "trigger: Input",
    ),
    "edit keeps tokens": (
        edits({"type": "clear_tool_uses_20250919", "keep": {"type": "input_tokens", "value": 1}}),
        "keep: Input",
    ),
    "thinking edit second": (
        edits({"type": "clear_tool_uses_20250919"}, {"type": "clear_thinking_20251015"}),
        "must be the first",
    ),
    "compact edit without its beta": (edits({"type": "compact_20260112"}), "beta header"),
    "compact edit below its minimum": (
        edits(
            {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 49_999}},
            beta="compact-2026-01-12",
        ),
        "trigger: Input",
    ),
}
ACCEPTED: dict[str, dict[str, Any]] = {
    "system as text": {"system": "be brief"},
    "system as blocks": {"system": [text("be brief", cache_control=MARK)]},
    "four markers": {"messages": [user(*MANY_MARKS[1:])]},
    "long before short": {"tools": [TOOL | {"cache_control": MARK | {"ttl": "1h"}}], "cache_control": MARK},
    "media": {"messages": [user("see", IMAGE, PDF)]},
    "media in a result": {"messages": [user("a"), assistant(CALL), user(RESULT | {"content": [IMAGE, text("x")]})]},
    "thinking": {"thinking": {"type": "enabled", "budget_tokens": 2_000}},
    "thoughts": {
        "messages": [
            user("a"),
            assistant({"type": "redacted_thinking", "data": "x"}, "b"),
            user("c"),
        ]
    },
    "server tools": {
        "messages": [
            user("a"),
            assistant(
                {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}},
                {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
                "b",
            ),
            user("c"),
        ]
    },
    "a system turn in between": {
        "messages": [user("a"), {"role": "system", "content": [text("b")]}, assistant("c"), user("d")]
    },
    "choice of none": {"tools": [TOOL], "tool_choice": {"type": "none"}},
    "edits": LEAST | {"_beta": "x-1, context-management-2025-06-27"},
    "the rest": {"metadata": {"user_id": "u"}, "stop_sequences": ["END"], "service_tier": "auto", "max_tokens": 0},
}


@pytest.fixture(scope="module")
def shared() -> Iterator[StubApi]:
    with StubApi(models=[model(MODEL)]) as server:
        yield server


@pytest.fixture(scope="module")
def plain() -> Iterator[httpx2.Client]:
    with httpx2.Client(trust_env=False) as client:
        yield client


class TestStrictness:
    def post(self, plain: httpx2.Client, shared: StubApi, changes: dict[str, Any]) -> httpx2.Response:
        given = {"model": MODEL, "max_tokens": 4_000, "messages": [user("hello")], **changes}
        headers = {"x-api-key": "k", "anthropic-version": "2026-10-21", "anthropic-beta": str(given.pop("_beta", ""))}
        body = {key: value for key, value in given.items() if value is not None}
        return plain.post(f"{shared.url}{MESSAGES_PATH}", json=body, headers=headers)

    @pytest.mark.parametrize("name", REFUSED)
    def test_refused(self, plain: httpx2.Client, shared: StubApi, name: str) -> None:
        changes, message = REFUSED[name]
        answer = self.post(plain, shared, changes)
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error"), answer.text
        assert message in answer.json()["error"]["message"]
        assert answer.json()["request_id"] == answer.headers["request-id"]

    @pytest.mark.parametrize("name", ACCEPTED)
    def test_accepted(self, plain: httpx2.Client, shared: StubApi, name: str) -> None:
        answer = self.post(plain, shared, ACCEPTED[name])
        assert answer.status_code == 200, answer.text

    def test_no_room_for_the_output(self, stub: Stub) -> None:
        stub.state.count = lambda body: 199_000
        assert create(stub)
        stub.state.room_for_output = True
        with pytest.raises(anthropic.BadRequestError, match=r"exceed context limit: 199000 \+ 4000 > 200000"):
            create(stub)

    def test_thinking_is_bound_to_what_is_before_it_where_that_is_asked_for(self, stub: Stub) -> None:
        thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
        said = [user("a"), assistant(thought, "b"), user("c")]
        cut = [user("another"), *said[1:]]
        assert create(stub, said)
        assert create(stub, cut)
        stub.state.bound_thinking = True
        assert create(stub, said)
        assert create(stub, [*said, assistant("d"), user(text("e", cache_control=MARK))])
        with pytest.raises(anthropic.BadRequestError, match="Invalid signature in thinking block"):
            create(stub, cut)


class TestCacheBooks:
    SYSTEM = [text(WORD * 30, cache_control=MARK)]

    def test_written_then_read(self, stub: Stub) -> None:
        said = [user(text(WORD * 50, cache_control=MARK), WORD)]
        assert books(create(stub, said)) == (10, 500, 0)
        assert books(create(stub, said)) == (10, 0, 500)
        more = [user(WORD * 50, WORD), assistant(WORD), user(text(WORD * 2, cache_control=MARK))]
        assert books(streamed(stub, more)) == (0, 40, 500)
        assert books(create(stub, [*more, assistant("x"), user("yyyy")], cache_control=MARK)) == (0, 2, 540)

    def test_without_markers_nothing_is_kept_or_read(self, stub: Stub) -> None:
        create(stub, WORD * 50, cache_control=MARK)
        assert books(create(stub, WORD * 50)) == (500, 0, 0)

    @pytest.mark.parametrize(
        "changed",
        [
            {"tools": [TOOL | {"description": "else"}]},
            {"tools": []},
            {"system": [text(WORD * 30 + "!", cache_control=MARK)]},
            {"model": OTHER},
            {"thinking": {"type": "adaptive"}},
        ],
    )
    def test_what_changes_everything(self, stub: Stub, changed: dict[str, Any]) -> None:
        parts = {"tools": [TOOL], "system": self.SYSTEM, "messages": [user(text(WORD * 50, cache_control=MARK))]}
        create(stub, **parts)
        assert books(create(stub, **parts))[2] > 800
        assert books(create(stub, **(parts | changed)))[2] == 0

    def test_another_message_or_tool_choice_leaves_the_system(self, stub: Stub) -> None:
        parts = {"tools": [TOOL], "system": self.SYSTEM, "messages": [user(text(WORD * 50, cache_control=MARK))]}
        create(stub, **parts)
        before = books(create(stub, **parts))[2] - 500
        assert books(create(stub, **(parts | {"messages": [user("else " + WORD * 50)]})))[2] == before
        assert books(create(stub, **(parts | {"tool_choice": {"type": "none"}})))[2] == before

    @pytest.mark.parametrize(("added", "read"), [(19, 500), (20, 0)])
    def test_it_looks_back_twenty_blocks(self, stub: Stub, added: int, read: int) -> None:
        create(stub, [user(text(WORD * 50, cache_control=MARK))])
        said = [user(WORD * 50, *[f"{n:04}" for n in range(added)])]
        assert books(create(stub, said, cache_control=MARK))[2] == read

    def test_it_is_forgotten_after_its_time_and_each_read_begins_it_anew(self, stub: Stub) -> None:
        said = [user(text(WORD * 50, cache_control=MARK))]
        create(stub, said)
        for _ in range(2):
            stub.state.skipped += 290
            assert books(create(stub, said))[2] == 500
        stub.state.skipped += 301
        assert books(create(stub, said)) == (0, 500, 0)

    def test_an_hour_where_that_was_asked_for(self, stub: Stub) -> None:
        long = [text(WORD * 20, cache_control=MARK | {"ttl": "1h"})]
        parts = {"system": long, "messages": [user(text(WORD * 30, cache_control=MARK))]}
        written = create(stub, **parts).usage.cache_creation
        assert written is not None
        assert (written.ephemeral_1h_input_tokens, written.ephemeral_5m_input_tokens) == (200, 300)
        stub.state.skipped += 3_500
        assert books(create(stub, **parts)) == (0, 300, 200)

    def test_a_short_prefix_is_not_kept(self, stub: Stub) -> None:
        stub.state.minimums[OTHER] = 501
        said = [user(text(WORD * 50, cache_control=MARK))]
        for name, kept in ((MODEL, 500), (OTHER, 0)):
            assert books(create(stub, said, model=name)) == (500 - kept, kept, 0)
            assert books(create(stub, said, model=name)) == (500 - kept, 0, kept)

    def test_part_of_a_block_is_no_prefix(self, stub: Stub) -> None:
        create(stub, [user(text(WORD * 50, cache_control=MARK))])
        assert books(create(stub, [user(text(WORD * 51, cache_control=MARK))]))[2] == 0

    def test_until_the_answer_starts_others_pay(self, stub: Stub) -> None:
        said = [user(text(WORD * 50, cache_control=MARK))]
        stub.state.slow_seconds = 5
        stub.fail("slow")
        slow = threading.Thread(target=lambda: create(stub, said))
        slow.start()
        stub.wait_for(path=MESSAGES_PATH)
        assert books(create(stub, said))[1] == 500
        stub.stopping.set()
        slow.join(5)

    def test_a_refused_request_writes_nothing_and_a_broken_stream_does(self, stub: Stub) -> None:
        said = [user(text(WORD * 50, cache_control=MARK))]
        stub.fail("529", "stream-overloaded")
        with pytest.raises(anthropic.APIStatusError):
            create(stub, said)
        with pytest.raises(anthropic.APIStatusError):
            streamed(stub, said)
        assert [request.usage and request.usage["cache_read_input_tokens"] for request in stub.requests] == [None, 0]
        assert books(create(stub, said))[2] == 500

    def test_figures_follow_the_settable_count(self, stub: Stub) -> None:
        stub.state.count = lambda body: 100_000
        said = [user(text(WORD * 90, cache_control=MARK), WORD * 10)]
        assert books(create(stub, said)) == (10_000, 90_000, 0)


class TestContextEditing:
    EDIT = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "tool_uses", "value": 4},
        "keep": {"type": "tool_uses", "value": 2},
    }

    def ask(self, stub: Stub, edit: dict[str, Any], messages: Any, **more: Any) -> Any:
        with client(stub).beta.messages.stream(
            model=MODEL,
            max_tokens=100,
            messages=messages,
            context_management={"edits": [edit]},
            betas=[EDITING],
            **more,
        ) as stream:
            return stream.get_final_message()

    def test_old_results_are_cleared_and_told(self, stub: Stub) -> None:
        message = self.ask(stub, self.EDIT, rounds(6))
        [applied] = message.context_management.applied_edits
        assert (applied.type, applied.cleared_tool_uses) == ("clear_tool_uses_20250919", 4)
        plain = books(create(stub, rounds(6)))[0]
        assert message.usage.input_tokens == plain - applied.cleared_input_tokens
        counted = client(stub).beta.messages.count_tokens(
            model=MODEL,
            messages=rounds(6),
            context_management={"edits": [self.EDIT]},
            betas=[EDITING],
        )
        assert counted.input_tokens == message.usage.input_tokens
        assert counted.context_management is not None
        assert counted.context_management.original_input_tokens == plain

    @pytest.mark.parametrize(
        ("change", "cleared"),
        [
            ({"trigger": {"type": "tool_uses", "value": 6}}, None),
            ({"trigger": None}, None),
            ({"clear_at_least": {"type": "input_tokens", "value": 9_999}}, None),
            ({"exclude_tools": ["Read"]}, None),
            ({"keep": {"type": "tool_uses", "value": 5}}, 1),
            ({"clear_tool_inputs": True}, 4),
        ],
    )
    def test_its_options(self, stub: Stub, change: dict[str, Any], cleared: int | None) -> None:
        edit = {key: value for key, value in (self.EDIT | change).items() if value is not None}
        applied = self.ask(stub, edit, rounds(6)).context_management.applied_edits
        assert [each.cleared_tool_uses for each in applied] == ([cleared] if cleared else [])

    def test_what_was_cleared_is_written_anew(self, stub: Stub) -> None:
        create(stub, rounds(6), cache_control=MARK, system=[text(WORD * 30, cache_control=MARK)])
        system = [text(WORD * 30, cache_control=MARK)]
        message = self.ask(stub, self.EDIT, rounds(6), system=system, cache_control=MARK)
        assert books(message)[2] == 300
        assert books(self.ask(stub, self.EDIT, rounds(6), system=system, cache_control=MARK))[1] == 0


class TestFaults:
    def test_the_partial_text_of_a_broken_stream_is_there(self, stub: Stub) -> None:
        stub.fail("stream-overloaded")
        with client(stub).messages.stream(model=MODEL, max_tokens=4_000, messages=[user("a <summary>")]) as stream:
            with pytest.raises(anthropic.APIStatusError):
                stream.until_done()
            assert stream.current_message_snapshot.content[0].text.startswith("<analysis>")

    @pytest.mark.parametrize(("name", "requests"), [("429-short", 3), ("500-final", 1), ("400-too-long", 1)])
    def test_what_the_sdk_tries_again(self, stub: Stub, name: str, requests: int) -> None:
        stub.keep_failing(name)
        with pytest.raises(anthropic.APIStatusError):
            client(stub, max_retries=2).messages.create(model=MODEL, max_tokens=9, messages=[user("hi")])
        assert [request.headers["x-stainless-retry-count"] for request in stub.requests] == list("012")[:requests]

    def test_headers_tell_how_long_to_wait(self, stub: Stub) -> None:
        told = {}
        for name in ("429", "429-short", "429-bare"):
            stub.fail(name)
            with pytest.raises(anthropic.RateLimitError) as raised:
                create(stub)
            headers = raised.value.response.headers
            told[name] = (headers.get("retry-after"), headers.get("retry-after-ms"))
        assert told == {"429": ("3600", None), "429-short": (None, "10"), "429-bare": (None, None)}

    def test_one_each_in_order_before_what_always_is(self, stub: Stub) -> None:
        stub.keep_failing("503")
        stub.fail("401", "402")
        for status in (401, 402, 503, 503):
            with pytest.raises(anthropic.APIStatusError) as raised:
                create(stub)
            assert raised.value.status_code == status
        stub.keep_failing(None)
        assert create(stub)
