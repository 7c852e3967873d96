"""What fills the view: each token in one part, and what is told beside."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from sessions_app.transcript.analysis import OTHER_TOOLS, UNKNOWN_TOOL, ContextAnalysis, ContextAnalyzer, Part
from sessions_app.transcript.boundary import AttachmentValue, BoundaryKind
from sessions_app.transcript.messages import Message
from sessions_app.transcript.tokens import estimate_block, estimate_content
from sessions_app.transcript.view import fold, placeholder_tokens, stream_items
from tests.build import FAMILY, Talk, boundary, res, text, thinking, use

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}
LONG = "a line of text\n" * 200


def analyzed(
    messages: Iterable[Message], *, boundaries: Any = (), rows: int = 10, tracked: int = 2_000
) -> ContextAnalysis:
    view = fold(messages=list(messages), boundaries=boundaries, family=FAMILY)
    analyzer = ContextAnalyzer(family=FAMILY, boundary=view.boundary, rows=rows, tracked=tracked)
    for item in view.items:
        analyzer.add(item)
    found = analyzer.finish()
    assert found.view_tokens == view.tokens
    assert sum(found.parts.values()) == view.tokens
    assert all(tokens >= 0 for tokens in found.parts.values())
    tools = found.parts[Part.TOOL_REQUESTS] + found.parts[Part.TOOL_RESULTS]
    assert sum(tool.tokens for tool in found.tools) == tools
    return found


def parts(talk: Talk) -> set[str]:
    return {part.value for part, tokens in analyzed(talk.messages).parts.items() if tokens}


class TestParts:
    @pytest.mark.parametrize(
        ("talk", "part"),
        [
            (Talk().u("go on"), Part.PROMPTS),
            (Talk().u([text("go on")][0]), Part.PROMPTS),
            (Talk().u("<command-name>/plan</command-name><command-args>the API</command-args>"), Part.PROMPTS),
            (Talk().u("why does it print <bash-stdout>?"), Part.PROMPTS),
            (Talk().u("careful", is_meta=True), Part.INJECTED),
            (Talk().u("<system-reminder>careful</system-reminder>"), Part.INJECTED),
            (Talk().u("<command-name>/clear</command-name>"), Part.INJECTED),
            (Talk().u("[Request interrupted by user]"), Part.INJECTED),
            (Talk().u("<local-command-stdout>done</local-command-stdout>"), Part.LOCAL_OUTPUT),
            (Talk().u("<bash-stdout>a.py</bash-stdout><bash-stderr></bash-stderr>"), Part.LOCAL_OUTPUT),
            (Talk().u("<bash-stdout>cut off"), Part.LOCAL_OUTPUT),
            (Talk().u("<local-command-stdout>x</local-command-stdout>", is_meta=True), Part.LOCAL_OUTPUT),
            (Talk().a("done"), Part.ASSISTANT_TEXT),
            (Talk().a(thinking("hm")), Part.THINKING),
            (Talk().a({"type": "redacted_thinking", "data": "xyz"}), Part.THINKING),
            (Talk().a(use("A")), Part.TOOL_REQUESTS),
            (Talk().a({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}), Part.TOOL_REQUESTS),
            (Talk().u(use("A")), Part.OTHER),
            (Talk().u(res("A")), Part.TOOL_RESULTS),
            (Talk().a({"type": "web_search_tool_result", "tool_use_id": "s", "content": []}), Part.TOOL_RESULTS),
            (Talk().u(IMAGE), Part.MEDIA),
            (Talk().u(PDF), Part.MEDIA),
            (Talk().a({"type": "hologram"}), Part.OTHER),
        ],
    )
    def test_each_block_is_one(self, talk: Talk, part: Part) -> None:
        assert parts(talk) == {part.value}

    def test_what_is_typed_behind_a_wrapper_is_told_apart(self) -> None:
        talk = Talk().u("<system-reminder>" + LONG + "</system-reminder>please go on")
        found = analyzed(talk.messages).parts
        assert 0 < found[Part.PROMPTS] < 10
        assert found[Part.INJECTED] > 500

    def test_blocks_of_one_message_are_split_as_they_are_estimated(self) -> None:
        blocks = [thinking("hm " * 50), text("I look."), use("A", file_path="/srv/app.py")]
        found = analyzed(Talk().a(*blocks).messages).parts
        expected = [estimate_block(block=block, family=FAMILY) for block in blocks]
        assert [found[p] for p in (Part.THINKING, Part.ASSISTANT_TEXT, Part.TOOL_REQUESTS)] == expected

    def test_an_estimate_of_another_family_still_adds_up(self) -> None:
        from dataclasses import replace

        talk = Talk().a("I look.", use("A", file_path="/srv/app.py"))
        for stored in (0, 1, 7, 100_000):
            found = analyzed([replace(talk.messages[0], tokens=stored)])
            assert sum(found.parts.values()) == stored

    def test_what_a_boundary_puts_in(self) -> None:
        files = [AttachmentValue(kind="file", text="x", tokens=tokens) for tokens in (30, 20)]
        plan = AttachmentValue(kind="plan", text="p", tokens=7)
        head = boundary(2, committed_at=2, summary_tokens=50, attachments=(plan, *files))
        found = analyzed(Talk().u("1").a("2").u("3").messages, boundaries=[head])
        assert found.parts[Part.SUMMARY] == 50
        assert found.parts[Part.ATTACHMENTS] == 57
        told = {kind: (counted.count, counted.tokens) for kind, counted in found.attachments.items()}
        assert told == {"plan": (1, 7), "file": (2, 50)}
        assert found.messages == 1

    def test_nothing(self) -> None:
        found = analyzed([])
        assert (found.messages, found.tools, found.largest, found.repeated_reads) == (0, [], [], [])


class TestTools:
    def test_calls_and_results_apart(self) -> None:
        talk = Talk().a(use("A", "Bash", command="ls")).u(res("A", LONG, is_error=True)).a(use("B", "Grep"))
        [bash, grep] = analyzed(talk.messages).tools
        assert (bash.name, bash.calls, bash.results, bash.errors) == ("Bash", 1, 1, 1)
        assert bash.request_tokens == talk.messages[0].tokens
        assert bash.result_tokens == talk.messages[1].tokens
        assert (grep.calls, grep.results) == (1, 0)

    def test_a_result_before_its_call_and_a_repeated_one_are_the_tools(self) -> None:
        talk = Talk().u(res("A", "early")).a(use("A", "Grep")).u(res("A", "early"))
        [grep] = analyzed(talk.messages).tools
        assert (grep.name, grep.results) == ("Grep", 2)

    def test_a_result_without_a_call_is_of_an_unknown_tool(self) -> None:
        talk = Talk().u(res("A")).u(res("A")).u({"type": "tool_result", "content": "x"})
        [unknown] = analyzed(talk.messages).tools
        assert (unknown.name, unknown.calls, unknown.results) == (UNKNOWN_TOOL, 0, 3)

    def test_names_that_are_none(self) -> None:
        blocks = [{"type": "tool_use", "id": n, "name": name} for n, name in enumerate((None, 7, "", ["x"]))]
        [unknown] = analyzed(Talk().a(*blocks).messages).tools
        assert (unknown.name, unknown.calls) == (UNKNOWN_TOOL, 4)

    def test_many_tools_and_many_calls_are_counted_without_being_remembered(self) -> None:
        talk = Talk()
        for number in range(300):
            talk.a(use(f"c{number}", f"tool-{number}"))
        for number in range(300):
            talk.u(res(f"c{number}"))
        for number in range(20):
            talk.u(res(f"orphan-{number}"))
        found = analyzed(talk.messages, tracked=5)
        by_name = {tool.name: tool for tool in found.tools}
        assert len(by_name) <= 202
        assert sum(tool.calls for tool in found.tools) == 300
        assert sum(tool.results for tool in found.tools) == 320
        assert by_name[OTHER_TOOLS].calls == 100


class TestCleared:
    @pytest.mark.parametrize("beside", [(), ("and a text beside it",)])
    def test_a_cleared_result_is_told_with_what_it_would_take(self, beside: tuple[str, ...]) -> None:
        talk = Talk().a(use("A", "Read", file_path="/x")).u(res("A", LONG), *beside).a("ok")
        micro = boundary(
            2, committed_at=3, kind=BoundaryKind.MICROCOMPACT, cleared_tool_use_ids=frozenset({"A"}), sequence=2
        )
        found = analyzed(talk.messages, boundaries=[micro])
        whole = estimate_block(block=res("A", LONG), family=FAMILY)
        assert (found.cleared.count, found.cleared.tokens) == (1, whole)
        [read] = found.tools
        assert (read.cleared, read.result_tokens) == (1, placeholder_tokens(family=FAMILY))


def reads(*calls: dict[str, Any], edit_between: bool = False, **result: Any) -> ContextAnalysis:
    talk = Talk()
    for number, arguments in enumerate(calls):
        talk.a(use(f"c{number}", "Read", **{"file_path": "/a.py", **arguments}))
        talk.u(res(f"c{number}", LONG, **result))
        if edit_between:
            talk.a(use(f"e{number}", "Edit", file_path="/a.py")).u(res(f"e{number}"))
    return analyzed(talk.messages)


WHOLE = estimate_content(content=[res("c0", LONG)], family=FAMILY)


class TestRepeatedReads:
    def test_all_but_the_newest_are_wasted(self) -> None:
        found = reads({}, {}, {})
        [file] = found.repeated_reads
        assert (file.path, file.reads, file.repeated, file.wasted_tokens) == ("/a.py", 3, 2, 2 * WHOLE)
        assert (found.repeated, found.wasted_tokens) == (2, 2 * WHOLE)

    def test_an_edit_in_between_changes_nothing_of_it(self) -> None:
        """What is out of date is of even less use than a copy."""
        assert reads({}, {}, edit_between=True).wasted_tokens == WHOLE

    @pytest.mark.parametrize(
        ("calls", "repeated"),
        [
            ([{"offset": 1, "limit": 50}, {"offset": 51, "limit": 50}], 0),
            ([{"offset": 51, "limit": 50}, {"offset": 51, "limit": 50}], 1),
            ([{"offset": 60, "limit": 10}, {"offset": 51, "limit": 50}], 1),
            ([{"offset": 51, "limit": 50}, {}], 1),
            ([{}, {"offset": 51, "limit": 50}], 0),
            ([{"limit": 50}, {"offset": 0, "limit": 50}], 1),
            ([{"offset": 10}, {"offset": 5}], 1),
            ([{"offset": "10"}, {"offset": None, "limit": True}], 1),
            ([{}, {"file_path": "/b.py"}], 0),
            ([{"file_path": None}, {"file_path": None}], 0),
        ],
    )
    def test_another_part_is_no_repetition(self, calls: list[dict[str, Any]], repeated: int) -> None:
        assert reads(*calls).repeated == repeated

    def test_a_failed_reading_is_none(self) -> None:
        assert reads({}, {}, is_error=True).repeated == 0

    def test_files_that_were_forgotten_are_still_in_the_total(self) -> None:
        talk = Talk()
        for number in range(30):
            talk.a(use(f"c{number}", "Read", file_path=f"/{number // 2}.py")).u(res(f"c{number}", LONG))
        found = analyzed(talk.messages, tracked=4, rows=3)
        assert found.repeated == 15
        assert [file.path for file in found.repeated_reads] == ["/11.py", "/12.py", "/13.py"]


class TestMedia:
    def test_images_and_documents_wherever_they_stand(self) -> None:
        talk = Talk().u("look", IMAGE).a(use("A")).u(res("A", [IMAGE, PDF, text("two files")])).u(PDF)
        found = analyzed(talk.messages)
        assert (found.images.count, found.documents.count) == (2, 2)
        assert found.parts[Part.MEDIA] < found.images.tokens + found.documents.tokens


class TestLargest:
    def test_largest_first_with_what_they_are(self) -> None:
        talk = Talk().u("go").a("I look.", use("A", "Read", file_path="/a.py")).u(res("A", LONG)).a("x " * 40)
        found = analyzed(talk.messages, rows=3).largest
        assert [(m.position, m.what, m.tool, m.target) for m in found] == [
            (3, "tool_results", "Read", "/a.py"),
            (2, "tool_requests", "Read", "/a.py"),
            (4, "assistant_text", "", ""),
        ]
        assert found[0].uuid == "m3"
        assert found[0].tokens == talk.messages[2].tokens

    def test_of_equal_ones_the_earlier(self) -> None:
        talk = Talk()
        for _ in range(9):
            talk.u("the same words")
        assert [m.position for m in analyzed(talk.messages, rows=2).largest] == [1, 2]


def test_streamed_items_are_the_views() -> None:
    talk = Talk().u("1").a(use("A")).u(res("A", LONG)).a("done").u("2")
    boundaries = [
        boundary(1, committed_at=1, attachments=(AttachmentValue(kind="file", text="f", tokens=3),)),
        boundary(3, committed_at=4, sequence=2, kind=BoundaryKind.MICROCOMPACT, cleared_tool_use_ids=frozenset({"A"})),
    ]
    view = fold(messages=talk.messages, boundaries=boundaries, family=FAMILY)
    streamed = list(stream_items(messages=iter(talk.messages), boundaries=boundaries, family=FAMILY))
    assert [(i.uuid, i.tokens, i.cleared) for i in streamed] == [(i.uuid, i.tokens, i.cleared) for i in view.items]
